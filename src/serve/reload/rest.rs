//! Files that are followed, and the moment at which they are written no more.
//!
//! Editors and tools write a file in pieces, or several files one after the other. So a change is taken for whole when
//! two looks in a row see the same. Half a file that rests that long is refused like any other mistake, and its other
//! half is the next change.

use std::path::PathBuf;

use crate::stamp::Stamp;

/// What was seen of some files and folders; one that is not there is seen as that.
pub(super) struct Rest {
    files: Vec<PathBuf>,
    /// When they were last read.
    read: Vec<Option<Stamp>>,
    /// At the last look.
    seen: Vec<Option<Stamp>>,
}

impl Rest {
    /// These, which are read next.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let read = look_at(files);
        Rest {
            files: files.to_vec(),
            seen: read.clone(),
            read,
        }
    }

    /// Whether all of these are among them.
    pub(super) fn covers(&self, files: &[PathBuf]) -> bool {
        files.iter().all(|file| self.files.contains(file))
    }

    /// Looks at them. Whether they are others than those that were read, and rest.
    pub(super) fn look(&mut self) -> bool {
        let now = look_at(&self.files);
        let rests = now == self.seen;
        self.seen = now;
        if !rests || self.seen == self.read {
            return false;
        }
        self.read.clone_from(&self.seen);
        true
    }
}

fn look_at(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamps = files.iter().map(|path| Stamp::of_either(path).ok());
    stamps.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_is_told_once_and_only_when_it_rests() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        fs::write(&file, "a").unwrap();
        let mut rest = Rest::of(std::slice::from_ref(&file));
        assert!(!rest.look());
        let mut looks = |text: Option<&str>| {
            if let Some(text) = text {
                fs::write(&file, text).unwrap();
            }
            rest.look()
        };
        let changes = [Some("ab"), Some("abc"), None, None, Some("abcd"), None];
        let told = changes.map(&mut looks);
        assert_eq!(told, [false, false, true, false, false, true]);
        fs::remove_file(&file).unwrap();
        assert_eq!([None, None, None].map(&mut looks), [false, true, false]);
    }

    #[test]
    fn a_folder_tells_what_comes_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut rest = Rest::of(&[folder.path().to_path_buf()]);
        fs::write(folder.path().join("new"), "").unwrap();
        assert!(!rest.look() && rest.look());
        assert!(rest.covers(&[folder.path().to_path_buf()]));
        assert!(!rest.covers(&[folder.path().join("new")]));
    }
}
