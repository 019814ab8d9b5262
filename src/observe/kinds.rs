//! Families of metrics, each with as many label values as its type says: a wrong number does not compile.

use std::collections::HashMap;
use std::io;

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, CounterVec, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec,
};

/// Counters that differ in `N` label values.
#[derive(Clone, Debug)]
pub(super) struct Counters<const N: usize>(pub IntCounterVec);

impl<const N: usize> Counters<N> {
    /// Counts one more.
    pub(super) fn count(&self, labels: [&str; N]) {
        if let Ok(counter) = self.series(labels) {
            counter.inc();
        }
    }

    /// Shows what was counted elsewhere; never goes back.
    pub(super) fn raise(&self, labels: [&str; N], count: u64) {
        if let Ok(counter) = self.series(labels) {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// One of them.
    pub(super) fn series(&self, labels: [&str; N]) -> io::Result<IntCounter> {
        let found = self.0.get_metric_with_label_values(&labels);
        found.map_err(io::Error::other)
    }

    /// Takes away those that have such a value of this label.
    pub(super) fn forget(&self, label: &str, is_gone: impl Fn(&str) -> bool) {
        let families = self.0.collect();
        for series in families.iter().flat_map(MetricFamily::get_metric) {
            let pairs = series.get_label().iter();
            let labels: HashMap<_, _> = pairs.map(|pair| (pair.name(), pair.value())).collect();
            if labels.get(label).is_some_and(|value| is_gone(value)) {
                // One that was taken away meanwhile is not missed.
                drop(self.0.remove(&labels));
            }
        }
    }
}

/// Counters of what is no whole number, that differ in `N` label values.
#[derive(Clone, Debug)]
pub(super) struct Amounts<const N: usize>(pub CounterVec);

impl<const N: usize> Amounts<N> {
    /// One of them.
    pub(super) fn series(&self, labels: [&str; N]) -> io::Result<Counter> {
        let found = self.0.get_metric_with_label_values(&labels);
        found.map_err(io::Error::other)
    }
}

/// Gauges that differ in `N` label values.
#[derive(Clone, Debug)]
pub(super) struct Gauges<const N: usize>(pub GaugeVec);

impl<const N: usize> Gauges<N> {
    pub(super) fn set(&self, labels: [&str; N], value: f64) {
        if let Ok(gauge) = self.0.get_metric_with_label_values(&labels) {
            gauge.set(value);
        }
    }

    /// Takes all of them away.
    pub(super) fn clear(&self) {
        self.0.reset();
    }

    /// Sets it, or takes it away when nothing is known any more.
    pub(super) fn show(&self, labels: [&str; N], value: Option<f64>) {
        match value {
            Some(value) => self.set(labels, value),
            // One that was not there is not missed.
            None => drop(self.0.remove_label_values(&labels)),
        }
    }
}

/// Histograms of seconds that differ in `N` label values.
#[derive(Clone, Debug)]
pub(super) struct Histograms<const N: usize>(pub HistogramVec);

impl<const N: usize> Histograms<N> {
    /// One of them.
    pub(super) fn series(&self, labels: [&str; N]) -> io::Result<Histogram> {
        let found = self.0.get_metric_with_label_values(&labels);
        found.map_err(io::Error::other)
    }
}
