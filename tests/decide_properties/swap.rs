//! Workers whose memory holds one of their models at a time: requests of a model stay together, and nobody waits for ever.

use std::collections::BTreeMap;

use forebay::decide::{
    Ask, Choice, EngineName, Exclusion, Fate, FleetState, LineRules, NoChoice, Outcome, Policy,
    Rules, Ticket, Work, WorkerSpec,
};
use forebay::rng::Rng;
use forebay::units::{ModelName, Seconds, WorkerId};

use crate::{ask, spec};

const MODELS: [&str; 3] = ["a", "b", "c"];
/// What a swap takes here, and the rest of a request: to its first byte and from then on.
const SWAP: Seconds = Seconds(4.0);
const READS: Seconds = Seconds(0.1);
const WRITES: Seconds = Seconds(0.9);
const ANSWERED: Outcome = Outcome::Answered {
    prompt_tokens: None,
    cached_tokens: None,
    output_tokens: Some(20.0),
};

/// A request that runs.
struct Running {
    choice: Choice,
    first: Option<Seconds>,
    end: Seconds,
}

/// A fleet in virtual time, and what its engines do: one model in memory, loaded for whoever asks for it.
struct Yard {
    state: FleetState,
    rng: Rng,
    now: Seconds,
    running: Vec<Running>,
    waiting: BTreeMap<Ticket, (&'static str, Seconds)>,
    loaded: Vec<Option<&'static str>>,
    ready: Vec<Seconds>,
    swaps: usize,
    /// Requests whose model was unloaded under them.
    torn: usize,
    /// How long those of each model stood in line, who did.
    waits: BTreeMap<&'static str, Vec<f64>>,
    answered: usize,
}

fn names() -> [EngineName; 3] {
    MODELS.map(|name| EngineName {
        client: ModelName::new(name),
        engine: ModelName::new(name),
    })
}

fn worker(resident: Option<u32>, cap: u32) -> WorkerSpec {
    WorkerSpec {
        resident,
        ..spec("w", &MODELS, cap)
    }
}

fn request(model: &str) -> Ask {
    Ask {
        max_tokens: Some(20),
        ..ask(model, Work::Generate, 300.0)
    }
}

impl Yard {
    fn new(seed: u64, workers: Vec<WorkerSpec>, swap_after: f64) -> Self {
        let line = LineRules {
            swap_after: Seconds(swap_after),
            ..LineRules::default()
        };
        let rules = Rules {
            line,
            ..Policy::LeastTime.into()
        };
        let count = workers.len();
        let mut state = FleetState::new(workers, rules);
        for id in (0..).map(WorkerId).take(count) {
            state.calls(id, &names());
        }
        Yard {
            state,
            rng: Rng::seeded(seed),
            now: Seconds(1.0),
            running: Vec::new(),
            waiting: BTreeMap::new(),
            loaded: vec![None; count],
            ready: vec![Seconds::ZERO; count],
            swaps: 0,
            torn: 0,
            waits: BTreeMap::new(),
            answered: 0,
        }
    }

    fn send(&mut self, model: &'static str) {
        let ask = request(model);
        match self.state.choose(&ask, &[], self.now, &mut self.rng) {
            Ok(choice) => self.start(model, choice),
            Err(NoChoice::Busy) => {
                let ticket = self.state.stand_in_line(ask, &[], self.now).unwrap();
                self.waiting.insert(ticket, (model, self.now));
                self.grant();
            }
            Err(other) => panic!("{other:?}"),
        }
        self.state.check_invariants().unwrap();
    }

    /// The engine gets it.
    fn start(&mut self, model: &'static str, choice: Choice) {
        let at = choice.worker.index();
        if self.loaded[at] != Some(model) {
            let here = self.running.iter();
            self.torn += here
                .filter(|one| one.choice.worker == choice.worker)
                .count();
            self.swaps += 1;
            self.loaded[at] = Some(model);
            self.ready[at] = self.ready[at].max(self.now) + SWAP;
        }
        let first = self.ready[at].max(self.now) + READS;
        self.running.push(Running {
            choice,
            first: Some(first),
            end: first + WRITES,
        });
    }

    fn grant(&mut self) {
        for grant in self.state.grants(self.now, &mut self.rng) {
            let (model, since) = self.waiting.remove(&grant.ticket).unwrap();
            let waited = self.now - since;
            self.waits.entry(model).or_default().push(waited.0);
            self.start(model, grant.result.unwrap());
        }
        self.state.check_invariants().unwrap();
    }

