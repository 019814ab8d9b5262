//! Who listens on a port, as far as this user may know: what Linux shows under `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tables of TCP sockets.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of one that listens, in these tables.
const LISTENS: &str = "0A";

/// The name and number of a process that listens on this port; `None` when nobody does whom we may see.
pub(super) fn of_port(port: u16) -> Option<String> {
    let tables = TABLES
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok());
    let sockets: BTreeSet<_> = tables.flat_map(|table| listening(&table, port)).collect();
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

/// The links by which a process shows sockets that listen on this port.
fn listening(table: &str, port: u16) -> Vec<String> {
    let socket = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (_, own) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(own, 16) == Ok(port) && *fields.get(3)? == LISTENS;
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().skip(1).filter_map(socket).collect()
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
        let port = listener.local_addr().unwrap().port();
        let holder = of_port(port).unwrap();
        let own = format!("(pid {})", std::process::id());
        assert!(holder.ends_with(&own), "{holder}");
        drop(listener);
        assert_eq!(of_port(port), None);
    }

    #[test]
    fn only_what_listens_on_the_port_is_found_in_a_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n   1: 0100007F:1B9E 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n   2: 0100007F:1B9F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1\n";
        assert_eq!(listening(table, 7070), ["socket:[4242]"]);
        assert_eq!(listening("cut", 7070), [""; 0]);
    }
}
