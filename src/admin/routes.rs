//! Every path of the admin side, once: what it shows or changes, who may ask, and what the OpenAPI document says of it.
//!
//! A request is matched against this table and the document is written from it (`openapi.rs`), so that neither knows a
//! path that the other does not. A `{…}` stands for one name, percent-encoded; nothing else may stand there, so the
//! order of the rows does not matter.

use std::borrow::Cow;

use http::Method;

use super::changes::Verb;
use crate::facts::name_in_path;

/// One path.
pub(super) struct Route {
    /// With `{…}` where a name goes.
    pub path: &'static str,
    /// What is done there.
    pub view: View,
    /// Its name in generated clients.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub purpose: &'static str,
    /// What its query may wish.
    pub wishes: &'static [Wish],
    /// What it answers when all is well.
    pub shows: Shape,
    /// With what else it may answer, beside what holds for all that want the token.
    pub refusals: &'static [u16],
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Page,
    Health,
    Ready,
    Metrics,
    Events,
    Workers,
    Queue,
    Tenants,
    Config,
    LastReload,
    Reload,
    Log,
    Requests,
    Request,
    OpenApi,
    DryRun,
    Change(Verb),
    Add,
    Remove,
}

/// One key of a query.
pub(super) struct Wish {
    pub key: &'static str,
    pub kind: WishKind,
    pub purpose: &'static str,
}

/// What stands behind a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WishKind {
    /// Nothing: the key says it all.
    Flag,
    Text,
    /// A time, as in `1h`.
    Time,
    /// Where a request is sent.
    Path,
    /// From 1 to 1,000.
    Count,
}

/// What an answer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Metrics,
    Page,
    /// Server-sent events, each with data of this schema.
    Events(&'static str),
    /// JSON of this schema.
    Json(&'static str),
}

impl View {
    /// Whether whoever reaches the listener may ask, under whatever name.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, View::Health | View::Ready | View::Metrics)
    }

    /// Whether it takes `POST`, and else `GET` and `HEAD`.
    pub(super) const fn takes_post(self) -> bool {
        matches!(
            self,
            View::Change(_) | View::Add | View::Remove | View::DryRun | View::Reload | View::Log
        )
    }

    /// The longest body, in bytes.
    pub(super) const fn longest_body(self) -> usize {
        match self {
            View::Change(_) | View::Add | View::Remove | View::Reload | View::Log => 4 << 10,
            View::DryRun => 4 << 20,
            _ => 0,
        }
    }

    /// The schema of its body.
    pub(super) const fn body(self) -> Option<&'static str> {
        match self {
            View::Change(Verb::Drain | Verb::Eject) => Some("Bounded"),
            View::Change(Verb::Speed) => Some("Speed"),
            View::Change(Verb::Resume) | View::Remove => Some("Nothing"),
            View::Add => Some("Newcomer"),
            View::DryRun => Some("Body"),
            View::Reload => Some("ReloadWish"),
            View::Log => Some("LogLevel"),
            _ => None,
        }
    }
}

/// The rows that most paths have in common.
const fn reads(path: &'static str, view: View, name: &'static str, purpose: &'static str) -> Route {
    Route {
        path,
        view,
        name,
        purpose,
        wishes: &[],
        shows: Shape::Text,
        refusals: &[],
    }
}

impl Route {
    const fn showing(self, shows: Shape) -> Self {
        Route { shows, ..self }
    }

    const fn wishing(self, wishes: &'static [Wish]) -> Self {
        Route { wishes, ..self }
    }

    const fn refusing(self, refusals: &'static [u16]) -> Self {
        Route { refusals, ..self }
    }
}

/// A change of one worker.
const fn changes(
    path: &'static str,
    verb: Verb,
    name: &'static str,
    purpose: &'static str,
) -> Route {
    reads(path, View::Change(verb), name, purpose)
        .showing(Shape::Json("Worker"))
        .refusing(&[400, 404, 408, 413])
}