    /// Lets time pass until then.
    fn until(&mut self, end: Seconds) {
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = next;
            self.state.tick(next);
            for one in &mut self.running {
                if one.first.take_if(|first| *first <= next).is_some() {
                    self.state.first_byte(&mut one.choice.booking, next);
                }
            }
            let over = |one: &mut Running| one.end <= next;
            for done in self.running.extract_if(.., over).collect::<Vec<_>>() {
                self.state.finish(done.choice.booking, ANSWERED, next);
                self.answered += 1;
            }
            self.grant();
        }
        self.now = self.now.max(end);
    }

    /// When something happens: at the latest a quarter of a second from now, while anybody is there.
    fn next(&self) -> Option<Seconds> {
        let times = self
            .running
            .iter()
            .flat_map(|one| [one.first, Some(one.end)]);
        let soonest = times.flatten().reduce(Seconds::min);
        let tick = self.now + Seconds(0.25);
        let anybody = !self.running.is_empty() || !self.waiting.is_empty();
        anybody.then(|| soonest.unwrap_or(tick).min(tick))
    }

    /// Until everybody is answered.
    fn finish_all(&mut self) {
        self.until(self.now + Seconds(3_600.0));
        assert!(self.running.is_empty() && self.waiting.is_empty());
    }
}

fn by_turns(seed: u64, resident: Option<u32>, cap: u32) -> Yard {
    let mut yard = Yard::new(seed, vec![worker(resident, cap)], 60.0);
    for turn in 0..40 {
        yard.send(MODELS[turn % 2]);
    }
    yard.finish_all();
    assert_eq!(yard.answered, 40);
    yard
}

#[test]
fn a_crowd_of_two_models_by_turns_makes_two_swaps() {
    for cap in [1, 4, 64] {
        for seed in 0..16 {
            let yard = by_turns(seed, Some(1), cap);
            assert_eq!((yard.swaps, yard.torn), (2, 0), "seed {seed}, cap {cap}");
        }
        // Negative control: who does not know the bound swaps at every turn.
        let yard = by_turns(1, None, cap);
        assert!(yard.swaps > 20, "cap {cap}: {}", yard.swaps);
        assert_eq!(yard.torn > 0, cap > 1);
    }
}

/// How long one request for `b` waits among requests for `a`, five a second for a minute.
fn wait_among_others(seed: u64, swap_after: f64) -> f64 {
    let mut yard = Yard::new(seed, vec![worker(Some(1), 64)], swap_after);
    for at in 0..300_u32 {
        yard.until(Seconds(10.0 + 0.2 * f64::from(at)));
        yard.send("a");
        if at == 50 {
            yard.send("b");
        }
    }
    yard.finish_all();
    assert_eq!((yard.answered, yard.torn), (301, 0), "seed {seed}");
    yard.waits["b"][0]
}

#[test]
fn a_model_waits_for_another_no_longer_than_it_must() {
    for seed in 0..8 {
        let waited = wait_among_others(seed, 5.0);
        let under_way = (READS + WRITES).0;
        assert!((5.0..5.5 + under_way).contains(&waited), "{seed}: {waited}");
        // Negative control: without the bound it waits until nobody asks for the other.
        assert!(wait_among_others(seed, 1e6) > 45.0);
    }
}

#[test]
fn under_a_load_that_never_ends_models_take_turns_of_that_length() {
    let mut yard = Yard::new(1, vec![worker(Some(1), 2)], 20.0);
    for at in 0..2_400_u32 {
        yard.until(Seconds(10.0 + 0.25 * f64::from(at)));
        yard.send(MODELS[at as usize % 3]);
        // Those who have waited for a minute and a half give up.
        let tickets = yard.waiting.iter();
        let over = tickets.filter(|(_, (_, since))| yard.now - *since > Seconds(90.0));
        for ticket in over.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            yard.waiting.remove(&ticket);
            yard.state.leave_line(ticket, yard.now);
            yard.grant();
        }
    }
    // Ten minutes in turns of about 20 s of work after 4 s of loading.
    assert!((15..32).contains(&yard.swaps), "{}", yard.swaps);
    for model in MODELS {
        assert!(yard.waits[model].len() > 50, "{model} starves");
    }
}

#[test]
fn each_model_settles_on_a_worker_of_its_own() {
    for seed in 0..64 {
        let mut yard = Yard::new(seed, vec![worker(Some(1), 8); 2], 10.0);
        for turn in 0..40 {
            yard.send(MODELS[turn % 2]);
            yard.finish_all();
        }
        assert_eq!(yard.swaps, 2, "seed {seed}");
    }
}

