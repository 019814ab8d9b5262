//! Networks and single addresses, as `trusted_proxies` and a region's `networks` list them.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::typed::Value;

/// The networks of a list, none twice.
pub fn networks(list: &Value<'_>) -> Vec<IpNet> {
    let mut known: Vec<IpNet> = Vec::new();
    for item in list.items().unwrap_or_default() {
        let Some(network) = network(&item) else {
            continue;
        };
        if known.contains(&network) {
            item.refuse_for("this network is listed twice", "write it once");
        }
        known.push(network);
    }
    known
}

/// One network; an address stands for itself alone. Bits behind the prefix are most likely a slip, so they are refused.
pub fn network(value: &Value<'_>) -> Option<IpNet> {
    let text = value.text()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(IpNet::from(address));
    }
    let Ok(network) = text.parse::<IpNet>() else {
        value.refuse("this is neither an IP address nor a network");
        return None;
    };
    let whole = network.trunc();
    if whole != network {
        let way_out = format!(
            "write \"{whole}\", or \"{}\" for this address",
            network.addr()
        );
        value.refuse_for("this network has an address behind its prefix", way_out);
    }
    Some(whole)
}
