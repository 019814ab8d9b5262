//! Where reloads are ordered. Orders that come shortly after each other are one: tools that write several files, or send a
//! signal for each, want one reload.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::admin::{Reloaded, Staffing};

/// Orders that follow each other within this time are one …
const GATHER: Duration = Duration::from_millis(250);
/// … but the first of them waits no longer than this.
const LONGEST: Duration = Duration::from_secs(1);

/// Where a reload is ordered.
#[derive(Clone)]
pub(in crate::serve) struct Desk(mpsc::UnboundedSender<Order>);

/// Somebody wants the configuration read again.
pub(super) struct Order {
    pub by: &'static str,
    /// Who comes or goes with it.
    pub staffing: Option<Staffing>,
    pub told: Option<oneshot::Sender<Reloaded>>,
}

impl Order {
    /// Without an answer.
    pub(super) fn of(by: &'static str) -> Self {
        Order {
            by,
            staffing: None,
            told: None,
        }
    }
}

/// Orders that nobody has read yet.
pub(in crate::serve) struct Orders(mpsc::UnboundedReceiver<Order>);

impl Desk {
    /// A desk, and what is ordered there.
    pub(in crate::serve) fn open() -> (Desk, Orders) {
        let (desk, orders) = mpsc::unbounded_channel();
        (Desk(desk), Orders(orders))
    }

    /// Orders a reload.
    pub(in crate::serve) fn ask(&self, by: &'static str) {
        self.send(Order::of(by));
    }

    /// Orders a reload, with somebody who comes or goes or without, and waits for what comes of it; `None` when the process
    /// ends first.
    pub(in crate::serve) async fn answer(
        &self,
        by: &'static str,
        staffing: Option<Staffing>,
    ) -> Option<Reloaded> {
        let (told, answer) = oneshot::channel();
        self.send(Order {
            by,
            staffing,
            told: Some(told),
        });
        answer.await.ok()
    }

    fn send(&self, order: Order) {
        // Nobody is there any more when the process ends.
        let _ = self.0.send(order);
    }
}

impl Orders {
    /// The next one; `None` when nobody can order any more.
    pub(super) async fn next(&mut self) -> Option<Order> {
        self.0.recv().await
    }

    /// This order and those that follow shortly.
    pub(super) async fn gather(&mut self, first: Order) -> Vec<Order> {
        let mut gathered = vec![first];
        let rest = async {
            while let Ok(Some(order)) = timeout(GATHER, self.0.recv()).await {
                gathered.push(order);
            }
        };
        // Either way they are carried out now.
        let _ = timeout(LONGEST, rest).await;
        gathered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn five_orders_at_once_are_one() {
        let (desk, mut orders) = Desk::open();
        for _ in 0..5 {
            desk.ask("SIGHUP");
        }
        let first = orders.0.recv().await.unwrap();
        assert_eq!(orders.gather(first).await.len(), 5);
        assert!(orders.0.try_recv().is_err());
    }
}
