//! The line as the admin room shows it: numbers of classes and tenants become names.

use std::sync::Arc;

use crate::admin::{ClassRow, QueueView, WaitingRow, waits_for};
use crate::config::Plan;
use crate::decide::{ClassView, LineView, WaiterView};
use crate::line::App;
use crate::observe::names::NONE;

/// The most who are shown.
const SHOWN: usize = 100;

/// A picture of the line now: of its first, or of the one who has this id.
pub(super) fn view(app: &App, id: Option<&str>) -> QueueView {
    let plan = app.plan.load();
    let (line, waiting) = match id {
        Some(id) => app.fleet.line_of(id),
        None => app.fleet.line(SHOWN),
    };
    let waiting = waiting
        .into_iter()
        .map(|(id, waiter)| row(app, &plan, id, waiter));
    QueueView {
        overloaded: line.classes.values().any(|class| class.overloaded),
        entries: line.entries,
        bytes: line.bytes,
        per_second: line.pace,
        classes: classes(&plan, &line),
        waiting: waiting.collect(),
    }
}

/// Every class, with what waits of it.
pub(super) fn classes(plan: &Plan, line: &LineView) -> Vec<ClassRow> {
    let row = |(place, class): (u8, &crate::config::plan::ClassPlan)| {
        let ClassView {
            depth,
            oldest,
            overloaded,
        } = line.classes.get(&place).copied().unwrap_or_default();
        ClassRow {
            class: class.name.clone(),
            depth,
            oldest_s: oldest.0,
            overloaded,
        }
    };
    (0..).zip(&plan.queue.classes).map(row).collect()
}

fn row(app: &App, plan: &Plan, id: Box<str>, waiter: WaiterView) -> WaitingRow {
    let class = plan.queue.classes.get(usize::from(waiter.claim.class));
    let tenant = app.admission.name_of(waiter.claim.tenant);
    WaitingRow {
        id,
        state: "waiting",
        class: class.map(|class| class.name.clone()),
        tenant: tenant.unwrap_or_else(|| Arc::from(NONE)),
        waits_for: waits_for(waiter.model.as_ref(), &waiter.holds),
        model: waiter.model.map(|model| model.to_string()),
        waited_s: waiter.waited.0,
        position: waiter.position,
    }
}
