//! Prometheus' text format, version 0.0.4, of everything in [`super::names`]. Pure: numbers in, text out.

use std::fmt::{self, Write as _};

use super::host::Machine;
use super::names::{METRICS, Metric};
use super::statistics::Statistics;
use crate::fault::Reason;
use crate::units::{Device, ModelName, Seconds};

/// The upper bounds of the batch histogram: powers of two.
const BOUNDS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A served version of a model and what there is to tell of it.
#[derive(Debug)]
pub struct Shown {
    /// The model.
    pub name: ModelName,
    /// Its version.
    pub version: u64,
    /// What was counted.
    pub numbers: Statistics,
    /// Requests that wait.
    pub pending: usize,
    /// How long loading took.
    pub load: Seconds,
    /// What computes, and whether it is not what was asked for.
    pub devices: Vec<(Device, bool)>,
    /// Whether its answers are kept.
    pub cached: bool,
}

/// Where a metric's numbers come from.
pub enum Samples {
    /// One for each version.
    One(fn(&Shown) -> u64),
    /// One for each version whose answers are kept.
    Cached(fn(&Shown) -> u64),
    /// One for each version, in seconds.
    Seconds(fn(&Shown) -> Seconds),
    /// One for each version and each reason to fail.
    ByReason(fn(&Shown, Reason) -> u64),
    /// The histogram of batch sizes.
    Rows,
    /// One for the machine, where it tells it.
    Machine(fn(&Machine) -> Option<f64>),
    /// A constant 1 for each device, with its name as a label.
    Device,
}

/// All metrics of these models and of the machine.
pub fn exposition(models: &[Shown], machine: &Machine) -> String {
    let mut text = String::new();
    for metric in &METRICS {
        // A string takes all that is written to it.
        let _ = family(&mut text, metric, models, machine);
    }
    text
}

fn family(text: &mut String, metric: &Metric, models: &[Shown], machine: &Machine) -> fmt::Result {
    let Metric {
        name, kind, help, ..
    } = metric;
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    if let Samples::Machine(value) = metric.samples {
        return value(machine).map_or(Ok(()), |value| writeln!(text, "{name} {value}"));
    }
    models
        .iter()
        .try_for_each(|model| samples(text, metric, model))
}

/// What one model's numbers say.
fn samples(text: &mut String, metric: &Metric, model: &Shown) -> fmt::Result {
    let name = metric.name;
    let labels = format!(
        "model=\"{}\",version=\"{}\"",
        escaped(model.name.as_str()),
        model.version
    );
    match metric.samples {
        Samples::One(value) => writeln!(text, "{name}{{{labels}}} {}", value(model))?,
        Samples::Cached(value) if model.cached => {
            writeln!(text, "{name}{{{labels}}} {}", value(model))?;
        }
        Samples::Cached(_) | Samples::Machine(_) => {}
        Samples::Seconds(value) => writeln!(text, "{name}{{{labels}}} {}", value(model).0)?,
        Samples::ByReason(value) => {
            for reason in Reason::ALL {
                let (label, count) = (reason.label(), value(model, reason));
                writeln!(text, "{name}{{{labels},reason=\"{label}\"}} {count}")?;
            }
        }
        Samples::Rows => rows(text, name, &labels, &model.numbers)?,
        Samples::Device => {
            for (device, fallback) in &model.devices {
                let labels = format!("{labels},device=\"{device}\",fallback=\"{fallback}\"");
                writeln!(text, "{name}{{{labels}}} 1")?;
            }
        }
    }
    Ok(())
}

fn rows(text: &mut String, name: &str, labels: &str, numbers: &Statistics) -> fmt::Result {
    let runs = |bound: usize| -> u64 {
        let within = numbers.batches.range(..=bound);
        within.map(|(_, batch)| batch.infer.count).sum()
    };
    for bound in BOUNDS {
        writeln!(
            text,
            "{name}_bucket{{{labels},le=\"{bound}\"}} {}",
            runs(bound)
        )?;
    }
    let (all, sum) = (runs(usize::MAX), numbers.executed_rows);
    writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}")?;
    writeln!(
        text,
        "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {all}"
    )
}

