//! Every metric of the worker: its name, its kind, what it says, and where its number comes from. The one table that
//! the exposition is written from.
//!
//! Names that begin with `nv_` are Triton's, with Triton's meaning and units (microseconds among them), so that
//! dashboards made for Triton show this worker too. What Triton has no name for begins with `forebay_worker_`.
//!
//! Left out is what would not be true here: `nv_pinned_memory_pool_*`, as there is no such pool, and `nv_gpu_*` and
//! `nv_energy_consumption`, for which NVIDIA has an exporter of its own (DCGM) that tells them of the card whoever uses
//! it.

use super::exposition::{Samples, Shown};
use super::host::Machine;

/// One metric.
pub struct Metric {
    /// What it is called.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What it says.
    pub help: &'static str,
    /// Where its numbers come from.
    pub samples: Samples,
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Shown) -> u64) -> Metric {
    Metric {
        name,
        kind: "counter",
        help,
        samples: Samples::One(value),
    }
}

const fn of_cache(name: &'static str, help: &'static str, value: fn(&Shown) -> u64) -> Metric {
    Metric {
        name,
        kind: "counter",
        help,
        samples: Samples::Cached(value),
    }
}

const fn of_machine(
    name: &'static str,
    help: &'static str,
    value: fn(&Machine) -> Option<f64>,
) -> Metric {
    Metric {
        name,
        kind: "gauge",
        help,
        samples: Samples::Machine(value),
    }
}

/// In the order in which they are told.
pub const METRICS: [Metric; 20] = [
    counter(
        "nv_inference_request_success",
        "Requests that got their answer, whatever their rows",
        |model| model.numbers.success.count,
    ),
    Metric {
        name: "nv_inference_request_failure",
        kind: "counter",
        help: "Requests that got none: refused by the queue (REJECTED), left by their client (CANCELED), failed in the \
               engine (BACKEND), or anything else (OTHER)",
        samples: Samples::ByReason(|model, reason| model.numbers.failures[reason as usize].count),
    },
    counter(
        "nv_inference_count",
        "Rows computed (not those that the cache answered)",
        |model| model.numbers.inferences,
    ),
    counter(
        "nv_inference_exec_count",
        "Runs of the engine (not what the cache answered)",
        |model| model.numbers.executions,
    ),
    counter(
        "nv_inference_request_duration_us",
        "Time of answered requests from beginning to end, in microseconds",
        |model| model.numbers.success.nanos / 1000,
    ),
    counter(
        "nv_inference_queue_duration_us",
        "Time that answered requests waited for their run, in microseconds",
        |model| model.numbers.queue.nanos / 1000,
    ),
    counter(
        "nv_inference_compute_input_duration_us",
        "Time that gathering batches took, for each request in them, in microseconds",
        |model| model.numbers.input.nanos / 1000,
    ),
    counter(
        "nv_inference_compute_infer_duration_us",
        "Time that the engine took, for each request in the run, in microseconds",
        |model| model.numbers.infer.nanos / 1000,
    ),
    counter(
        "nv_inference_compute_output_duration_us",
        "Time that cutting batches apart took, for each request in them, in microseconds",
        |model| model.numbers.output.nanos / 1000,
    ),
    of_cache(
        "nv_cache_num_hits_per_model",
        "Requests that the response cache answered",
        |model| model.numbers.hit.count,
    ),
    of_cache(
        "nv_cache_hit_duration_per_model",
        "Time that finding them took, in microseconds",
        |model| model.numbers.hit.nanos / 1000,
    ),
    of_cache(
        "nv_cache_num_misses_per_model",
        "Requests that the response cache could not answer",
        |model| model.numbers.miss.count,
    ),
    of_cache(
        "nv_cache_miss_duration_per_model",
        "Time that looking for them and keeping their answers took, in microseconds",
        |model| model.numbers.miss.nanos / 1000,
    ),
    Metric {
        name: "nv_inference_pending_request_count",
        kind: "gauge",
        help: "Requests that wait for their run at this moment",
        samples: Samples::One(|model| model.pending as u64),
    },
    Metric {
        name: "nv_model_load_duration_secs",
        kind: "gauge",
        help: "How long loading took, warm-up included, in seconds",
        samples: Samples::Seconds(|model| model.load),
    },
    of_machine(
        "nv_cpu_utilization",
        "The share of the time that the machine's cores were busy since this was last asked for, from 0 to 1",
        |machine| machine.busy,
    ),
    of_machine(
        "nv_cpu_memory_total_bytes",
        "Memory of the machine, in bytes",
        |machine| machine.memory.map(|bytes| bytes as f64),
    ),
    of_machine(
        "nv_cpu_memory_used_bytes",
        "Memory of the machine that programs have, in bytes",
        |machine| machine.used.map(|bytes| bytes as f64),
    ),
    Metric {
        name: "forebay_worker_batch_rows",
        kind: "histogram",
        help: "Rows of each run of the engine",
        samples: Samples::Rows,
    },
    Metric {
        name: "forebay_worker_device",
        kind: "gauge",
        help: "1 for each device that computes, and whether it is one that was fallen back to",
        samples: Samples::Device,
    },
];
