//! The series that most requests feed, looked up once and kept.
//!
//! `prometheus` finds a series by hashing all its label values, and a good answer feeds half a dozen of them. Nearly all
//! answers feed the same ones, so those of a model are kept beside its name and those of a good answer beside its route.
//! Every other end is rare; it is looked up by its labels when it comes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use prometheus::{Counter, Histogram, IntCounter};

use super::kinds::{Amounts, Counters, Histograms};
use super::names::{NONE, OTHER, RouteName};
use crate::units::{ModelName, Money, Seconds};

/// The most models with series of their own: what workers report may change without end, and a label stays.
const MOST_MODELS: usize = 1_000;

/// The series of one tenant's requests: of all models that are configured or were asked for while a worker had them, of
/// all others, and of requests without one.
#[derive(Debug)]
pub struct Models {
    tenant: Arc<str>,
    known: RwLock<BTreeMap<ModelName, Arc<ModelSeries>>>,
    other: Arc<ModelSeries>,
    none: Arc<ModelSeries>,
}

/// What a tenant's requests for one model feed.
#[derive(Debug)]
pub(super) struct ModelSeries {
    label: ModelName,
    tenant: Arc<str>,
    pub(super) first_token: Histogram,
    pub(super) inter_token: Histogram,
    prompt: IntCounter,
    cached: IntCounter,
    output: IntCounter,
    /// Of the one currency that there is.
    cost: OnceLock<Counter>,
    /// By route: as many as the configuration has.
    good: RwLock<Vec<(RouteName, Arc<EndSeries>)>>,
}

/// Tokens as the worker reported them, and as they were seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub prompt: Option<u64>,
    pub cached: Option<u64>,
    pub output: Option<u64>,
    /// As many as passed one by one, whatever is reported.
    pub passed: u64,
}

/// What requests feed that end alike.
#[derive(Debug)]
pub(super) struct EndSeries {
    requests: IntCounter,
    duration: Histogram,
    first_byte: Histogram,
}

/// The families that all of these come from.
#[derive(Clone, Debug)]
pub(super) struct Families {
    pub(super) requests: Counters<5>,
    pub(super) duration: Histograms<1>,
    pub(super) first_byte: Histograms<1>,
    pub(super) first_token: Histograms<1>,
    pub(super) inter_token: Histograms<1>,
    pub(super) tokens: Counters<3>,
    pub(super) cost: Amounts<3>,
}

impl Models {
    /// Those of a tenant, with these models from the beginning.
    pub(super) fn new(
        tenant: &Arc<str>,
        names: &[ModelName],
        families: &Families,
    ) -> io::Result<Self> {
        let series = |name: &ModelName| families.model(name, tenant).map(Arc::new);
        let known = names
            .iter()
            .map(|name| Ok((name.clone(), series(name)?)))
            .collect::<io::Result<_>>()?;
        Ok(Models {
            tenant: Arc::clone(tenant),
            known: RwLock::new(known),
            other: series(&ModelName::new(OTHER))?,
            none: series(&ModelName::new(NONE))?,
        })
    }

    /// The series of what a client said: under its own name only if that is a model's.
    pub(super) fn of(
        &self,
        said: &ModelName,
        known: bool,
        families: &Families,
    ) -> Arc<ModelSeries> {
        if !known {
            return Arc::clone(&self.other);
        }
        if let Some(series) = self.known.read().get(said) {
            return Arc::clone(series);
        }
        let mut models = self.known.write();
        if models.len() >= MOST_MODELS {
            return Arc::clone(&self.other);
        }
        let Ok(fresh) = families.model(said, &self.tenant) else {
            return Arc::clone(&self.other);
        };
        Arc::clone(
            models
                .entry(said.clone())
                .or_insert_with(|| Arc::new(fresh)),
        )
    }

    /// The series of requests that name no model.
    pub(super) fn none(&self) -> &Arc<ModelSeries> {
        &self.none
    }
}

impl ModelSeries {
    /// The model and the tenant, as labels.
    pub(super) fn labels(&self) -> (&str, &str) {
        (self.label.as_str(), &self.tenant)
    }

    /// Whose requests these are.
    pub(super) fn tenant(&self) -> &Arc<str> {
        &self.tenant
    }

    /// The series of good answers on a route.
    pub(super) fn good(
        &self,
        route: &RouteName,
        families: &Families,
    ) -> io::Result<Arc<EndSeries>> {
        let known = self.good.read();
        if let Some((_, series)) = known.iter().find(|(known, _)| known == route) {
            return Ok(Arc::clone(series));
        }
        drop(known);
        let (model, tenant) = self.labels();
        let labels = [route.as_str(), model, tenant, "200", "ok"];
        let series = Arc::new(families.end(labels)?);
        // Two that come first at once leave two entries of the same series, which does no harm.
        self.good.write().push((route.clone(), Arc::clone(&series)));
        Ok(series)
    }