/// A label's value as the format wants it: a model is called what its folder is, which may be anything.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Spans;

    fn shown(name: &str, cached: bool) -> Shown {
        let mut numbers = Statistics::default();
        numbers.succeeded(1, Seconds(0.002));
        numbers.failed(Reason::Canceled, Seconds(0.0));
        for rows in [1, 3, 300] {
            numbers.executed(rows, Spans::default());
        }
        Shown {
            name: ModelName::new(name),
            version: 2,
            numbers,
            pending: 4,
            load: Seconds(0.25),
            devices: vec![(Device::Cpu, true), (Device::Cuda, false)],
            cached,
        }
    }

    fn machine() -> Machine {
        Machine {
            busy: Some(0.25),
            memory: Some(1 << 30),
            used: None,
        }
    }

    #[test]
    fn the_format_is_prometheus_and_the_names_are_tritons() {
        let text = exposition(&[shown("m", false)], &machine());
        for line in [
            "# TYPE nv_inference_request_success counter",
            "nv_inference_request_success{model=\"m\",version=\"2\"} 1",
            "nv_inference_request_failure{model=\"m\",version=\"2\",reason=\"CANCELED\"} 1",
            "nv_inference_request_failure{model=\"m\",version=\"2\",reason=\"BACKEND\"} 0",
            "nv_inference_request_duration_us{model=\"m\",version=\"2\"} 2000",
            "nv_inference_exec_count{model=\"m\",version=\"2\"} 3",
            "nv_inference_pending_request_count{model=\"m\",version=\"2\"} 4",
            "nv_model_load_duration_secs{model=\"m\",version=\"2\"} 0.25",
            "forebay_worker_batch_rows_bucket{model=\"m\",version=\"2\",le=\"1\"} 1",
            "forebay_worker_batch_rows_bucket{model=\"m\",version=\"2\",le=\"4\"} 2",
            "forebay_worker_batch_rows_bucket{model=\"m\",version=\"2\",le=\"256\"} 2",
            "forebay_worker_batch_rows_bucket{model=\"m\",version=\"2\",le=\"+Inf\"} 3",
            "forebay_worker_batch_rows_sum{model=\"m\",version=\"2\"} 304",
            "forebay_worker_batch_rows_count{model=\"m\",version=\"2\"} 3",
            "nv_cpu_utilization 0.25",
            "nv_cpu_memory_total_bytes 1073741824",
            "forebay_worker_device{model=\"m\",version=\"2\",device=\"cpu\",fallback=\"true\"} 1",
            "forebay_worker_device{model=\"m\",version=\"2\",device=\"cuda\",fallback=\"false\"} 1",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line} is missing in {text}"
            );
        }
    }

    #[test]
    fn a_family_is_told_once_and_the_cache_only_where_there_is_one() {
        let text = exposition(&[shown("a", false), shown("b", true)], &machine());
        for metric in &METRICS {
            let head = format!("# TYPE {} ", metric.name);
            assert_eq!(text.matches(&head).count(), 1, "{head}");
        }
        assert!(
            !text.contains("\nnv_cpu_memory_used_bytes"),
            "it is not known"
        );
        assert!(!text.contains("nv_cache_num_hits_per_model{model=\"a\""));
        assert!(text.contains("nv_cache_num_hits_per_model{model=\"b\",version=\"2\"} 0"));
    }

    #[test]
    fn a_name_can_not_break_out_of_its_label() {
        let text = exposition(&[shown("a\"} 1\nb\\", false)], &machine());
        assert!(
            text.contains("{model=\"a\\\"} 1\\nb\\\\\",version=\"2\"}"),
            "{text}"
        );
    }
}
