//! The storm itself: four workers that are harmed and two that are talked to, one proxy after the other, what is done to them, and what was seen meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use forebay::clock::Clock;
use forebay::rng::Rng;
use forebay::units::Seconds;
use serde_json::Value;

use crate::askers::{Over, leaving_early, over_http2};
use crate::harm::{Harm, PACE};
use crate::plan::{Deed, Question, WORKERS, deeds};
use crate::support::engine::Engine;
use crate::support::engine::knobs::Knobs;
use crate::support::grpc::GrpcWorker;
use crate::support::load::{Call, Ended, Timetable, park_until};
use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::websocket::EchoWorker;
use crate::support::{expect_soon, wait_until};
use crate::talkers::{MODEL, Talked, over_grpc, over_websockets};

/// Requests a second of the timetable.
const RATE: f64 = 100.0;
/// Clients that share it.
const CLIENTS: usize = 48;
/// Clients that speak HTTP/2, whose numbers begin at this times their place.
const HTTP2: [usize; 2] = [10_000_000, 20_000_000];
/// Silences in talks over WebSockets: none, and such as a process uses that has handed over to take leave.
const GAPS: [Seconds; 2] = [Seconds(0.0), Seconds(1.5)];
/// How many configurations take turns.
pub const PLANS: usize = 4;
/// What is back at zero when all is over.
const GAUGES: [&str; 3] = [
    "forebay_inflight",
    "forebay_queue_depth",
    "forebay_buffered_bytes",
];

/// Which storm.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// All is drawn from this.
    pub seed: u64,
    /// For how long requests come.
    pub seconds: f64,
    /// What a relay before the proxy takes out of its answers.
    pub loses: &'static [u8],
}

/// A time of a worker's.
#[derive(Clone, Copy, Debug)]
pub struct Harmed {
    /// Its place.
    pub worker: usize,
    /// What befell it.
    pub harm: Harm,
    /// From when …
    pub from: Seconds,
    /// … until when.
    pub until: Seconds,
}

/// What one process took at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Seconds,
    /// Whose.
    pub pid: u32,
    /// Memory, in MiB.
    pub resident: f64,
    /// Open files.
    pub files: f64,
}

/// All that was seen.
pub struct Seen {
    /// What was asked, and what became of it.
    pub asked: Vec<(Question, Ended)>,
    /// The ids of questions whose clients left.
    pub left: Vec<String>,
    /// What became of WebSockets and gRPC.
    pub talked: Vec<Talked>,
    /// From when until when one process took over from another.
    pub swaps: Vec<(Seconds, Seconds)>,
    /// What befell workers.
    pub harmed: Vec<Harmed>,
    /// How often what was done.
    pub done: BTreeMap<&'static str, usize>,
    /// The access logs of all processes, one after the other.
    pub log: Vec<Value>,
    /// What they wrote to stderr.
    pub stderr: Vec<String>,
    /// How each of them ended.
    pub exits: Vec<Option<i32>>,
    /// Counters that were not back at zero.
    pub left_over: Vec<String>,
    /// What processes took, in the order of time.
    pub samples: Vec<Sample>,
}

/// Lets it rage, and waits until it is over.
pub fn rage(weather: Weather) -> Seen {
    let mut rng = Rng::seeded(weather.seed);
    let questions = (0..(RATE * weather.seconds) as usize)
        .map(|number| Question::draw(number, &mut rng))
        .collect::<Vec<_>>();
    let deeds = deeds(&mut rng, weather.seconds);
    let mut storm = Storm::begin();
    let relay = Relay::losing(storm.proxies[0].address(), weather.loses);
    let calls: Vec<Call> = questions.iter().zip(0..).map(call).collect();
    let (clock, over) = (storm.clock, AtomicBool::new(false));
    let timetable = Timetable {
        clock,
        clients: CLIENTS,
        calls: &calls,
    };
    let (mut asked, left, talked) = std::thread::scope(|scope| {
        let (at, over) = (relay.address(), &over);
        let seed = weather.seed;
        let [brisk, slow] =
            GAPS.map(|gap| scope.spawn(move || over_websockets(at, seed, gap, clock, over)));
        let calls = scope.spawn(move || over_grpc(at, seed, clock, over));
        let http2 = HTTP2.map(|from| scope.spawn(move || over_http2(at, from, clock, over)));
        let leaving = scope.spawn(move || leaving_early(at, weather.seed, over));
        let ended = {
            let _over = Over(over);
            timetable.send(at, |_| storm.live(&deeds))
        };
        let question = |ended: Ended| (questions[ended.number].clone(), ended);
        let mut asked: Vec<_> = ended.into_iter().map(question).collect();
        for client in http2 {
            asked.extend(client.join().unwrap());
        }
        let talked = [brisk, slow, calls].map(|talker| talker.join().unwrap());
        (asked, leaving.join().unwrap(), talked.concat())
    });
    asked.sort_by_key(|(_, ended)| ended.number);
    Seen {
        talked,
        ..storm.end(asked, left)
    }
}