const fn wish(key: &'static str, kind: WishKind, purpose: &'static str) -> Wish {
    Wish { key, kind, purpose }
}

/// All of them.
pub(super) const ROUTES: [Route; 22] = [
    reads(
        "/",
        View::Page,
        "page",
        "The status page; `?token=` takes a browser in, once.",
    )
    .showing(Shape::Page)
    .refusing(&[303]),
    reads(
        "/health",
        View::Health,
        "health",
        "Whether the process lives.",
    ),
    reads(
        "/ready",
        View::Ready,
        "ready",
        "Whether a worker can answer; if not, why.",
    )
    .refusing(&[503]),
    reads(
        "/metrics",
        View::Metrics,
        "metrics",
        "Metrics in Prometheus' text format.",
    )
    .showing(Shape::Metrics),
    reads(
        "/api/events",
        View::Events,
        "events",
        "All that the status page shows, each second anew, as server-sent events.",
    )
    .showing(Shape::Events("Picture"))
    .refusing(&[503]),
    reads(
        "/api/workers",
        View::Workers,
        "workers",
        "The fleet as it is now.",
    )
    .showing(Shape::Json("Fleet")),
    changes(
        "/api/workers/{name}/drain",
        Verb::Drain,
        "drain",
        "No new requests; those it holds end by themselves. Until it is resumed.",
    ),
    changes(
        "/api/workers/{name}/eject",
        Verb::Eject,
        "eject",
        "No requests for a time; then it comes back slowly. One that is drained stays drained.",
    ),
    changes(
        "/api/workers/{name}/resume",
        Verb::Resume,
        "resume",
        "Requests again, whatever kept them from it other than its probes.",
    ),
    changes(
        "/api/workers/{name}/speed",
        Verb::Speed,
        "speed",
        "How fast it is believed to be; what was learned of its speed is forgotten.",
    ),
    reads(
        "/api/workers/{name}/add",
        View::Add,
        "add",
        "A worker of this name, until a restart or for some time; answered like a reload.",
    )
    .showing(Shape::Json("Reloaded"))
    .refusing(&[400, 408, 413, 422]),
    reads(
        "/api/workers/{name}/remove",
        View::Remove,
        "remove",
        "Lets a worker leave that was added; what it holds ends by itself. Answered like a reload.",
    )
    .showing(Shape::Json("Reloaded"))
    .refusing(&[400, 408, 413, 422]),
    reads(
        "/api/queue",
        View::Queue,
        "queue",
        "Who waits, for how long, and what for.",
    )
    .showing(Shape::Json("Queue")),
    reads(
        "/api/tenants",
        View::Tenants,
        "tenants",
        "What tenants use, and what is left to them.",
    )
    .showing(Shape::Json("Tenants")),
    reads(
        "/api/config",
        View::Config,
        "config",
        "The configuration as it is used, its secrets as `***`.",
    )
    .showing(Shape::Json("Anything")),
    reads(
        "/api/reload",
        View::LastReload,
        "lastReload",
        "What came of reading the configuration again the last time; null if that was never done.",
    )
    .showing(Shape::Json("LastReload")),
    reads(
        "/api/reload",
        View::Reload,
        "reload",
        "Reads the configuration again and takes it over, or says what is wrong with it.",
    )
    .showing(Shape::Json("Reloaded"))
    .refusing(&[400, 408, 413, 422]),
    reads(
        "/api/log",
        View::Log,
        "log",
        "How much of the diagnostics is written from now on, by all rooms of the code or by one.",
    )
    .showing(Shape::Json("LogLevel"))
    .refusing(&[400, 408, 413]),
    reads(
        "/api/requests",
        View::Requests,
        "requests",
        "The last requests that have ended; wishes add up.",
    )
    .showing(Shape::Json("Requests"))
    .refusing(&[400])
    .wishing(&[
        wish(
            "slow",
            WishKind::Flag,
            "Those that took longest, the slowest first.",
        ),
        wish(
            "failed",
            WishKind::Flag,
            "Those whose answer was an error or broke off.",
        ),
        wish("tenant", WishKind::Text, "Those of this tenant."),
        wish("since", WishKind::Time, "Those that came within this time."),
        wish(
            "limit",
            WishKind::Count,
            "So many at the most; 20 if nobody says.",
        ),
    ]),
    reads(
        "/api/requests/{id}",
        View::Request,
        "request",
        "Why a request went where it went; or, of one that stands in line, what it waits for.",
    )
    .showing(Shape::Json("Explained"))
    .refusing(&[404]),
    reads(
        "/api/dry-run",
        View::DryRun,
        "dryRun",
        "What would become of a request with this body now. Nothing is sent, booked or counted.",
    )
    .showing(Shape::Json("Foreseen"))
    .refusing(&[400, 408, 413])
    .wishing(&[wish(
        "path",
        WishKind::Path,
        "Where it would be sent; if nobody says, where such bodies belong.",
    )]),
    reads(
        "/api/openapi.json",
        View::OpenApi,
        "openapi",
        "This document.",
    )
    .showing(Shape::Json("Anything")),
];

