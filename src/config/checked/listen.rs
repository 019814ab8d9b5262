//! `[listen]`: addresses that can be bound side by side, and none open to a network by oversight; and where this is, seen
//! from clients.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{network, region, tls};
use crate::config::plan::{GeoIp, Listen};
use crate::config::typed::{Section, Value};

/// What else is known when the addresses are read.
pub struct Known<'a> {
    /// The names of the regions.
    pub regions: &'a [Option<Arc<str>>],
    /// Whether a region has countries.
    pub has_countries: bool,
    /// Whether clients are known by their keys, so that they may come over a network.
    pub has_tenants: bool,
}

/// The addresses, and what is believed of who comes there.
pub fn listen(section: &Section<'_>, known: &Known<'_>) -> Option<Listen> {
    let open = section.value("open").and_then(|value| value.flag());
    let trusted_proxies = section.value("trusted_proxies");
    let trusted_proxies = trusted_proxies.map(|list| network::networks(&list));
    let region = section.given("region");
    let region = region.and_then(|value| region::named(&value, known.regions));
    let geoip = section.given("geoip");
    let geoip = geoip.and_then(|value| self::geoip(&value, known.has_countries));
    let is_open = known.has_tenants || open == Some(true);
    let tls = section.given("tls");
    let tls = tls.map_or(Some(None), |value| tls::server(&value).map(Some));
    let http = addresses(&section.value("http")?, is_open);
    let admin = section.value("admin")?;
    let admin_address = address(&admin)?;
    if let Some(taken) = http.iter().find(|known| collide(**known, admin_address)) {
        let message =
            format!("clients are served at {taken}, and the admin side has an address of its own");
        admin.refuse(message);
    }
    Some(Listen {
        http,
        admin: admin_address,
        trusted_proxies: trusted_proxies?,
        region,
        geoip,
        tls: tls?,
    })
}

/// The database of countries, read here, so that a wrong one is told before it is needed.
fn geoip(value: &Value<'_>, has_countries: bool) -> Option<Arc<GeoIp>> {
    if !has_countries {
        let way_out = "write countries = [\"DE\"] into a [[region]], or leave this out";
        value.refuse_for("no region has countries", way_out);
    }
    let path = value.path()?;
    value.reads(&path);
    match GeoIp::open(&path) {
        Ok(open) => Some(Arc::new(open)),
        Err(error) => {
            let message = format!("the file named here can't be used: {error}");
            value.refuse_for(message, "name a file in MaxMind's format (.mmdb)");
            None
        }
    }
}

/// Name servers that can be asked.
pub fn servers(list: &Value<'_>) -> Vec<SocketAddr> {
    if list.is_empty() {
        list.refuse_for(
            "there is no address in this list",
            "leave the key out: the system's name servers are asked then",
        );
    }
    let items = list.items().unwrap_or_default();
    items.iter().filter_map(address).collect()
}

/// The client addresses that are sound.
fn addresses(list: &Value<'_>, open: bool) -> Vec<SocketAddr> {
    if list.is_empty() {
        list.refuse("there is no address in this list");
    }
    let mut known = Vec::new();
    for item in list.items().unwrap_or_default() {
        let Some(address) = address(&item) else {
            continue;
        };
        if let Some(taken) = known.iter().find(|taken| collide(**taken, address)) {
            item.refuse_for(
                format!("{taken} takes this address already"),
                "write it once",
            );
        }
        if !open && !address.ip().is_loopback() {
            let message = format!("whoever reaches {address} could use every worker");
            item.refuse_for(
                message,
                "listen on 127.0.0.1, give clients keys with [[tenant]], or say that you want this: open = true",
            );
        }
        known.push(address);
    }
    known
}

fn address(value: &Value<'_>) -> Option<SocketAddr> {
    let text = value.text()?;
    let address = text.parse().ok();
    if address.is_none() {
        match text.split_once(':') {
            Some(("", port)) if port.parse::<u16>().is_ok() => {
                value.refuse_for(
                    "the IP address is missing",
                    "write 127.0.0.1 before the colon, or 0.0.0.0 for all",
                );
            }
            Some(("localhost", _)) => {
                value.refuse_for("this is a name, not an IP address", "write 127.0.0.1")
            }
            _ if text.parse::<IpAddr>().is_ok() => value.refuse("the port is missing"),
            _ => value.refuse("this is not an IP address with a port"),
        }
    }
    address
}

/// Whether the second of two can't be bound: the same port, and the same address or one that stands for it. `[::]`
/// takes IPv4 along, as Linux does.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let covers = |wide: SocketAddr, other: SocketAddr| {
        wide.ip().is_unspecified() && (wide.is_ipv6() || other.is_ipv4())
    };
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || covers(a, b) || covers(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_collide_when_the_second_cannot_be_bound() {
        let check = |a: &str, b: &str| collide(a.parse().unwrap(), b.parse().unwrap());
        assert!(check("127.0.0.1:7070", "127.0.0.1:7070"));
        assert!(check("0.0.0.0:7070", "127.0.0.1:7070"));
        assert!(check("127.0.0.1:7070", "[::]:7070"));
        assert!(!check("0.0.0.0:7070", "[::1]:7070"));
        assert!(!check("127.0.0.1:7070", "[::1]:7070"));
        assert!(!check("127.0.0.1:0", "127.0.0.1:0"));
    }
}