fn call((question, number): (&Question, u32)) -> Call {
    Call {
        at: Seconds(f64::from(number) / RATE),
        path: question.path,
        body: question.body.clone(),
    }
}

/// Workers, and the processes that served one after the other.
struct Storm {
    clock: Clock,
    engines: Vec<Engine>,
    proxies: Vec<Proxy>,
    plans: [String; PLANS],
    plan: usize,
    harmed: Vec<Harmed>,
    swaps: Vec<(Seconds, Seconds)>,
    done: BTreeMap<&'static str, usize>,
    samples: Vec<Sample>,
}

impl Storm {
    fn begin() -> Self {
        let knobs = Knobs {
            decode: PACE,
            ..Knobs::default()
        };
        let engines: Vec<Engine> = WORKERS
            .iter()
            .map(|name| match *name {
                "d" => Engine::h2c(knobs.clone()),
                _ => Engine::with(knobs.clone()),
            })
            .collect();
        // Timers that no slow machine fires by itself, and a worker that comes back is soon believed.
        let mut setup = Proxy::setup().queue("wait = \"30s\"").section(
            "[timeouts]\nfirst_byte = \"4s\"\nanswer = \"4s\"\nbetween_bytes = \"4s\"\n\
             [routing]\npolicy = \"least_time\"\n\
             [eject]\nfirst = \"500ms\"\nmax = \"2s\"\n\
             [[route]]\npath = \"/raw/*\"\nworkers = [\"a\", \"b\", \"c\", \"d\"]\n\
             [[route]]\npath = \"/talk/*\"\nworkers = [\"talk\"]",
        );
        let (echo, grpc) = (EchoWorker::start(), GrpcWorker::start());
        let lines = |model: &str| format!("engine = \"generic\"\nmodels = [\"{model}\"]");
        setup = setup
            .worker_at("talk", &echo.url(), &lines("talk"))
            .worker_at("call", &grpc.url(), &lines(MODEL));
        for (name, engine) in WORKERS.iter().zip(&engines) {
            setup = setup.worker(name, engine);
        }
        let proxy = setup.start();
        Storm {
            clock: Clock::start(),
            plans: plans(&proxy.configuration()),
            plan: 0,
            engines,
            proxies: vec![proxy],
            harmed: Vec::new(),
            swaps: Vec::new(),
            done: BTreeMap::new(),
            samples: Vec::new(),
        }
    }

    /// The process that serves.
    fn proxy(&self) -> &Proxy {
        self.proxies.last().unwrap()
    }

