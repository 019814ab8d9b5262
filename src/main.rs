//! The proxy's binary.
#![forbid(unsafe_code)]

fn main() {}
