//! `forebay-worker bench`: what is measured is `bench.rs`'s, how it is asked for and shown is here.

use std::io::{IsTerminal, Write};

use clap::Args;
use serde_json::json;

use super::{ModelArgs, complain};
use crate::bench::report::Report;
use crate::bench::{News, Options, run};
use crate::log::Log;
use crate::serve::Stop;
use crate::units::Seconds;

/// The most requests in flight, and the most rows of one.
const MOST: usize = 4096;

/// The flags, in perf_analyzer's words.
#[derive(Args)]
pub struct BenchArgs {
    /// The model to measure [default: each of the folder]
    model: Option<String>,
    #[command(flatten)]
    models: ModelArgs,
    /// Rows of a request; several, with commas between, are measured one after the other
    #[arg(short, long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = span)]
    batch_size: Vec<Span>,
    /// Requests in flight: numbers, with commas between, or START:END or START:END:STEP
    #[arg(long, value_name = "RANGE", default_value = "1,8,32", value_delimiter = ',', value_parser = span)]
    concurrency_range: Vec<Span>,
    /// Sizes of an input that takes any, without the rows; may be repeated
    #[arg(long, value_name = "NAME:SIZE,SIZE", value_parser = shape)]
    shape: Vec<(String, Vec<usize>)>,
    /// Milliseconds that each is measured, in three rounds
    #[arg(short = 'p', long, value_name = "MS", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    measurement_interval: u32,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Numbers between two ends.
#[derive(Clone, Debug, PartialEq)]
struct Span(Vec<usize>);

fn span(text: &str) -> Result<Span, String> {
    let numbers: Result<Vec<usize>, _> = text.split(':').map(str::parse).collect();
    let (start, end, step) = match numbers.as_deref() {
        Ok([only]) => (*only, *only, 1),
        Ok([start, end]) => (*start, *end, 1),
        Ok([start, end, step]) => (*start, *end, *step),
        _ => (0, 0, 0),
    };
    if start == 0 || step == 0 || !(start..=MOST).contains(&end) {
        return Err(format!(
            "expected a number from 1 to {MOST}, or START:END, or START:END:STEP"
        ));
    }
    Ok(Span((start..=end).step_by(step).collect()))
}

fn shape(text: &str) -> Result<(String, Vec<usize>), &'static str> {
    // The name of an input may hold a colon; sizes don't.
    let (name, sizes) = text.rsplit_once(':').unwrap_or_default();
    let sizes: Result<Vec<usize>, _> = sizes.split(',').map(str::parse).collect();
    match sizes {
        Ok(sizes) if !name.is_empty() => Ok((name.to_owned(), sizes)),
        _ => Err("expected NAME:SIZE or NAME:SIZE,SIZE…"),
    }
}

fn numbers(spans: Vec<Span>) -> Vec<usize> {
    spans.into_iter().flat_map(|span| span.0).collect()
}

impl BenchArgs {
    /// Measures and shows.
    pub fn run(self, log: Log) -> Result<(), Stop> {
        let options = Options {
            model: self.model,
            batches: numbers(self.batch_size),
            concurrencies: numbers(self.concurrency_range),
            sizes: self.shape.into_iter().collect(),
            interval: Seconds(f64::from(self.measurement_interval) / 1e3),
        };
        let mut show = Show {
            json: self.json,
            reports: Vec::new(),
            failed: 0,
        };
        run(&options, &self.models.settings(), log, &mut |news| {
            show.tell(news)
        })?;
        show.end()
    }
}

/// What goes to the person who asked.
struct Show {
    json: bool,
    /// Of the models that were measured, where they are shown together.
    reports: Vec<Report>,
    failed: usize,
}

impl Show {
    fn tell(&mut self, news: News<'_>) {
        match news {
            News::Round(model, round, rounds) => {
                progress(&format!("{model}: round {round} of {rounds}"))
            }
            News::Passed(model, why) => {
                progress("");
                complain(&format!("model {model} is passed over: {why}"));
            }
            News::Done(model, Err(problem)) => {
                progress("");
                self.failed += 1;
                complain(&format!("model {model}: {problem}"));
            }
            News::Done(_, Ok(report)) if self.json => self.reports.push(report),
            News::Done(_, Ok(report)) => {
                progress("");
                print(&report.to_string());
            }
        }
    }

    fn end(self) -> Result<(), Stop> {
        if self.json {
            progress("");
            print(&format!("{:#}", json!({"models": self.reports})));
        }
        match self.failed {
            0 => Ok(()),
            1 => Err(Stop::failed("one model could not be measured")),
            failed => Err(Stop::failed(format!(
                "{failed} models could not be measured"
            ))),
        }
    }
}

/// A line on a terminal that the next one takes the place of; nothing elsewhere.
#[expect(
    clippy::print_stderr,
    reason = "the command line speaks to the person who typed it"
)]
fn progress(words: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{words}");
    }
}

/// Nothing is left to do if nobody reads it.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_for_perf_analyzer() {
        assert_eq!(span("8"), Ok(Span(vec![8])));
        assert_eq!(span("1:4"), Ok(Span(vec![1, 2, 3, 4])));
        assert_eq!(span("2:9:3"), Ok(Span(vec![2, 5, 8])));
        for odd in ["", "0", "4:1", "1:4:0", "1:2:3:4", "x", "1:99999"] {
            assert!(span(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn a_shape_has_a_name_and_sizes() {
        assert_eq!(shape("ids:32"), Ok(("ids".to_owned(), vec![32])));
        assert_eq!(shape("a:b:3,224"), Ok(("a:b".to_owned(), vec![3, 224])));
        for odd in ["ids", ":3", "ids:", "ids:x"] {
            assert!(shape(odd).is_err(), "{odd:?}");
        }
    }
}
