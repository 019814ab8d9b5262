//! The fleet as the admin room shows it: what is configured beside what was learned.

use std::collections::BTreeMap;

use super::line;
use crate::admin::{Decode, FleetView, Lora, Memory, Overridden, Prefill, ToldRow, WorkerRow};
use crate::clock;
use crate::config::Choice;
use crate::config::plan::{Origin, WorkerPlan};
use crate::decide::{
    ByHand, ByWork, Learned, LoraView, Override, ResidentsView, Said, Work, WorkerView,
};
use crate::line::App;
use crate::units::{ModelName, Seconds};

/// A picture of the fleet now.
pub(super) fn view(app: &App) -> FleetView {
    let plan = app.plan.load();
    let seen = app.fleet.snapshot();
    let slowest = Slowest::of(&seen);
    let now = clock::wall();
    let catalogue = app.fleet.catalogue();
    let stations = app.fleet.stations();
    let place = |worker: &WorkerPlan| {
        let mut listed = plan.workers.iter();
        listed.position(|one| one.id == worker.id)
    };
    let present = stations.iter().zip(&seen);
    let present = present.filter(|(one, view)| !one.leaves || !app.fleet.is_gone(view.id));
    let mut shown: Vec<_> = present.map(|(one, view)| (&one.plan, view)).collect();
    shown.sort_by_key(|(worker, _)| place(worker).unwrap_or(usize::MAX));
    let rows = shown.into_iter().map(|(worker, view)| {
        let models = catalogue.of(view.id).iter();
        let region = plan.region_of(worker);
        WorkerRow {
            region: region.map(|region| region.name.clone()),
            zone: region.and_then(|region| Some(region.zone.as_ref()?.name.clone())),
            engine: app.fleet.engine(view.id).map(Choice::word),
            models: models.map(|alias| alias.client.to_string()).collect(),
            resident: app.fleet.resident_models(view.id).map(names),
            ..row(worker, view, &slowest, now)
        }
    });
    FleetView {
        workers: rows.collect(),
        queued: line::classes(&plan, &app.fleet.line(0).0),
        ready: app.ready().map_err(|fault| fault.message),
    }
}

/// Changes the worker of this name; false when there is none.
pub(super) fn change(app: &App, name: &str, hand: ByHand) -> bool {
    let plan = app.plan.load();
    let mut workers = plan.workers.iter();
    let found = workers.find(|worker| &*worker.name == name);
    if let Some(worker) = found {
        app.fleet.by_hand(worker.id, hand);
    }
    found.is_some()
}

fn overridden(held: Override) -> Option<Overridden> {
    (held != Override::default()).then(|| Overridden {
        state: held.withheld.map(|why| why.state().label()),
        speed: held.speed,
    })
}

fn learned(view: &WorkerView) -> bool {
    Work::ALL.iter().any(|work| view.prefill[*work].samples > 0)
}

/// The rates of the slowest workers of which they were learned: of the mix that the fleet sees, and by kind.
struct Slowest {
    of_all: f64,
    by_work: ByWork<f64>,
}

impl Slowest {
    fn of(seen: &[WorkerView]) -> Self {
        let least = |rates: &mut dyn Iterator<Item = f64>| rates.fold(f64::INFINITY, f64::min);
        let known = seen.iter().filter(|view| learned(view));
        Slowest {
            of_all: least(&mut known.map(|view| view.rate)),
            by_work: ByWork::of(|work| {
                let known = seen.iter().filter(|view| view.prefill[work].samples > 0);
                least(&mut known.map(|view| view.rates[work]))
            }),
        }
    }

    /// What a worker is worth in terms of the slowest, by the kinds of work that it has shown.
    fn ratios(&self, view: &WorkerView) -> BTreeMap<&'static str, f64> {
        let shown = Work::ALL
            .into_iter()
            .filter(|work| view.prefill[*work].samples > 0);
        let ratios = shown.map(|work| (work.word(), view.rates[work] / self.by_work[work]));
        ratios.filter(|(_, ratio)| ratio.is_finite()).collect()
    }
}

fn row(plan: &WorkerPlan, view: &WorkerView, slowest: &Slowest, now: Seconds) -> WorkerRow {
    let speed = Some(view.rate / slowest.of_all);
    let speed = speed.filter(|speed| learned(view) && speed.is_finite());
    // The page shows one prefill line: that of the work this worker has done more of.
    let most = Work::ALL.map(|work| view.prefill[work]);
    let prefill = most.into_iter().rev().max_by_key(|line| line.samples);
    WorkerRow {
        name: plan.name.clone(),
        url: url(&plan.origin),
        state: view.state.label(),
        reason: view.reason.clone(),
        since: now - view.state_age,
        until: view.until.map(|left| now + left),
        overridden: overridden(view.overridden),
        machine: view.machine.clone(),
        region: None,
        zone: None,
        tier: plan.tier,
        tags: plan.tags.clone(),
        optional: plan.optional,
        held: view.held,
        slow_start: view.allowed,
        fail_timeout: view.fail_timeout,
        ejections: view.ejections,
        engine: None,
        models: Vec::new(),
        lora: view.lora.as_ref().map(lora),
        inflight: view.inflight,
        max_inflight: view.cap.most(),
        max_inflight_from: view.cap.source(),
        max_prompt_tokens: view.longest_prompt,
        queue: view.queued,
        decoding: view.decoding,
        told: view.said.map(told),
        resident: None,
        memory: view.residents.as_ref().map(memory),
        prefill: prefill
            .and_then(line)
            .map(|(request_s, token_s)| Prefill { request_s, token_s }),
        decode: line(view.decode).map(|(step_s, stream_s)| Decode { step_s, stream_s }),
        rtt: Some(view.round_trip).filter(|rtt| *rtt > Seconds::ZERO),
        speed,
        speeds: slowest.ratios(view),
        weight: view.weight,
        share: Some(view.share).filter(|_| view.picks > 0),
        requests: view.picks,
        failures: view.failed,
    }
}

fn told(said: Said) -> ToldRow {
    ToldRow {
        running: said.load.running,
        waiting: said.load.waiting,
        kv_use: said.load.kv_use,
        foreign: said.foreign,
        age: said.age,
        fresh: said.holds,
    }
}

fn names(models: Vec<ModelName>) -> Vec<String> {
    models.iter().map(ModelName::to_string).collect()
}

fn lora(view: &LoraView) -> Lora {
    let named = |adapters: &[ModelName]| adapters.iter().map(ModelName::to_string).collect();
    Lora {
        slots: view.slots,
        loaded: named(&view.loaded),
        waiting: named(&view.waiting),
        refused: named(&view.refused),
        load_s: (view.loads > 0).then_some(view.load.0),
    }
}

fn memory(view: &ResidentsView) -> Memory {
    let swaps = view.swaps.iter();
    Memory {
        most: view.most,
        loaded: names(view.loaded.clone()),
        awaited: view.awaited.as_ref().map(ModelName::to_string),
        swap_s: swaps
            .map(|(name, took)| (name.to_string(), took.0))
            .collect(),
    }
}

fn line(learned: Learned) -> Option<(f64, f64)> {
    (learned.samples > 0).then_some((learned.line.base, learned.line.slope))
}

fn url(origin: &Origin) -> String {
    let scheme = origin.protocol.word();
    format!("{scheme}://{}{}", origin.authority, origin.base)
}
