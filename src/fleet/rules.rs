//! What the configuration says of the fleet, in the terms of `decide`.

use super::{place, trial};
use crate::config::Plan;
use crate::config::plan::{Engine, QueuePlan, WorkerPlan};
use crate::decide::{AllDown, LineRules, MOST_CLASSES, Rules, WorkerSpec};
use crate::units::Seconds;

/// The rules that hold for all workers.
pub(super) fn rules(plan: &Plan) -> Rules {
    Rules {
        policy: plan.routing.policy,
        all_down: plan.routing.all_down,
        horizon: plan.routing.horizon,
        sample_above: plan.routing.sample_above as usize,
        line: line_rules(plan),
        reserved: reserved(&plan.queue),
    }
}

fn line_rules(plan: &Plan) -> LineRules {
    LineRules {
        entries: plan.queue.entries as usize,
        bytes: plan.queue.bytes.0,
        age_up: plan.queue.age_up,
        newest_first: newest_first(&plan.queue),
        swap_after: plan.queue.swap_after,
        holds: plan.queue.wait_no_worker > Seconds::ZERO && plan.routing.all_down == AllDown::Queue,
        ..LineRules::default()
    }
}

/// When the newest go first in each class.
fn newest_first(queue: &QueuePlan) -> [Option<Seconds>; MOST_CLASSES] {
    let mut marks = [None; MOST_CLASSES];
    for (mark, class) in marks.iter_mut().zip(&queue.classes) {
        *mark = class.newest_first;
    }
    marks
}

/// What each class leaves free for those above it.
fn reserved(queue: &QueuePlan) -> [f64; MOST_CLASSES] {
    let mut above = 0.0;
    let mut reserved = [0.0; MOST_CLASSES];
    for (own, class) in reserved.iter_mut().zip(&queue.classes) {
        *own = above;
        above += class.reserve;
    }
    reserved
}

/// A worker as the configuration has it, which is known to be this; what it serves is told later.
pub(super) fn spec(plan: &Plan, worker: &WorkerPlan, engine: Option<Engine>) -> WorkerSpec {
    WorkerSpec {
        name: worker.name.clone(),
        models: Vec::new(),
        cap: worker.max_inflight,
        speed: worker.speed,
        rise: worker.probe.rise,
        fall: worker.probe.fall,
        machine: worker.machine.clone(),
        eject: worker.eject,
        tests: trial::tests(&worker.test, engine),
        longest_prompt: worker.max_prompt_tokens,
        place: place::place(plan, worker),
        tier: worker.tier,
        optional: worker.optional,
        price: place::price(plan, worker),
        lora_slots: worker.lora.slots,
        resident: worker.resident,
    }
}
