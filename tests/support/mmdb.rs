//! A database of countries, written byte by byte: IPv4 networks, records of 24 bits (MaxMind DB file format 2.0).

use std::net::Ipv4Addr;

/// What a record says: where the tree goes on, or what is known.
#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(usize),
    Country(usize),
}

/// The file that tells these networks' countries.
pub fn countries(networks: &[(Ipv4Addr, u8, &str)]) -> Vec<u8> {
    let (mut nodes, mut data, mut offsets) = (vec![[Record::Nothing; 2]], Vec::new(), Vec::new());
    for (country, (address, prefix, code)) in networks.iter().enumerate() {
        offsets.push(data.len());
        map(&mut data, 1);
        string(&mut data, "country");
        map(&mut data, 1);
        string(&mut data, "iso_code");
        string(&mut data, code);
        let bit = |depth: u8| (u32::from(*address) >> (31 - depth) & 1) as usize;
        let mut node = 0;
        for depth in 0..prefix - 1 {
            node = match nodes[node][bit(depth)] {
                Record::Node(next) => next,
                _ => {
                    nodes.push([Record::Nothing; 2]);
                    let next = nodes.len() - 1;
                    nodes[node][bit(depth)] = Record::Node(next);
                    next
                }
            };
        }
        nodes[node][bit(prefix - 1)] = Record::Country(country);
    }
    let count = nodes.len();
    let mut file = Vec::new();
    for record in nodes.iter().flatten() {
        let value = match record {
            Record::Nothing => count,
            Record::Node(node) => *node,
            Record::Country(country) => count + 16 + offsets[*country],
        };
        file.extend_from_slice(&u32::try_from(value).unwrap().to_be_bytes()[1..]);
    }
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(&data);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    metadata(&mut file, u32::try_from(count).unwrap());
    file
}

fn metadata(file: &mut Vec<u8>, nodes: u32) {
    map(file, 9);
    for (key, number) in [
        ("binary_format_major_version", 2),
        ("binary_format_minor_version", 0),
        ("ip_version", 4),
        ("record_size", 24),
    ] {
        string(file, key);
        file.extend_from_slice(&[0xa1, number]); // a 16-bit number of one byte
    }
    string(file, "node_count");
    file.push(0xc4); // a 32-bit number of four bytes
    file.extend_from_slice(&nodes.to_be_bytes());
    string(file, "build_epoch");
    file.extend_from_slice(&[0x01, 0x02, 0x01]); // a 64-bit number of one byte
    string(file, "database_type");
    string(file, "Test-Country");
    string(file, "description");
    map(file, 0);
    string(file, "languages");
    file.extend_from_slice(&[0x00, 0x04]); // an empty list
}

fn map(file: &mut Vec<u8>, entries: u8) {
    file.push(0xe0 | entries);
}

/// A string shorter than 29 bytes.
fn string(file: &mut Vec<u8>, text: &str) {
    file.push(0x40 | u8::try_from(text.len()).unwrap());
    file.extend_from_slice(text.as_bytes());
}