    /// Counts the tokens of one request.
    pub(super) fn count_tokens(&self, usage: Usage) {
        self.prompt.inc_by(usage.prompt.unwrap_or(0));
        self.cached.inc_by(usage.cached.unwrap_or(0));
        self.output.inc_by(usage.output.unwrap_or(0));
    }

    /// Counts what one request cost, if it cost money.
    #[expect(clippy::cast_precision_loss, reason = "a metric is a double")]
    pub(super) fn count_cost(&self, money: Option<Money>, families: &Families) {
        let Some(Money { nanos, currency }) = money else {
            return;
        };
        if self.cost.get().is_none() {
            let (model, tenant) = self.labels();
            let labels = [currency.to_string(), model.to_owned(), tenant.to_owned()];
            if let Ok(series) = families.cost.series(labels.each_ref().map(String::as_str)) {
                // Of two that come first at once one is kept: they are the same series.
                let _ = self.cost.set(series);
            }
        }
        if let Some(cost) = self.cost.get() {
            cost.inc_by(nanos as f64 / Money::NANOS as f64);
        }
    }
}

impl Usage {
    /// Takes over what is reported now; what is not stays as it was.
    pub(super) fn update(&mut self, prompt: Option<u64>, cached: Option<u64>, output: Option<u64>) {
        self.prompt = prompt.or(self.prompt);
        self.cached = cached.or(self.cached);
        self.output = output.or(self.output);
    }
}

impl EndSeries {
    /// Counts one request that took so long.
    pub(super) fn count(&self, total: Seconds, first_byte: Option<Seconds>) {
        self.requests.inc();
        self.duration.observe(total.0);
        if let Some(first_byte) = first_byte {
            self.first_byte.observe(first_byte.0);
        }
    }
}

impl Families {
    /// The series with these labels of `forebay_requests_total`, and those of its route.
    pub(super) fn end(&self, labels: [&str; 5]) -> io::Result<EndSeries> {
        let [route, ..] = labels;
        Ok(EndSeries {
            requests: self.requests.series(labels)?,
            duration: self.duration.series([route])?,
            first_byte: self.first_byte.series([route])?,
        })
    }

    fn model(&self, name: &ModelName, tenant: &Arc<str>) -> io::Result<ModelSeries> {
        let label = name.as_str();
        let tokens = |kind| self.tokens.series([label, tenant, kind]);
        Ok(ModelSeries {
            label: name.clone(),
            tenant: Arc::clone(tenant),
            first_token: self.first_token.series([label])?,
            inter_token: self.inter_token.series([label])?,
            prompt: tokens("prompt")?,
            cached: tokens("cached")?,
            output: tokens("output")?,
            cost: OnceLock::new(),
            good: RwLock::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Metrics;
    use super::*;

    #[test]
    fn a_good_answer_is_looked_up_once_and_feeds_what_its_labels_name() {
        let metrics = Metrics::new(&[ModelName::new("chat")]).unwrap();
        let (models, families) = (&metrics.models, &metrics.families);
        let chat = &models.of(&ModelName::new("chat"), true, families);
        let good = |series: &ModelSeries, route: &'static str| {
            let found = series.good(&route.into(), families).unwrap();
            found.count(Seconds(2.0), Some(Seconds(0.5)));
            found
        };
        let first = good(chat, "/a");
        assert!(Arc::ptr_eq(&first, &good(chat, "/a")));
        assert!(!Arc::ptr_eq(&first, &good(chat, "/b")));
        assert!(!Arc::ptr_eq(&first, &good(models.none(), "/a")));
        let by_labels = families.end(["/a", "chat", NONE, "200", "ok"]).unwrap();
        by_labels.count(Seconds(2.0), None);

        let text = metrics.render();
        let requests = |model: &str, route: &str, count: u32| {
            let labels = format!("model=\"{model}\",reason=\"ok\",route=\"{route}\",tenant=\"-\"");
            let line = format!("forebay_requests_total{{code=\"200\",{labels}}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        };
        requests("chat", "/a", 3);
        requests("chat", "/b", 1);
        requests("-", "/a", 1);
        let app = metrics.of_tenant(&Arc::from("app")).unwrap();
        let own = &app.of(&ModelName::new("chat"), true, families);
        assert!(!Arc::ptr_eq(&first, &good(own, "/a")));
        assert!(Arc::ptr_eq(&good(own, "/a"), &good(own, "/a")));
        let of_app = "model=\"chat\",reason=\"ok\",route=\"/a\",tenant=\"app\"} 3\n";
        assert!(metrics.render().contains(of_app));
        assert!(text.contains("forebay_request_duration_seconds_sum{route=\"/a\"} 8\n"));
        assert!(text.contains("forebay_time_to_first_byte_seconds_sum{route=\"/a\"} 1.5\n"));
    }
}