#[test]
fn an_idle_worker_swaps_at_once_and_a_busy_one_says_why_not() {
    let mut yard = Yard::new(1, vec![worker(Some(1), 8)], 10.0);
    yard.send("a");
    yard.send("b");
    let fate = |yard: &Yard| yard.state.considered()[0].fate;
    assert_eq!(fate(&yard), Fate::Excluded(Exclusion::Occupied));
    assert_eq!(Exclusion::Occupied.label(), "occupied");
    yard.finish_all();
    yard.send("a");
    assert_eq!(fate(&yard), Fate::Picked);
    assert_eq!((yard.waiting.len(), yard.swaps), (0, 3));
}

#[test]
fn what_a_swap_takes_is_learned_for_each_model_and_teaches_no_line() {
    for streamed in [true, false] {
        let mut yard = Yard::new(1, vec![worker(Some(1), 8)], 10.0);
        let before = yard.state.snapshot(yard.now)[0].prefill[forebay::decide::Work::Generate];
        for turn in 0..41 {
            let model = MODELS[turn % 2];
            let ask = Ask {
                streamed,
                ..request(model)
            };
            let choice = yard.state.choose(&ask, &[], yard.now, &mut yard.rng);
            let mut choice = choice.unwrap();
            assert!(choice.terms.swap > Seconds::ZERO, "a swap each time");
            let swap = Seconds([2.0, 30.0][turn % 2]);
            yard.now += swap + choice.terms.own;
            if streamed {
                yard.state.first_byte(&mut choice.booking, yard.now);
            }
            yard.now += choice.terms.decode;
            yard.state.finish(choice.booking, ANSWERED, yard.now);
            yard.state.check_invariants().unwrap();
        }
        let view = &yard.state.snapshot(yard.now)[0];
        assert_eq!(view.prefill[forebay::decide::Work::Generate], before);
        let residents = view.residents.as_ref().unwrap();
        assert_eq!(residents.loaded, [ModelName::new("a")]);
        let swaps: BTreeMap<_, _> = residents.swaps.iter().cloned().collect();
        for (model, took) in [("a", 2.0), ("b", 30.0)] {
            let learned = swaps[&ModelName::new(model)].0;
            assert!((learned / took - 1.0).abs() < 0.1, "{model}: {learned}");
        }
    }
}

#[test]
fn what_an_engine_tells_corrects_what_is_believed() {
    let mut yard = Yard::new(1, vec![worker(None, 8); 2], 10.0);
    let swap = |yard: &mut Yard, model: &str| {
        let tried = [WorkerId(0), WorkerId(1)];
        let refused = yard
            .state
            .choose(&request(model), &tried, yard.now, &mut yard.rng);
        assert!(refused.is_err());
        let considered = yard.state.considered().iter();
        considered.map(|one| one.terms.swap.0).collect::<Vec<_>>()
    };
    assert_eq!(swap(&mut yard, "a"), [0.0, 0.0], "nobody tells");
    yard.state
        .hear_resident(WorkerId(1), &[ModelName::new("a")]);
    assert_eq!(swap(&mut yard, "a"), [0.0, 0.0]);
    assert_eq!(swap(&mut yard, "b"), [0.0, 10.0]);
    yard.state.hear_resident(WorkerId(1), &[]);
    assert_eq!(swap(&mut yard, "a"), [0.0, 10.0]);
}

#[test]
fn counts_agree_whatever_happens() {
    for seed in 0..128 {
        let specs = vec![worker(Some(1), 3), worker(Some(2), 4), worker(None, 2)];
        let mut yard = Yard::new(seed, specs, 1.0);
        for _ in 0..300 {
            yard.now += Seconds(0.2 * yard.rng.unit());
            let now = yard.now;
            let id = WorkerId([0, 1, 2][yard.rng.below(3)]);
            match yard.rng.below(10) {
                0..5 => {
                    let model = MODELS[yard.rng.below(3)];
                    yard.send(model);
                }
                5 if !yard.running.is_empty() => {
                    let at = yard.rng.below(yard.running.len());
                    yard.state
                        .first_byte(&mut yard.running[at].choice.booking, now);
                }
                6 | 7 if !yard.running.is_empty() => {
                    let one = yard.rng.below(yard.running.len());
                    let done = yard.running.swap_remove(one);
                    let outcome = [ANSWERED, Outcome::Gone, Outcome::Unsent][yard.rng.below(3)];
                    yard.state.finish(done.choice.booking, outcome, now);
                }
                8 => {
                    let loaded: Vec<_> = MODELS.iter().map(|name| ModelName::new(name)).collect();
                    yard.state.hear_resident(id, &loaded[..yard.rng.below(4)]);
                }
                9 if yard.rng.below(4) == 0 => {
                    for verdict in [false, false, false, true, true] {
                        let verdict = if verdict { Ok(()) } else { Err(String::new()) };
                        yard.state.probe(id, verdict, now);
                    }
                }
                _ => {}
            }
            yard.grant();
        }
    }
}
