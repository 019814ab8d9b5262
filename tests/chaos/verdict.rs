//! What has to hold whatever happened, and the table that says whether it did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use forebay::units::Seconds;
use serde_json::Value;

use crate::harm::Harm;
use crate::plan::{Question, WORKERS};
use crate::storm::{Sample, Seen};
use crate::support::load::Ended;
use crate::talkers::{End, Talked};

/// Open files of a process that nobody asks any more: its own, and connections to workers that it keeps.
const FILES_AT_REST: f64 = 128.0;
/// What memory may grow by, in MiB, within the second half of the last process's life.
const GROWTH: f64 = 24.0;
/// How long a process that handed over has connections that it accepted before.
const LEAVE: Seconds = Seconds(1.0);
/// Breaches that are printed of each kind.
const SHOWN: usize = 5;

/// Something that has to hold, and where it did not.
pub struct Invariant {
    /// What holds.
    pub holds: &'static str,
    /// Where it did not.
    pub broken: Vec<String>,
}

/// What was seen, judged.
pub struct Verdict {
    /// Each invariant.
    pub invariants: Vec<Invariant>,
    /// How many failed of which kind, by what accounts for it.
    failures: BTreeMap<(String, &'static str), usize>,
}

/// Judges.
pub fn judge(seen: &Seen) -> Verdict {
    let asked = |breach: &dyn Fn(&Question, &Ended) -> bool| {
        let broken = seen
            .asked
            .iter()
            .filter(|(question, ended)| breach(question, ended));
        broken
            .map(|(question, ended)| shown(question, ended))
            .collect()
    };
    let (failures, unaccounted) = accounts(seen);
    let files = seen.samples.last().map(|last| last.files);
    let many = files.filter(|files| *files > FILES_AT_REST);
    let grown = Some(growth(last_half(seen))).filter(|grown| *grown > GROWTH);
    let invariants = [
        ("nobody gets another's answer", asked(&is_anothers)),
        ("no cut answer looks whole", asked(&looks_whole)),
        ("a stream that breaks says so", asked(&breaks_silently)),
        ("every failure has a cause", unaccounted),
        ("every talk ends as it should", talked_badly(seen)),
        ("every request is logged once", logged_once(seen)),
        ("counters are back at zero", seen.left_over.clone()),
        ("no process panics", mistakes(seen)),
        ("every process ends with 0", bad_exits(seen)),
        (
            "files are closed",
            many.map(|files| format!("{files} are open at rest"))
                .into_iter()
                .collect(),
        ),
        (
            "memory is given back",
            grown
                .map(|grown| format!("{grown:.1} MiB more"))
                .into_iter()
                .collect(),
        ),
    ];
    let invariant = |(holds, broken)| Invariant { holds, broken };
    Verdict {
        invariants: invariants.map(invariant).into(),
        failures,
    }
}

fn shown(question: &Question, ended: &Ended) -> String {
    let end: String = ended.said.chars().rev().take(120).collect();
    let end: String = end.chars().rev().collect();
    format!(
        "{} {} at {:.3} for {:.3} s by `{}`: {} `{}` complete: {}, … {end:?}",
        question.path,
        ended.number,
        ended.sent.0,
        ended.took.0,
        ended.worker,
        ended.status,
        ended.reason,
        ended.complete
    )
}

/// Whether a word of another's stands in an answer.
fn is_anothers(_: &Question, ended: &Ended) -> bool {
    let own = Question::word(ended.number);
    let mut words = ended.said.match_indices("asker-");
    words.any(|(at, _)| {
        let here = &ended.said[at..];
        !here.starts_with(&own) && here.contains('.')
    })
}

/// Whether an answer passes for good and is not.
fn looks_whole(question: &Question, ended: &Ended) -> bool {
    let words = ended.said.matches(&Question::word(ended.number)).count();
    let whole = words == question.repeats && ended.said.ends_with(question.tail);
    let has_end = question.is_streamed() && ended.said.ends_with(question.tail);
    (ended.is_good() || has_end) && !whole
}

/// Whether a stream of events broke and did not say so.
fn breaks_silently(question: &Question, ended: &Ended) -> bool {
    let begun = ended.said.contains("data: ");
    let broke = ended.status == 200 && !ended.complete && begun;
    broke && question.is_streamed() && !ended.said.contains("event: error")
}

/// Failures by their kind and what accounts for them, and those that nothing accounts for.
fn accounts(seen: &Seen) -> (BTreeMap<(String, &'static str), usize>, Vec<String>) {
    let logged: HashMap<_, _> = seen
        .log
        .iter()
        .map(|line| (text(line, "id"), line))
        .collect();
    let mut accounts = BTreeMap::new();
    let mut unaccounted = Vec::new();
    for (question, ended) in &seen.asked {
        let line = logged.get(ended.id.as_str());
        // A question that nobody read was asked again.
        let unread = ended.status == 0 && !ended.id.is_empty() && line.is_none();
        if ended.is_good() || unread {
            continue;
        }
        let worker = line.map_or("", |line| text(line, "worker"));
        let cause = cause(seen, worker, question, ended);
        let name = cause.map_or("nothing", Harm::name);
        *accounts.entry((kind(ended), name)).or_default() += 1;
        if cause.is_none() {
            let line = line.map(ToString::to_string).unwrap_or_default();
            unaccounted.push(format!("{}\n    {line}", shown(question, ended)));
        }
    }
    (accounts, unaccounted)
}

/// What befell this worker while the question was under way and accounts for what became of it.
fn cause(seen: &Seen, worker: &str, question: &Question, ended: &Ended) -> Option<Harm> {
    let place = WORKERS.iter().position(|name| *name == worker)?;
    let meanwhile = seen.harmed.iter().filter(|harmed| {
        let during = harmed.from <= ended.sent + ended.took && harmed.until >= ended.sent;
        harmed.worker == place && during
    });
    let mut causes = meanwhile.map(|harmed| harmed.harm);
    causes.find(|harm| harm.accounts_for(ended, question))
}

/// How a request failed, in a word.
fn kind(ended: &Ended) -> String {
    match (ended.status, ended.reason.as_str()) {
        (0, _) => "no answer".to_owned(),
        (200, _) => "broken off".to_owned(),
        (status, "") => format!("{status} of the worker"),
        (status, reason) => format!("{status} {reason}"),
    }
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_default()
}

/// Talks that ended otherwise than they should. A process that has handed over takes leave of those that it still has.
fn talked_badly(seen: &Seen) -> Vec<String> {
    let swapped = |talked: &Talked| {
        let mut swaps = seen.swaps.iter();
        swaps.any(|(from, until)| talked.over >= *from && talked.began <= *until + LEAVE)
    };
    let badly = seen.talked.iter().filter(|talked| match talked.end {
        End::Well | End::Unread => false,
        End::Stopped => !swapped(talked),
        End::Badly(_) => true,
    });
    badly.map(|talked| format!("{talked:?}")).collect()
}

/// Each request that was answered, or whose client left, has one line; no line has a request that nobody sent.
fn logged_once(seen: &Seen) -> Vec<String> {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for line in &seen.log {
        *lines.entry(text(line, "id")).or_default() += 1;
    }
    let answered = seen.asked.iter().filter(|(_, ended)| ended.status != 0);
    let answered = answered.map(|(_, ended)| &ended.id);
    // A talk that its client takes for unread, and so for one to be begun again, must be: it has no line.
    let talked = seen.talked.iter();
    let talked = talked.filter(|talked| talked.end != End::Unread);
    let answered = answered.chain(talked.map(|talked| &talked.id));
    let read: BTreeSet<&str> = answered.chain(&seen.left).map(String::as_str).collect();
    let missing = read.iter().filter(|id| !lines.contains_key(**id));
    let missing = missing.map(|id| format!("{id} has no line"));
    let doubled = lines.iter().filter(|(_, count)| **count > 1);
    let doubled = doubled.map(|(id, count)| format!("{id} has {count} lines"));
    let unknown = lines.keys().filter(|id| !read.contains(**id));
    let unknown = unknown.map(|id| format!("nobody knows of {id}"));
    missing.chain(doubled).chain(unknown).collect()
}

/// Lines that tell of a panic.
fn mistakes(seen: &Seen) -> Vec<String> {
    let lines = seen.stderr.iter().flat_map(|text| text.lines());
    let told = ["a mistake of ours", "panicked"];
    let mistakes = lines.filter(|line| told.iter().any(|word| line.contains(word)));
    mistakes.map(str::to_owned).collect()
}

fn bad_exits(seen: &Seen) -> Vec<String> {
    let exits = seen.exits.iter().filter(|code| **code != Some(0));
    exits.map(|code| format!("{code:?}")).collect()
}

/// The second half of the last process's samples.
fn last_half(seen: &Seen) -> &[Sample] {
    let pid = seen.samples.last().map(|last| last.pid);
    let begins = seen
        .samples
        .iter()
        .position(|sample| Some(sample.pid) == pid);
    let life = &seen.samples[begins.unwrap_or_default()..];
    &life[life.len() / 2..]
}

/// How much memory grew from the first to the last tenth of these.
fn growth(samples: &[Sample]) -> f64 {
    let tenth = samples.len().div_ceil(10);
    let mean = |part: &[Sample]| {
        part.iter().map(|sample| sample.resident).sum::<f64>() / part.len().max(1) as f64
    };
    mean(&samples[samples.len() - tenth..]) - mean(&samples[..tenth])
}

/// By how much something grows an hour, by least squares.
fn slope(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let count = samples.len().max(1) as f64;
    let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (at, value) = (mean(&|sample| sample.at.0), mean(&of));
    let along = |sample: &Sample| sample.at.0 - at;
    let covariance: f64 = samples
        .iter()
        .map(|one| along(one) * (of(one) - value))
        .sum();
    let variance: f64 = samples.iter().map(|one| along(one).powi(2)).sum();
    3600.0 * covariance / variance.max(f64::MIN_POSITIVE)
}

impl Verdict {
    /// Whether all holds.
    pub fn holds(&self) -> bool {
        self.invariants.iter().all(|one| one.broken.is_empty())
    }

    /// The table.
    pub fn table(&self, seen: &Seen) -> String {
        let mut table = String::new();
        let mut row = |text: String| writeln!(table, "{text}").unwrap();
        for (what, count) in &seen.done {
            row(format!("{what:<40}{count:>10}"));
        }
        let good = seen
            .asked
            .iter()
            .filter(|(_, ended)| ended.is_good())
            .count();
        let (asked, left) = (seen.asked.len(), seen.left.len());
        let talks = |kind: &str| {
            let mut talks = (0, 0, 0);
            for talked in seen.talked.iter().filter(|one| one.id.starts_with(kind)) {
                talks.0 += 1;
                talks.1 += usize::from(talked.end == End::Stopped);
                talks.2 += usize::from(talked.end == End::Unread);
            }
            talks
        };
        for (kind, name) in [("ws", "WebSockets"), ("grpc", "gRPC calls")] {
            let (all, stopped, unread) = talks(kind);
            row(format!("{name:<40}{all:>10}"));
            row(format!(
                "{:<40}{stopped:>10}",
                "  ended by a swap, and told so"
            ));
            row(format!(
                "{:<40}{unread:>10}",
                "  not read, to be asked again"
            ));
        }
        row(format!("\n{:<40}{:>10}", "requests", asked + left));
        row(format!("{:<40}{good:>10}", "  answered whole"));
        row(format!("{:<40}{left:>10}", "  whose client left"));
        for ((kind, cause), count) in &self.failures {
            row(format!("{:<40}{count:>10}", format!("  {kind} ← {cause}")));
        }
        let half = last_half(seen);
        let [memory, files] = [
            slope(half, |sample| sample.resident),
            slope(half, |sample| sample.files),
        ];
        let last = half.last().unwrap();
        let span = last.at.0 - half[0].at.0;
        row(format!("\nof the last process, over {span:.0} s:"));
        row(format!(
            "{:<40}{:>10.1} MiB, {memory:+.1} an hour",
            "  memory", last.resident
        ));
        row(format!(
            "{:<40}{:>10} at rest, {files:+.0} an hour",
            "  open files", last.files
        ));
        row(String::new());
        for Invariant { holds, broken } in &self.invariants {
            let verdict = if broken.is_empty() { "holds" } else { "BROKEN" };
            row(format!("{holds:<40}{verdict:>10}"));
            for breach in broken.iter().take(SHOWN) {
                row(format!("  {breach}"));
            }
            if broken.len() > SHOWN {
                row(format!("  and {} more", broken.len() - SHOWN));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay::units::Seconds;
    use serde_json::json;

    use super::*;
    use crate::harm::Harm;
    use crate::storm::Harmed;
    use crate::support::prompt::{CHAT, stream};

    /// One stream, well answered by `a`, which hung meanwhile.
    fn calm() -> Seen {
        let question = Question {
            path: CHAT,
            body: stream("asker-7.", 1),
            repeats: 1,
            tail: "data: [DONE]\n\n",
        };
        let ended = Ended {
            number: 7,
            id: "x".to_owned(),
            status: 200,
            reason: String::new(),
            complete: true,
            said: "data: asker-7.\n\ndata: [DONE]\n\n".to_owned(),
            worker: "a".to_owned(),
            sent: Seconds(1.0),
            took: Seconds(1.0),
        };
        let sample = Sample {
            at: Seconds(2.0),
            pid: 1,
            resident: 30.0,
            files: 30.0,
        };
        Seen {
            asked: vec![(question, ended)],
            left: vec!["y".to_owned()],
            talked: vec![talked(End::Well)],
            swaps: vec![(Seconds(1.0), Seconds(1.1))],
            harmed: vec![hung(1.5, 1.6)],
            done: BTreeMap::new(),
            log: vec![
                json!({"id": "x", "worker": "a"}),
                json!({"id": "y"}),
                json!({"id": "t"}),
            ],
            stderr: vec!["ready".to_owned()],
            exits: vec![Some(0)],
            left_over: Vec::new(),
            samples: vec![sample; 20],
        }
    }

    fn talked(end: End) -> Talked {
        Talked {
            id: "t".to_owned(),
            end,
            began: Seconds(0.9),
            over: Seconds(1.9),
        }
    }

    fn hung(from: f64, until: f64) -> Harmed {
        Harmed {
            worker: 0,
            harm: Harm::Hang,
            from: Seconds(from),
            until: Seconds(until),
        }
    }

    /// A client is told that its worker did not answer in time.
    fn times_out(seen: &mut Seen) {
        let ended = &mut seen.asked[0].1;
        (ended.status, ended.reason) = (504, "first_byte_timeout".to_owned());
        ended.said.clear();
    }

    /// What is broken once this has happened.
    #[track_caller]
    fn breaks(holds: &str, change: impl FnOnce(&mut Seen)) {
        let mut seen = calm();
        change(&mut seen);
        let broken = judge(&seen).invariants.into_iter();
        let broken = broken.filter(|one| !one.broken.is_empty());
        let broken: Vec<_> = broken.map(|one| one.holds).collect();
        assert_eq!(broken, [holds]);
    }

    #[test]
    fn what_is_accounted_for_breaks_nothing() {
        assert!(judge(&calm()).holds());
        let mut seen = calm();
        times_out(&mut seen);
        assert!(judge(&seen).holds());
        seen.talked = vec![talked(End::Stopped)];
        assert!(judge(&seen).holds());
    }

    /// Negative controls: each invariant alone is broken by what it is there for.
    #[test]
    fn each_invariant_can_be_broken() {
        breaks("nobody gets another's answer", |seen| {
            seen.asked[0].1.said.insert_str(0, "data: asker-77.\n\n");
        });
        for lost in ["data: [DONE]\n\n", "asker-7."] {
            breaks("no cut answer looks whole", |seen| {
                let ended = &mut seen.asked[0].1;
                ended.said = ended.said.replace(lost, "");
            });
        }
        breaks("a stream that breaks says so", |seen| {
            let ended = &mut seen.asked[0].1;
            (ended.complete, ended.said) = (false, "data: asker-7.\n\n".to_owned());
            seen.harmed[0].harm = Harm::Stall;
        });
        breaks("every failure has a cause", |seen| {
            times_out(seen);
            seen.harmed = vec![hung(0.0, 0.9), hung(2.1, 3.0)];
        });
        breaks("every failure has a cause", |seen| {
            times_out(seen);
            seen.harmed[0].harm = Harm::Kill;
        });
        breaks("every failure has a cause", |seen| {
            times_out(seen);
            seen.log[0]["worker"] = json!("b");
        });
        breaks("every talk ends as it should", |seen| {
            seen.talked = vec![talked(End::Badly("it was cut".to_owned()))];
        });
        breaks("every talk ends as it should", |seen| {
            seen.talked = vec![talked(End::Stopped)];
            seen.swaps = vec![(Seconds(2.0), Seconds(2.1))];
        });
        breaks("every request is logged once", |seen| drop(seen.log.pop()));
        breaks("every request is logged once", |seen| {
            seen.log.push(seen.log[0].clone())
        });
        breaks("every request is logged once", |seen| drop(seen.left.pop()));
        breaks("counters are back at zero", |seen| {
            seen.left_over.push("forebay_inflight is 1".to_owned());
        });
        breaks("no process panics", |seen| {
            seen.stderr
                .push("a mistake of ours at src/line.rs:1:1".to_owned());
        });
        breaks("every process ends with 0", |seen| seen.exits.push(None));
        breaks("files are closed", |seen| seen.samples[19].files = 1_000.0);
        breaks("memory is given back", |seen| {
            seen.samples[18..]
                .iter_mut()
                .for_each(|one| one.resident = 90.0);
        });
    }
}
