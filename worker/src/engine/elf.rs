//! Whether a shared library's file is whole.
//!
//! Why this exists: the system's loader maps a library that was cut short without complaint and the process dies of
//! SIGBUS at the first touch of a missing page (seen with glibc 2.36 and half of libonnxruntime.so). So before loading,
//! the program headers are read and each segment must lie inside the file. Layout: the ELF-64 object file format
//! (gABI, "Program Header"), little-endian, which is what ONNX Runtime is published for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// `Err` says what is wrong with the file.
pub fn check_whole(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    let end = needed(&mut file).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("cut short: {size} bytes are no whole library"),
        _ => error.to_string(),
    })?;
    if end > size {
        return Err(format!("cut short: {size} bytes of at least {end}"));
    }
    Ok(())
}

/// The size that the program headers call for.
fn needed(file: &mut File) -> io::Result<u64> {
    let mut header = [0u8; HEADER];
    file.read_exact(&mut header)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::Error::other(
            "not a 64-bit little-endian shared library",
        ));
    }
    let table = word(&header, 32);
    let count = u16::from_le_bytes([header[56], header[57]]);
    file.seek(SeekFrom::Start(table))?;
    let mut end = 0;
    for _ in 0..count {
        let mut segment = [0u8; PROGRAM_HEADER];
        file.read_exact(&mut segment)?;
        let (offset, length) = (word(&segment, 8), word(&segment, 32));
        end = end.max(offset.saturating_add(length));
    }
    Ok(end)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0u8; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one segment of `length` bytes at offset 200.
    fn library(length: u64) -> Vec<u8> {
        let mut bytes = vec![0u8; HEADER + PROGRAM_HEADER];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        bytes[56] = 1;
        bytes[HEADER + 8..HEADER + 16].copy_from_slice(&200u64.to_le_bytes());
        bytes[HEADER + 32..HEADER + 40].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn check(bytes: &[u8]) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        check_whole(file.path())
    }

    #[test]
    fn a_file_that_ends_before_its_segments_is_cut_short() {
        let mut whole = library(100);
        whole.resize(300, 0);
        assert_eq!(check(&whole), Ok(()));
        assert!(
            check(&whole[..299])
                .unwrap_err()
                .contains("299 bytes of at least 300")
        );
        assert!(check(&whole[..80]).unwrap_err().contains("cut short"));
        assert!(check(&library(u64::MAX)).unwrap_err().contains("cut short"));
    }

    #[test]
    fn other_files_are_no_library() {
        assert!(check(&[b'x'; 100]).unwrap_err().contains("not a 64-bit"));
        assert!(check(b"").unwrap_err().contains("cut short"));
        assert!(check_whole(Path::new("/nowhere/lib.so")).is_err());
    }
}
