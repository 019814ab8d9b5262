//! What a worker is called when nobody has said so.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::config::plan::Origin;

/// The longest beginning of a name, which leaves room for a port.
pub const LONGEST: usize = 48;

/// This name, and where it is taken, the worker's address behind it; it is taken from then on.
pub fn unique(base: &str, origin: &Origin, taken: &mut BTreeSet<String>) -> String {
    let port = origin.port;
    let tries = [
        Some(base.to_owned()),
        last_number(&origin.host).map(|last| format!("{base}-{last}")),
        Some(format!("{base}-{port}")),
    ];
    let numbered = (2..).map(|number| format!("{base}-{port}-{number}"));
    let mut free = { tries.into_iter().flatten() }
        .chain(numbered)
        .filter(|name| taken.insert(name.clone()));
    free.next().unwrap_or_default()
}

/// The first word of a host's name; an address and this machine have none.
pub fn host_name(host: &str) -> Option<&str> {
    let is_address = host.contains(':')
        || host
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let first = host
        .split('.')
        .next()
        .filter(|_| !is_address && host != "localhost")?;
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    ((1..=LONGEST).contains(&first.len()) && first.bytes().all(sound)).then_some(first)
}

/// By what the machines of a network are told apart: the last number of an address that is not this machine's.
fn last_number(host: &str) -> Option<u8> {
    let address: Ipv4Addr = host.parse().ok()?;
    (!address.is_loopback()).then(|| address.octets()[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn who_is_called_like_another_has_its_address_behind_its_name() {
        let mut taken = BTreeSet::new();
        let mut named = |url: &str| unique("vllm", &config::origin(url).unwrap(), &mut taken);
        assert_eq!(named("http://192.168.1.10:8000"), "vllm");
        assert_eq!(named("http://192.168.1.11:8000"), "vllm-11");
        assert_eq!(named("http://10.0.0.11:8000"), "vllm-8000");
        assert_eq!(named("http://10.1.0.11:8000"), "vllm-8000-2");
        assert_eq!(named("http://127.0.0.1:8001"), "vllm-8001");
        assert_eq!(host_name("desk.lan"), Some("desk"));
        assert_eq!(["10.0.0.1", "::1", "localhost"].map(host_name), [None; 3]);
    }
}
