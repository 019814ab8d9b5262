//! Who asks, and from where.
//!
//! What a client says of where it is decides how far workers are from it, and nothing else: zones come from the
//! operator, so an invented region costs its inventor speed and opens no door. Behind a proxy that the operator trusts
//! the client is the last address in `X-Forwarded-For` that no such proxy has. The list is read from its end, because
//! everything before that address is hearsay.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::config::Plan;
use crate::config::plan::region;
use crate::decide::RegionId;

/// What a client says of where it is.
const REGION: HeaderName = HeaderName::from_static("x-forebay-region");
/// What proxies say of who is behind them.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Who asks, as the connection knows it.
#[derive(Clone, Debug)]
pub struct Client {
    /// The address at the other end.
    pub peer: Option<IpAddr>,
    /// The same, as workers are told.
    pub address: Option<HeaderValue>,
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// Whether it is spoken within TLS.
    pub tls: bool,
}

impl Client {
    /// Who is at the other end.
    #[must_use]
    pub fn new(peer: Option<IpAddr>, http2: bool, tls: bool) -> Self {
        let peer = peer.map(|peer| peer.to_canonical());
        Client {
            peer,
            address: peer.and_then(|peer| HeaderValue::from_str(&peer.to_string()).ok()),
            http2,
            tls,
        }
    }

    /// Whether this is a proxy whose word for those behind it is believed.
    #[must_use]
    pub fn is_trusted(&self, plan: &Plan) -> bool {
        let trusted = &plan.listen.trusted_proxies;
        self.peer.is_some_and(|peer| has(trusted, peer))
    }

    /// The region that a request comes from: by its own word, else by its address, else the proxy's.
    #[must_use]
    pub fn region(&self, headers: &HeaderMap, plan: &Plan) -> Option<RegionId> {
        let regions = &plan.regions;
        if regions.is_empty() {
            return None;
        }
        let named = |word: &HeaderValue| {
            let found = (0..).zip(regions);
            let mut found = found.filter(|(_, region)| region.name.as_bytes() == word.as_bytes());
            found.next().map(|(id, _)| RegionId(id))
        };
        let found_out = || {
            let address = self.origin(headers, &plan.listen.trusted_proxies)?;
            let country = || plan.listen.geoip.as_ref()?.country(address);
            let in_network = region::of_address(regions, address);
            in_network.or_else(|| region::of_country(regions, country()?))
        };
        let said = headers.get(REGION).and_then(named);
        said.or_else(found_out).or(plan.listen.region)
    }

    /// The address that a request first came from, as far as that is believed.
    fn origin(&self, headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
        let mut origin = self.peer?;
        let lines = headers.get_all(FORWARDED_FOR).iter();
        let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
        let mut hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
        while has(trusted, origin)
            && let Some(hop) = hops.next()
        {
            // What is no address was told by the one before, and tells of nobody.
            origin = hop.trim().parse::<IpAddr>().ok()?.to_canonical();
        }
        Some(origin)
    }
}

fn has(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    fn plan(listen: &str) -> Plan {
        let text = format!(
            r#"
            state = "unused"
            [listen]
            trusted_proxies = ["10.0.0.0/24", "::1"]
            {listen}
            [[region]]
            name = "home"
            networks = ["192.0.2.0/24"]
            [[region]]
            name = "ohio"
            networks = ["198.51.100.0/24", "10.0.0.0/8"]
            [[worker]]
            name = "w"
            url = "http://127.0.0.1:1"
            "#
        );
        config::parse(&text, Path::new("test.toml"), &|_| None).unwrap()
    }

    fn region(peer: &str, headers: &[(&'static str, &str)], listen: &str) -> Option<u16> {
        let client = Client::new(peer.parse().ok(), false, false);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        client.region(&map, &plan(listen)).map(|region| region.0)
    }

    #[test]
    fn a_client_is_where_it_says_else_where_its_address_is_else_here() {
        let here = "region = \"ohio\"";
        let says = |word| region("192.0.2.1", &[("x-forebay-region", word)], here);
        assert_eq!(
            [says("ohio"), says("home"), says("mars")],
            [Some(1), Some(0), Some(0)]
        );
        assert_eq!(region("192.0.2.1", &[], here), Some(0));
        assert_eq!(region("::ffff:192.0.2.1", &[], here), Some(0));
        assert_eq!(region("203.0.113.1", &[], here), Some(1));
        assert_eq!(region("203.0.113.1", &[], ""), None);
    }

    #[test]
    fn behind_trusted_proxies_the_last_address_that_none_of_them_has_counts() {
        let forwarded = |peer: &str, lines: &[&str]| {
            let headers: Vec<_> = lines
                .iter()
                .map(|line| ("x-forwarded-for", *line))
                .collect();
            region(peer, &headers, "")
        };
        assert_eq!(forwarded("10.0.0.1", &["198.51.100.1, 192.0.2.1"]), Some(0));
        assert_eq!(
            forwarded("10.0.0.1", &["192.0.2.1,10.0.0.2", "::1"]),
            Some(0)
        );
        assert_eq!(
            forwarded("10.0.0.1", &["10.0.0.3, 10.0.0.2"]),
            Some(1),
            "all are trusted"
        );
        assert_eq!(forwarded("10.0.0.1", &["192.0.2.1, nonsense"]), None);
        assert_eq!(
            forwarded("10.0.1.1", &["192.0.2.1"]),
            Some(1),
            "not trusted"
        );
    }
}