    /// Does it all, each when it is due, and leaves every worker whole.
    fn live(&mut self, deeds: &[(Seconds, Deed)]) {
        for (due, deed) in deeds {
            park_until(&self.clock, *due);
            self.sample();
            self.engines.iter().for_each(Engine::forget);
            match *deed {
                Deed::Harm(worker, harm) => self.harm(worker, harm),
                Deed::Heal(worker) => self.heal(worker),
                Deed::Reload(plan) => self.reload(plan),
                Deed::Refuse => self.refuse(),
                Deed::Swap => self.swap(),
            }
        }
        (0..WORKERS.len()).for_each(|worker| self.heal(worker));
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn harm(&mut self, worker: usize, harm: Harm) {
        self.count(harm.name());
        self.harmed.push(Harmed {
            worker,
            harm,
            from: self.clock.now(),
            until: Seconds(f64::INFINITY),
        });
        harm.inflict(&self.engines[worker]);
    }

    /// A worker is whole again, if it was not.
    fn heal(&mut self, worker: usize) {
        let lasts = |harmed: &&mut Harmed| harmed.worker == worker && harmed.until.0.is_infinite();
        if let Some(harmed) = self.harmed.iter_mut().find(lasts) {
            harmed.harm.mend(&self.engines[worker]);
            harmed.until = self.clock.now();
        }
    }

    fn reload(&mut self, plan: usize) {
        self.count("reloads");
        self.plan = plan;
        self.proxy().reconfigure(&self.plans[plan]);
    }

    fn refuse(&mut self) {
        self.count("reloads refused");
        let proxy = self.proxy();
        proxy.configure(&(self.plans[self.plan].clone() + "[limits]\nbody = \"0\"\n"));
        assert_eq!(proxy.change("/api/reload", "").json()["result"], "refused");
        proxy.reconfigure(&self.plans[self.plan]);
    }

    fn swap(&mut self) {
        self.count("swaps");
        let began = self.clock.now();
        let running = self.proxy();
        let successor = running.successor();
        running.signal("QUIT");
        expect_soon("the successor serves", || {
            running.serving_pid() == successor.pid() && running.stderr().contains("handed over")
        });
        self.swaps.push((began, self.clock.now()));
        self.proxies.push(successor);
    }

    fn sample(&mut self) {
        let pid = self.proxy().pid();
        let of = |what: &str| PathBuf::from(format!("/proc/{pid}/{what}"));
        let status = std::fs::read_to_string(of("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().split_whitespace().next().unwrap();
        let files = std::fs::read_dir(of("fd")).unwrap().count();
        self.samples.push(Sample {
            at: self.clock.now(),
            pid,
            resident: kib.parse::<f64>().unwrap() / 1024.0,
            files: files as f64,
        });
    }

    /// Looks at what is left when nobody asks any more, and stops it all.
    fn end(mut self, asked: Vec<(Question, Ended)>, left: Vec<String>) -> Seen {
        let gauges = || GAUGES.map(|gauge| self.proxy().metric(gauge, &[]));
        let load = || self.engines.iter().map(Engine::load);
        let _in_time = wait_until(Duration::from_secs(20), || {
            gauges() == [0.0; 3] && load().all(|load| load == (0, 0))
        });
        let gauges = GAUGES.iter().zip(gauges()).filter(|(_, left)| *left != 0.0);
        let gauges = gauges.map(|(gauge, left)| format!("{gauge} is {left}"));
        let loads = WORKERS
            .iter()
            .zip(load())
            .filter(|(_, load)| *load != (0, 0));
        let loads = loads.map(|(name, load)| format!("{name} still runs and keeps {load:?}"));
        let left_over = gauges.chain(loads).collect();
        self.sample();
        self.proxy().signal("TERM");
        let exits = self.proxies.iter().map(|proxy| {
            let _in_time = wait_until(Duration::from_secs(20), || proxy.has_ended());
            proxy
                .has_ended()
                .then(|| proxy.wait_exit(Duration::ZERO).code())?
        });
        let exits = exits.collect();
        Seen {
            asked,
            left,
            talked: Vec::new(),
            swaps: self.swaps,
            harmed: self.harmed,
            done: self.done,
            log: self.proxies.iter().flat_map(Proxy::log).collect(),
            stderr: self.proxies.iter().map(Proxy::stderr).collect(),
            exits,
            left_over,
            samples: self.samples,
        }
    }
}

/// The configuration that it began with, and what else is in force by turns: another policy, other timers, a worker less.
fn plans(first: &str) -> [String; PLANS] {
    let (fewer, _) = first.split_once("[[worker]]\nname = \"d\"").unwrap();
    [
        first.to_owned(),
        first.replace("least_time", "round_robin"),
        first.replace("\"4s\"", "\"5s\""),
        fewer.replace(", \"d\"]", "]"),
    ]
}
