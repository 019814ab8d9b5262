//! As much HTTP/1.1 as the engine and the load generator need to understand each other through a proxy.

use std::io;

use memchr::memmem;

/// How long the head at the front of `bytes` is, its empty line included; `None` while it is incomplete.
pub fn head_length(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// The value of a header in `head`, by its name in small letters.
pub fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(head).ok()?;
    let pairs = text.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut values = pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    values.next().map(|(_, value)| value.trim())
}

/// What is wrong with the other side.
pub fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
