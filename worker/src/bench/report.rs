//! What was measured, as a table within 80 columns and as JSON.

use std::fmt;

use serde::Serialize;

use super::client::Seen;
use super::load::{Load, Way};
use crate::units::Seconds;

/// All that was measured of a model.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub model: String,
    /// The version that was measured.
    pub version: u64,
    /// How many inputs it takes.
    pub inputs: usize,
    /// What they hold together, for one row.
    pub elements_per_row: usize,
    /// How many of it run at once.
    pub instances: usize,
    /// The engine alone.
    pub raw: Vec<Alone>,
    /// Requests over HTTP.
    pub served: Vec<Served>,
}

/// The engine alone, run in one way.
#[derive(Debug, Serialize)]
pub struct Alone {
    /// Rows of a run.
    pub rows: usize,
    /// Instances that ran at once.
    pub instances: usize,
    /// How long a run took.
    pub run_s: f64,
    /// Rows that all of them answered in a second.
    pub rows_per_second: f64,
}

/// Requests under one load.
#[derive(Debug, Serialize)]
pub struct Served {
    /// Rows of a request.
    pub batch: usize,
    /// Requests in flight.
    pub concurrency: usize,
    /// Requests that were answered in a second.
    pub requests_per_second: f64,
    /// Rows that were.
    pub rows_per_second: f64,
    /// How long half of the requests took at most.
    pub p50_s: f64,
    /// How long 99 of 100 took at most.
    pub p99_s: f64,
    /// Of the limit: the rows that the engine alone gives, run in the best way that this load allows.
    pub of_raw: f64,
}

/// What the rounds of a load gave.
#[derive(Default)]
pub struct Rounds {
    rates: Vec<f64>,
    shares: Vec<f64>,
    latencies: Vec<Seconds>,
}

impl Rounds {
    /// One more round, and the rate that the engine alone had in it.
    pub fn add(&mut self, seen: Seen, limit: f64) {
        self.rates.push(seen.rate);
        self.shares.push(seen.rate / limit);
        self.latencies.extend(seen.latencies);
    }
}

/// A row of the engine alone, of the rates that its rounds had.
pub fn alone((way, rates): (&Way, &Vec<f64>)) -> Alone {
    let rate = quantile(rates.clone(), 0.5);
    Alone {
        rows: way.rows,
        instances: way.instances,
        run_s: (way.rows * way.instances) as f64 / rate,
        rows_per_second: rate,
    }
}

/// A row of requests.
pub fn served((load, rounds): (Load, Rounds)) -> Served {
    let rate = quantile(rounds.rates, 0.5);
    let latencies: Vec<f64> = rounds.latencies.iter().map(|latency| latency.0).collect();
    Served {
        batch: load.batch,
        concurrency: load.concurrency,
        requests_per_second: rate,
        rows_per_second: rate * load.batch as f64,
        p50_s: quantile(latencies.clone(), 0.5),
        p99_s: quantile(latencies, 0.99),
        of_raw: quantile(rounds.shares, 0.5),
    }
}

/// The least value that this share of all values is not above; 0 of none.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * share).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, version {}: inputs {}, elements of a row {}, instances {}",
            self.model, self.version, self.inputs, self.elements_per_row, self.instances
        )?;
        writeln!(f, "\nthe engine alone")?;
        line(f, ["rows", "instances", "ms", "rows/s"])?;
        for row in &self.raw {
            line(f, row.cells())?;
        }
        writeln!(
            f,
            "\nrequests over HTTP, and their rows as a share of the engine's alone"
        )?;
        line(
            f,
            [
                "batch",
                "concurrency",
                "requests/s",
                "rows/s",
                "p50 ms",
                "p99 ms",
                "of alone",
            ],
        )?;
        for row in &self.served {
            line(f, row.cells())?;
        }
        Ok(())
    }
}

impl Alone {
    fn cells(&self) -> [String; 4] {
        [
            self.rows.to_string(),
            self.instances.to_string(),
            figure(self.run_s * 1e3),
            figure(self.rows_per_second),
        ]
    }
}

impl Served {
    fn cells(&self) -> [String; 7] {
        [
            self.batch.to_string(),
            self.concurrency.to_string(),
            figure(self.requests_per_second),
            figure(self.rows_per_second),
            figure(self.p50_s * 1e3),
            figure(self.p99_s * 1e3),
            format!("{:.0} %", self.of_raw * 100.0),
        ]
    }
}

/// A line of a table; seven cells fit into 80 columns.
fn line<T: AsRef<str>, const N: usize>(f: &mut fmt::Formatter<'_>, cells: [T; N]) -> fmt::Result {
    for (place, cell) in cells.iter().enumerate() {
        let width = if place == 0 { 7 } else { 12 };
        write!(f, "{:>width$}", cell.as_ref())?;
    }
    writeln!(f)
}

/// A number in three digits, or as many as stand before its point.
fn figure(value: f64) -> String {
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(vec![4.0, 3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile((0..1000).map(f64::from).collect(), 0.99), 989.0);
        assert_eq!(quantile(vec![7.0], 0.99), 7.0);
    }

    #[test]
    fn figures_are_short() {
        let shown = [0.01234, 1.0, 9.999, 12.34, 99.99, 31415.9].map(figure);
        assert_eq!(shown, ["0.012", "1.00", "10.0", "12.3", "100", "31416"]);
    }

    #[test]
    fn shares_are_taken_within_a_round() {
        let mut rounds = Rounds::default();
        for (rate, limit) in [(90.0, 100.0), (40.0, 50.0), (70.0, 70.0)] {
            let latencies = vec![Seconds(1.0 / rate)];
            rounds.add(Seen { rate, latencies }, limit);
        }
        let load = Load {
            batch: 2,
            concurrency: 1,
        };
        let row = served((load, rounds));
        assert_eq!(
            (row.requests_per_second, row.rows_per_second),
            (70.0, 140.0)
        );
        assert_eq!(row.of_raw, 0.9, "the middle of 0.9, 0.8 and 1");
        assert_eq!(row.p99_s, 1.0 / 40.0);
    }
}
