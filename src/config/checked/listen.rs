//! `[listen]`: addresses that can be bound side by side, and none open to a network by oversight.

use std::net::{IpAddr, SocketAddr};

use crate::config::plan::Listen;
use crate::config::typed::{Section, Value};

/// The addresses. Where clients are `known` by their keys, they may come over a network.
pub fn listen(section: &Section<'_>, known: bool) -> Option<Listen> {
    let open = section.value("open").and_then(|value| value.flag());
    let http = addresses(&section.value("http")?, known || open == Some(true));
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
    })
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
