//! The database that tells in which country an address is: a file in MaxMind's format, read whole and once.
//!
//! It stays the operator's: none is shipped, and which one it is (GeoLite2, DB-IP, one of your own) is nobody's affair
//! as long as its entries have `country.iso_code`. What it can't tell is not told; routing then goes on without.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{Reader, path};

use super::region::Country;

/// An open database.
pub struct GeoIp {
    path: PathBuf,
    reader: Reader<Vec<u8>>,
}

impl GeoIp {
    /// Reads the file.
    ///
    /// # Errors
    /// Why it can't be used, in words.
    pub fn open(path: &Path) -> Result<Self, String> {
        let reader = Reader::open_readfile(path).map_err(|error| error.to_string())?;
        let path = path.to_path_buf();
        Ok(GeoIp { path, reader })
    }

    /// Where it was read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether another reading found the same database.
    #[must_use]
    pub fn is_as(&self, other: &GeoIp) -> bool {
        self.path == other.path && self.reader.metadata() == other.reader.metadata()
    }

    /// The country of an address, if the file tells it.
    #[must_use]
    pub fn country(&self, address: IpAddr) -> Option<Country> {
        let found = self.reader.lookup(address).ok()?;
        let code: &str = found.decode_path(&path!["country", "iso_code"]).ok()??;
        Country::named(code)
    }
}

impl fmt::Debug for GeoIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GeoIp").field(&self.path).finish()
    }
}
