//! What is told of a request that is over: to whoever asks why it went where it went, and to the log.

use std::sync::Arc;

use http::StatusCode;

use super::Exchange;
use crate::clock;
use crate::fault::Kind;
use crate::observe::access_line::AccessLine;
use crate::observe::decisions::Decision;
use crate::observe::names::RouteName;
use crate::units::{ModelName, Seconds};

impl Exchange {
    /// Attempts that were under way when the client left have ended with that.
    pub(super) fn cut_short(&mut self, now: Seconds) {
        let Exchange { made, observe, .. } = self;
        let gone = Kind::ClientGone.label();
        for worker in made.cut_short(gone, now) {
            if let Some(name) = observe.worker_name(worker) {
                observe.metrics.attempts.count([&name, gone]);
            }
        }
    }

    /// What is kept of it when it is over. Its id is copied: it may be a part of all that the client sent.
    pub(super) fn decision(
        &mut self,
        status: StatusCode,
        reason: &'static str,
        total: Seconds,
    ) -> Decision {
        Decision {
            id: self.id.to_str().unwrap_or_default().into(),
            arrived: self.arrived,
            route: self.route.take(),
            tenant: Arc::clone(self.series.tenant()),
            model: self.model.take(),
            worker: self.worker,
            status,
            reason,
            attempts: self.attempts,
            queue: self.times.queue,
            choosing: self.times.route,
            body: self.times.body,
            first_byte: self.first_byte_after(),
            total,
            choices: std::mem::take(&mut self.made).into_choices(),
        }
    }

    /// Its line of the access log.
    pub(super) fn log(&self, status: StatusCode, reason: &str, total: Seconds) {
        let worker = self.worker.and_then(|id| self.observe.worker_name(id));
        let line = AccessLine {
            time: &clock::rfc3339(self.arrived),
            id: self.id.to_str().unwrap_or_default(),
            kind: self.kind,
            tenant: self.series.tenant(),
            route: self.route.as_ref().map(RouteName::as_str),
            method: self.method.as_str(),
            path: &self.path,
            model: self.model.as_ref().map(ModelName::as_str),
            worker: worker.as_deref(),
            attempts: self.attempts,
            status: status.as_u16(),
            reason,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            prompt_tokens: self.usage.prompt,
            cached_tokens: self.usage.cached,
            output_tokens: self.usage.output,
            queue: self.times.queue,
            route_time: self.times.route,
            first_byte: self.first_byte_after(),
            total,
            prefix: &self.prefix,
        };
        self.observe.log.append(&line.render());
    }
}
