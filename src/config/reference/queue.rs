//! The rows of `[queue]`.

use super::kinds::{CLASSES, DAY, GIB, MARKS, MILLISECOND, SHARES, WAITS};
use super::{Kind, Row, Unset};
use crate::units::{Bytes, Seconds};

/// How requests stand in line.
pub(super) const QUEUE: &[Row] = &[
    Row {
        key: "queue",
        kind: Kind::Section,
        unset: Unset::Means("the defaults of its keys"),
        purpose: "How requests wait while every worker that could serve them is at max_inflight or, without one, would only let them wait inside it, or none is up.",
        example: "[queue]\nclasses = [\"paid\", \"free\", \"batch\"]\nwait = { batch = \"10m\" }\nreserve = { paid = 0.1 }",
        see: &["worker.max_inflight"],
    },
    Row {
        key: "queue.classes",
        kind: CLASSES,
        unset: Unset::Is("[\"paid\", \"free\", \"batch\"]"),
        purpose: "The classes of requests, the highest first. A request is of its tenant's class, or of the highest, unless it names a lower one in x-forebay-priority. A place that two classes could use goes to the higher.",
        example: "classes = [\"interactive\", \"batch\"]",
        see: &["queue.age_up", "queue.reserve"],
    },
    Row {
        key: "queue.entries",
        kind: Kind::Count {
            least: 1,
            most: 10_000_000,
        },
        unset: Unset::Is("10000"),
        purpose: "The most requests that wait at a time; one more is answered 429, unless somebody of a lower class waits, who is then answered 429 instead.",
        example: "entries = 1000",
        see: &["queue.bytes"],
    },
    Row {
        key: "queue.bytes",
        kind: Kind::Size {
            least: Bytes(1),
            most: Bytes(1_024 * GIB),
        },
        unset: Unset::Is("\"512MiB\""),
        purpose: "The most bytes that the bodies of waiting requests have together; beyond that a request that would wait is answered 429.",
        example: "bytes = \"64MiB\"",
        see: &["queue.entries", "limits.buffered"],
    },
    Row {
        key: "queue.wait",
        kind: WAITS,
        unset: Unset::Is("\"30s\""),
        purpose: "The longest that a request waits for a place on a worker that is up; then it is answered 429. A class that a table does not name waits 30s.",
        example: "wait = { batch = \"10m\" }",
        see: &["queue.wait_no_worker", "queue.classes"],
    },
    Row {
        key: "queue.wait_no_worker",
        kind: Kind::Duration {
            least: Seconds::ZERO,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"3m\""),
        purpose: "The longest that a request waits while no worker that serves its model is up: they may be starting. A model that no worker has ever told of is waited for only while one that says by itself what it serves has not done so. Then it is answered 503; with 0s at once, and with another routing.all_down than \"queue\", too.",
        example: "wait_no_worker = \"10s\"",
        see: &["queue.wait", "routing.all_down"],
    },
    Row {
        key: "queue.age_up",
        kind: Kind::Duration {
            least: MILLISECOND,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"60s\""),
        purpose: "Once somebody of a class has waited so long, one place in four goes to that class before all others, so that no class waits for ever while there is capacity, and a flood of a low one does not hold up those above. It has an effect where a class may wait so long: see wait. In a class where the newest go first it is one place in four that goes to the class before all others.",
        example: "age_up = \"2m\"",
        see: &["queue.classes", "queue.newest_first"],
    },
    Row {
        key: "queue.newest_first",
        kind: MARKS,
        unset: Unset::Means("half of what a class may wait"),
        purpose: "When the eldest of a tenant's requests for a model has waited so long, more come than are served, and its newest go first until the older ones are served or have left: some are answered at once then, where all would be answered too late. Who has a deadline still goes before who has none; classes and tenants get what they always do. forebay_queue_overloaded shows the classes in which it is so.",
        example: "newest_first = { paid = \"5s\", batch = \"off\" }",
        see: &["queue.wait", "queue.age_up"],
    },
    Row {
        key: "queue.heartbeat",
        kind: Kind::Timer {
            least: MILLISECOND,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"off\""),
        purpose: "How often a client that asked for a stream is told that it still waits in line: a comment line of server-sent events, `: queued, position 3`, so that nothing on the way takes the connection for dead. With the first of them the answer has begun: its status is 200 whatever follows, an error comes as `event: error`, and x-forebay-worker and the worker's own header fields are missing. Such requests are sent to workers without Accept-Encoding.",
        example: "heartbeat = \"10s\"",
        see: &["queue.wait"],
    },
    Row {
        key: "queue.swap_after",
        kind: Kind::Duration {
            least: Seconds::ZERO,
            most: Seconds(DAY),
        },
        unset: Unset::Is("\"10s\""),
        purpose: "How long requests for one model wait while those for another, which is in the worker's memory, keep coming; then the worker takes no more of the latter, ends those it has, and swaps. It counts anew from when a model came in. About as long as a swap takes is right: then no more than half of the time goes to swaps while both are in demand. A model that nobody uses or waits for at the moment makes room at once, so requests by turns, each after the other's end, swap each time. It has an effect on workers with resident, and should be shorter than wait.",
        example: "swap_after = \"30s\"",
        see: &["worker.resident", "queue.wait"],
    },
    Row {
        key: "queue.reserve",
        kind: SHARES,
        unset: Unset::Means("nothing is kept free"),
        purpose: "Shares of the places that lower classes may not hold, so that one is free when a request of the class comes: of all places on those workers together that could serve the request, rounded up. Of two places or more lower classes may always hold one. Where nobody says how many places a worker has, those that it has shown count. Which places stay free is nobody's choice: a higher class is sent to the best of them.",
        example: "reserve = { paid = 0.1 }",
        see: &["queue.classes", "worker.max_inflight"],
    },
];
