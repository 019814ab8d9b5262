//! Where reloads are ordered. Orders that come shortly after each other are one: tools that write several files, or
//! send a signal for each, want one reload. A worker that comes or goes by hand is a reload of its own, and the order
//! says which: so what is answered is what came of it, and of nobody else.

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
    /// Who comes or goes by hand.
    pub staffing: Option<Staffing>,
    pub told: Option<oneshot::Sender<Reloaded>>,
}

impl Order {
    /// For nobody who waits.
    pub(super) fn by(by: &'static str) -> Self {
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
        self.send(Order::by(by));
    }

    /// Orders a reload, with somebody more or less if so said, and waits for what comes of it; `None` when the process
    /// ends first.
    pub(in crate::serve) async fn answer(
        &self,
        by: &'static str,
        staffing: Option<Staffing>,
    ) -> Option<Reloaded> {
        let (told, answer) = oneshot::channel();
        let told = Some(told);
        self.send(Order { by, staffing, told });
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

/// Orders as the reloads that they are.
pub(super) fn turns(gathered: Vec<Order>) -> Vec<Vec<Order>> {
    let mut turns = Vec::new();
    let (by_hand, plain): (Vec<_>, Vec<_>) = gathered
        .into_iter()
        .partition(|order| order.staffing.is_some());
    if !plain.is_empty() {
        turns.push(plain);
    }
    turns.extend(by_hand.into_iter().map(|order| vec![order]));
    turns
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

    #[test]
    fn each_worker_that_comes_or_goes_is_a_reload_of_its_own() {
        let remove = |name: &str| Order {
            staffing: Some(Staffing::Remove { name: name.into() }),
            ..Order::by("admin")
        };
        let gathered = vec![
            remove("a"),
            Order::by("file"),
            remove("b"),
            Order::by("SIGHUP"),
        ];
        let turns = turns(gathered);
        let sizes: Vec<_> = turns.iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 1]);
        assert!(turns[0].iter().all(|order| order.staffing.is_none()));
    }
}
