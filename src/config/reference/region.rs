//! Rows of the regions: where machines and clients are.

use super::kinds::{COUNTRIES, NETWORKS, REGION_NAME, RTT, ZONE};
use super::{Kind, Row, Unset};

/// The keys of `[[region]]`.
pub(super) const REGIONS: &[Row] = &[
    Row {
        key: "region",
        kind: Kind::Sections,
        unset: Unset::Means("workers are as far as connections show, and in no zone"),
        purpose: "A place where machines or clients are; one table for each. A request's client is in the region that its x-forebay-region header names, else in that of its address, else where the proxy is; the way from there to a worker is part of what the worker costs.",
        example: "[[region]]\nname = \"home\"\nzone = \"eu\"",
        see: &["machine.region", "listen.region", "route.zones"],
    },
    Row {
        key: "region.name",
        kind: REGION_NAME,
        unset: Unset::Required,
        purpose: "The region's name, for machines, other regions and clients to refer to.",
        example: "name = \"home\"",
        see: &["machine.region"],
    },
    Row {
        key: "region.zone",
        kind: ZONE,
        unset: Unset::Means("in no zone"),
        purpose: "The zone that it lies in, for routes that must not leave one. Several regions may share a zone.",
        example: "zone = \"eu\"",
        see: &["route.zones"],
    },
    Row {
        key: "region.rtt",
        kind: RTT,
        unset: Unset::Means("as measured between the proxy and each worker"),
        purpose: "The round trips between this region and others, or within itself; each way is written once and holds both ways. It goes before what is measured.",
        example: "rtt = { home = \"2ms\" }",
        see: &["listen.region"],
    },
    Row {
        key: "region.networks",
        kind: NETWORKS,
        unset: Unset::Means("none"),
        purpose: "Clients with these addresses are in this region; of several networks the narrowest decides.",
        example: "networks = [\"10.1.0.0/16\"]",
        see: &["listen.trusted_proxies"],
    },
    Row {
        key: "region.countries",
        kind: COUNTRIES,
        unset: Unset::Means("none"),
        purpose: "Clients whose address is in one of these countries, by listen.geoip, are in this region.",
        example: "countries = [\"DE\", \"AT\"]",
        see: &["listen.geoip"],
    },
];
