//! Who listens where this process wants to, as far as this user may know: what Linux shows under `/proc`.
//!
//! A port may have several holders, each at an address of its own. In the way is who listens at that very address, or
//! at all of them; and everybody, for who wants all of them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The tables of TCP sockets.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of one that listens, in these tables.
const LISTENS: &str = "0A";

/// The name and number of a process that is in the way there; `None` when nobody is whom we may see.
pub(super) fn of(address: SocketAddr) -> Option<String> {
    let tables = TABLES
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok());
    let sockets: BTreeSet<_> = tables
        .flat_map(|table| listening(&table, address))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut holders = processes.filter(|entry| holds(&entry.path(), &sockets));
    let process = holders.next()?;
    let name = fs::read_to_string(process.path().join("comm")).ok()?;
    let number = process.file_name().to_string_lossy().into_owned();
    Some(format!("{} (pid {number})", name.trim_end().escape_debug()))
}

/// The links by which a process shows sockets that are in the way there.
fn listening(table: &str, wanted: SocketAddr) -> Vec<String> {
    let socket = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (at, port) = fields.get(1)?.rsplit_once(':')?;
        let is_port = u16::from_str_radix(port, 16) == Ok(wanted.port());
        let is_it = is_port && *fields.get(3)? == LISTENS && collides(address(at)?, wanted.ip());
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// An address as these tables write it: words of 32 bits, each in the order of this machine.
fn address(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(digits.get(at..at + 8)?, 16).ok();
    let mut bytes = Vec::new();
    for at in (0..digits.len()).step_by(8) {
        bytes.extend(word(at)?.to_ne_bytes());
    }
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

/// Whether one that listens there keeps another from listening here.
fn collides(there: IpAddr, here: IpAddr) -> bool {
    let (there, here) = (there.to_canonical(), here.to_canonical());
    // All addresses of IPv6 are those of IPv4 too, unless a socket was told otherwise.
    let takes = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    there == here || takes(there, here) || takes(here, there)
}

fn holds(process: &Path, sockets: &BTreeSet<String>) -> bool {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if !process
        .file_name()
        .is_some_and(|name| is_number(&name.to_string_lossy()))
    {
        return false;
    }
    let Ok(open) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    let mut links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| sockets.contains(&*link.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn whoever_listens_is_named_and_a_free_port_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let holder = of(at).unwrap();
        let own = format!("(pid {})", std::process::id());
        assert!(holder.ends_with(&own), "{holder}");
        drop(listener);
        assert_eq!(of(at), None);
    }

    #[test]
    fn only_what_listens_there_is_found_in_a_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n   1: 0100007F:1B9E 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n   2: 0100007F:1B9F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1\n   3: 00000000:1BA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4245 1\n   4: 00000000000000000000000001000000:1B9E 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4246 1\n";
        let found = |at: &str| listening(table, at.parse().unwrap());
        assert_eq!(found("127.0.0.1:7070"), ["socket:[4242]"]);
        assert_eq!(found("127.0.0.2:7070"), [""; 0]);
        assert_eq!(found("[::1]:7070"), ["socket:[4246]"]);
        assert_eq!(found("0.0.0.0:7070"), ["socket:[4242]"]);
        assert_eq!(found("[::]:7070"), ["socket:[4242]", "socket:[4246]"]);
        assert_eq!(found("127.0.0.2:7072"), ["socket:[4245]"]);
        assert_eq!(listening("cut", "127.0.0.1:7070".parse().unwrap()), [""; 0]);
    }
}
