//! How a file that changes is noticed: by its time, size and inode, looked at now and then.
//!
//! That needs no notification service of the system and works on every file system, also where a whole folder is put in the
//! place of another, as orchestrators do it with the files that they mount.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file now.
    ///
    /// # Errors
    /// When it can't be seen, or is no regular file: whoever opens a pipe may wait for ever.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        if !found.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(Stamp::found(&found))
    }

    /// That of a file or a folder now; a folder's changes when something in it comes or goes.
    ///
    /// # Errors
    /// When it can't be seen.
    pub fn of_either(path: &Path) -> io::Result<Self> {
        Ok(Stamp::found(&fs::metadata(path)?))
    }

    fn found(found: &fs::Metadata) -> Self {
        Stamp {
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