/// A row, and the name in the path.
pub(super) type Found<'a> = (&'static Route, Cow<'a, str>);

/// The row of a path that takes this method, else one that takes another.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Option<Found<'a>> {
    let mut found = ROUTES.iter().filter_map(|route| {
        let name = match route.path.split_once('{') {
            None => (route.path == path).then_some(""),
            Some((before, rest)) => {
                let after = rest.split_once('}').map_or("", |(_, after)| after);
                path.strip_prefix(before)?.strip_suffix(after)
            }
        }?;
        Some((route, name))
    });
    let takes = |(route, _): &(&Route, &str)| route.view.takes_post() == (method == Method::POST);
    let mut other = None;
    let fitting = found.find(|row| {
        other.get_or_insert(*row);
        takes(row)
    });
    let (route, name) = fitting.or(other)?;
    Some((route, name_in_path(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_every_path_and_wish() {
        let manual = include_str!("../../docs/http.md");
        let (_, manual) = manual.split_once("## The admin side").unwrap();
        for route in &ROUTES {
            let quoted = format!("`{}`", route.path);
            let method = if route.view.takes_post() {
                "| POST |"
            } else {
                "| GET |"
            };
            let mut rows = manual.lines().filter(|line| line.starts_with('|'));
            let row = rows.find(|row| row.contains(&quoted) && row.contains(method));
            let row = row.unwrap_or_else(|| panic!("{method} {} is missing", route.path));
            assert!(
                route.wishes.iter().all(|wish| row.contains(wish.key)),
                "{row}"
            );
        }
    }

    #[test]
    fn each_path_is_found_with_its_name() {
        for (path, view, name) in [
            ("/", View::Page, ""),
            ("/api/requests", View::Requests, ""),
            ("/api/requests/", View::Request, ""),
            ("/api/requests/a%2Fb", View::Request, "a/b"),
            (
                "/api/workers/a.b-c_d/drain",
                View::Change(Verb::Drain),
                "a.b-c_d",
            ),
            (
                "/api/workers/%C3%A4/drain/eject",
                View::Change(Verb::Eject),
                "ä/drain",
            ),
            ("/api/workers//speed", View::Change(Verb::Speed), ""),
        ] {
            let (route, found) = find(&Method::POST, path).unwrap();
            assert_eq!((route.view, &*found), (view, name), "{path}");
        }
        for path in [
            "",
            "/api",
            "/api/workers/",
            "/api/workers/a",
            "/api/workers/drain",
            "/api/workers/a/stop",
            "/health/",
        ] {
            assert!(find(&Method::GET, path).is_none(), "{path}");
        }
    }
}
