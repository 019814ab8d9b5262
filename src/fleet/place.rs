//! Where a worker is and what its machine costs, in the core's terms.

use crate::config::Plan;
use crate::config::plan::{WorkerPlan, region};
use crate::decide::{Place, RegionId, Zones};

const HOUR: f64 = 3_600.0;

/// Its zone, and the ways to it that the operator wrote down.
pub(super) fn place(plan: &Plan, worker: &WorkerPlan) -> Place {
    let Some(here) = plan.machine_of(worker).and_then(|machine| machine.region) else {
        return Place::default();
    };
    let region = plan.region_of(worker);
    let zone = region.and_then(|region| region.zone.as_ref());
    let from = |(id, _)| region::round_trip(&plan.regions, RegionId(id), here);
    Place {
        zone: zone.map_or(Zones::NONE, |zone| zone.alone),
        round_trips: (0..).zip(&plan.regions).map(from).collect(),
    }
}

/// What a second of its machine is worth in seconds: nothing when the operator has no rate, or it has no price.
pub(super) fn price(plan: &Plan, worker: &WorkerPlan) -> f64 {
    let price = plan
        .machine_of(worker)
        .and_then(|machine| machine.price_per_hour);
    let rate = plan.routing.cost;
    rate.zip(price)
        .map_or(0.0, |(rate, price)| rate.seconds(&price).0 / HOUR)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::units::Seconds;

    fn plan() -> Plan {
        let text = r#"
            state = "unused"
            [routing]
            cost = "0.5s per cent"
            [[region]]
            name = "home"
            zone = "eu"
            rtt = { ohio = "110ms", home = "1ms" }
            [[region]]
            name = "ohio"
            [[machine]]
            name = "desk"
            region = "home"
            price_per_hour = "3.60 EUR"
            [[worker]]
            name = "a"
            url = "http://127.0.0.1:1"
            machine = "desk"
            [[worker]]
            name = "b"
            url = "http://127.0.0.1:2"
        "#;
        config::parse(text, Path::new("test.toml"), &|_| None).unwrap()
    }

    #[test]
    fn a_worker_is_where_its_machine_is() {
        let plan = plan();
        let there = place(&plan, &plan.workers[0]);
        assert_eq!(there.zone, Zones::one(0));
        assert_eq!(
            *there.round_trips,
            [Some(Seconds(0.001)), Some(Seconds(0.11))]
        );
        assert_eq!(place(&plan, &plan.workers[1]), Place::default());
    }

    #[test]
    fn a_second_of_a_machine_is_worth_its_cents() {
        let plan = plan();
        let prices = [0, 1].map(|worker: usize| price(&plan, &plan.workers[worker]));
        assert!((prices[0] - 0.05).abs() < 1e-12, "0.1 cent a second");
        assert_eq!(prices[1], 0.0);
    }
}
