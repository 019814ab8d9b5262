//! Another plan while requests are under way.

use super::super::ask::Rules;
use super::super::seat::Seat;
use super::FleetState;
use crate::units::{Seconds, WorkerId};

impl FleetState {
    /// Takes another plan over. `seats` says what becomes of each worker, in the order of their ids, and goes on with
    /// those who are new; none is left out. What a worker serves is to be told next, then [`grants`](Self::grants) is
    /// to be called: of those who wait some may have somebody now, and some nobody any more.
    pub fn reseat(&mut self, seats: Vec<Seat>, rules: Rules, now: Seconds) {
        self.roster.reseat(seats, rules, now);
        self.line.replan(rules.line);
        self.line.rearrange(|ask| self.roster.barred(ask));
    }

    /// Whether a worker is in the plan no more and holds nothing either.
    #[must_use]
    pub fn is_gone(&self, worker: WorkerId) -> bool {
        let worker = self.roster.workers().get(worker.index());
        worker.is_none_or(|worker| worker.condition().has_left() && worker.inflight() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ask::{Ask, Choice, Claim, NoChoice, Outcome, Work, WorkerSpec};
    use super::super::super::pick::Policy;
    use super::*;
    use crate::facts::Prefix;
    use crate::rng::Rng;
    use crate::units::{Length, ModelName};

    const ANSWERED: Outcome = Outcome::Answered {
        prompt_tokens: Some(100.0),
        cached_tokens: None,
        output_tokens: Some(10.0),
    };

    fn spec(name: &str, machine: Option<&str>) -> WorkerSpec {
        WorkerSpec {
            machine: machine.map(Into::into),
            ..WorkerSpec::new(name, 2)
        }
    }

    fn stays(name: &str, machine: Option<&str>) -> Seat {
        Seat::Stays(Box::new(spec(name, machine)))
    }

    fn begins(name: &str, machine: Option<&str>) -> Seat {
        Seat::Begins(Box::new(spec(name, machine)))
    }

    /// Two workers that serve `m`.
    fn fleet() -> FleetState {
        let specs = vec![spec("a", None), spec("b", None)];
        let mut fleet = FleetState::new(specs, Policy::LeastTime);
        serve(&mut fleet, &[0, 1]);
        fleet
    }

    fn serve(fleet: &mut FleetState, workers: &[u32]) {
        for worker in workers {
            fleet.serves(WorkerId(*worker), &[ModelName::new("m")]);
        }
    }

    fn ask(model: Option<&str>) -> Ask {
        Ask {
            model: model.map(ModelName::new),
            only: None,
            zones: None,
            from: None,
            path: None,
            work: Work::Generate,
            prompt: Length::Tokens(100.0),
            fills: None,
            prefix: Prefix {
                blocks: [1, 2, 3].into(),
                each: Length::Tokens(30.0),
            },
            max_tokens: None,
            deadline: None,
            streamed: true,
            claim: Claim::default(),
        }
    }

    fn choose(fleet: &mut FleetState, now: f64) -> Result<Choice, NoChoice> {
        fleet.choose(&ask(Some("m")), &[], Seconds(now), &mut Rng::seeded(1))
    }

    fn reseat(fleet: &mut FleetState, seats: Vec<Seat>, now: f64) {
        fleet.reseat(seats, Policy::LeastTime.into(), Seconds(now));
    }

    #[test]
    fn who_stays_keeps_what_it_holds_and_has_shown() {
        let mut fleet = fleet();
        for second in 1..20 {
            let mut choice = choose(&mut fleet, f64::from(second)).unwrap();
            let later = Seconds(f64::from(second) + 0.5);
            fleet.first_byte(&mut choice.booking, later);
            fleet.finish(choice.booking, ANSWERED, later);
        }
        let held = choose(&mut fleet, 30.0).unwrap();
        let shown = |fleet: &FleetState| {
            let seen = fleet.snapshot(Seconds(31.0));
            let shown = seen.iter().map(|one| {
                (
                    one.inflight,
                    one.picks,
                    one.prefill[Work::Generate],
                    one.weight,
                )
            });
            shown.collect::<Vec<_>>()
        };
        let before = shown(&fleet);
        reseat(&mut fleet, vec![stays("a", None), stays("b", None)], 31.0);
        assert_eq!(shown(&fleet), before);
        fleet.finish(held.booking, ANSWERED, Seconds(32.0));
        fleet.check_invariants().unwrap();
    }

    #[test]
    fn who_leaves_gets_nothing_new_and_is_gone_when_it_holds_nothing() {
        let mut fleet = fleet();
        let held = choose(&mut fleet, 1.0).unwrap();
        let (gone, left) = (held.worker, WorkerId(1 - held.worker.0));
        let mut seats = vec![stays("a", None), stays("b", None)];
        seats[gone.index()] = Seat::Leaves;
        reseat(&mut fleet, seats, 2.0);
        assert!(!fleet.is_gone(gone));
        for model in [Some("m"), None] {
            let next = fleet.choose(&ask(model), &[], Seconds(2.0), &mut Rng::seeded(1));
            assert_eq!(next.unwrap().worker, left);
            assert!(fleet.considered().iter().all(|one| one.worker == left));
        }
        fleet.finish(held.booking, ANSWERED, Seconds(3.0));
        assert!(fleet.is_gone(gone) && !fleet.is_gone(left));
        let mut back = vec![stays("a", None), stays("b", None)];
        back.push(begins("c", None));
        reseat(&mut fleet, back, 4.0);
        serve(&mut fleet, &[0, 1, 2]);
        assert!(!fleet.is_gone(gone));
        let seen = fleet.snapshot(Seconds(4.0));
        let allowed: Vec<_> = seen.iter().map(|one| one.allowed.is_some()).collect();
        assert_eq!(
            (allowed[gone.index()], allowed[2]),
            (true, true),
            "they begin slowly"
        );
        fleet.check_invariants().unwrap();
    }

    #[test]
    fn what_another_machine_held_counts_no_more_behind_its_name() {
        let mut fleet = fleet();
        let held = choose(&mut fleet, 1.0).unwrap();
        let worker = held.worker;
        let mut seats = vec![stays("a", None), stays("b", None)];
        seats[worker.index()] = begins("a", Some("box"));
        reseat(&mut fleet, seats, 2.0);
        fleet.check_invariants().unwrap();
        assert_eq!(fleet.snapshot(Seconds(2.0))[worker.index()].inflight, 0);
        fleet.finish(held.booking, ANSWERED, Seconds(3.0));
        fleet.check_invariants().unwrap();
    }

    #[test]
    fn who_waits_for_one_that_leaves_is_told_at_once() {
        let mut fleet = fleet();
        let held: Vec<_> = (0..4).map(|_| choose(&mut fleet, 1.0).unwrap()).collect();
        let ticket = fleet
            .stand_in_line(ask(Some("m")), &[], Seconds(1.0))
            .unwrap();
        let mut rng = Rng::seeded(1);
        assert!(fleet.grants(Seconds(1.0), &mut rng).is_empty());
        reseat(&mut fleet, vec![Seat::Leaves, Seat::Leaves], 2.0);
        fleet.forget(&ModelName::new("m"));
        let grants = fleet.grants(Seconds(2.0), &mut rng);
        assert_eq!(grants.len(), 1);
        assert_eq!(grants[0].ticket, ticket);
        assert!(matches!(
            grants[0].result,
            Err(NoChoice::UnknownModel { .. })
        ));
        for choice in held {
            fleet.finish(choice.booking, ANSWERED, Seconds(3.0));
            fleet.check_invariants().unwrap();
        }
    }

    #[test]
    fn whatever_plans_follow_each_other_all_counters_agree() {
        for seed in 0..256 {
            let mut rng = Rng::seeded(seed);
            let mut fleet = fleet();
            let (mut held, mut count) = (Vec::new(), 2);
            for step in 0..120 {
                let now = Seconds(f64::from(step));
                match rng.below(8) {
                    0..4 => held.extend(fleet.choose(&ask(Some("m")), &[], now, &mut rng)),
                    4..6 if !held.is_empty() => {
                        let choice = held.swap_remove(rng.below(held.len()));
                        fleet.finish(choice.booking, ANSWERED, now);
                    }
                    6 => {
                        let worker = WorkerId(u32::try_from(rng.below(count)).unwrap());
                        let verdict = if rng.below(2) == 0 {
                            Ok(())
                        } else {
                            Err("dead".into())
                        };
                        fleet.probe(worker, verdict, now);
                    }
                    _ => {
                        count = (count + rng.below(2)).min(6);
                        let mut seat = |known: bool| {
                            let machine = [None, Some("x"), Some("y")][rng.below(3)];
                            match rng.below(4) {
                                0 if known => Seat::Leaves,
                                1 | 2 if known => stays("w", machine),
                                _ => begins("w", machine),
                            }
                        };
                        let known = fleet.snapshot(now).len();
                        let seats = (0..count)
                            .map(|place| seat(place < known))
                            .collect::<Vec<_>>();
                        let there: Vec<_> = (0..)
                            .zip(&seats)
                            .filter(|(_, seat)| !matches!(seat, Seat::Leaves))
                            .map(|(id, _)| id)
                            .collect();
                        fleet.reseat(seats, Policy::LeastTime.into(), now);
                        serve(&mut fleet, &there);
                    }
                }
                fleet.grants(now, &mut rng);
                let checked = fleet.check_invariants();
                assert!(checked.is_ok(), "seed {seed}, step {step}: {checked:?}");
            }
        }
    }
}
