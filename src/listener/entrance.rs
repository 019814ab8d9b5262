//! How many connections clients may have open: in all, and from one address.
//!
//! **In all**, four fifths of the files that the process may open; the rest is for workers, probes and logs. Who comes
//! above that waits at the door, unread, until somebody leaves, at most for as long as a head may take. Only when half
//! of the rest waits there is one turned away at once. So a burst costs its clients a wait, a flood takes nothing from
//! the streams that run, and there is room again the moment that connections end (promise P21). When there is no file
//! to accept with, as where others use them up, Pingora rests for a second before it looks again.
//!
//! **From one address**, `limits.connections_per_address`. Counted is the address at the other end of the connection; a
//! network of IPv6 that has 64 bits is one address, since whoever has one of it has all (RFC 4291 §2.5.4). A proxy that
//! `listen.trusted_proxies` names speaks for many and is not counted; whoever is behind it is its own affair.
//!
//! Who is turned away hears nothing: an answer would have to be written, in TLS after a handshake, for whoever opens
//! the most connections. It is counted in `forebay_connections_refused_total`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::units::Seconds;

/// Who may come in.
pub(super) struct Entrance {
    places: Arc<Semaphore>,
    door: Semaphore,
    crowd: Arc<Crowd>,
}

/// A connection that came in, until this is dropped.
pub(super) struct Admitted {
    _place: OwnedSemaphorePermit,
    _counted: Option<Counted>,
}

impl Entrance {
    /// The entrance of a process that may open so many files.
    pub(super) fn new(files: usize) -> Self {
        let files = files.min(Semaphore::MAX_PERMITS);
        let places = files / 5 * 4;
        Entrance {
            places: Arc::new(Semaphore::new(places)),
            door: Semaphore::new((files - places) / 2),
            crowd: Arc::default(),
        }
    }

    /// Lets a connection in from an address that may have so many, where that is bounded.
    ///
    /// # Errors
    /// The cause by which it is counted.
    pub(super) async fn admit(
        &self,
        address: Option<(IpAddr, u32)>,
        patience: Seconds,
    ) -> Result<Admitted, &'static str> {
        let counted = match address {
            Some((address, most)) => Some(Counted::one_of(most, address, &self.crowd)?),
            None => None,
        };
        let place = self.place(patience).await.ok_or("connections")?;
        Ok(Admitted {
            _place: place,
            _counted: counted,
        })
    }

    /// A place, after a wait at the door if need be.
    async fn place(&self, patience: Seconds) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let _waiting = self.door.try_acquire().ok()?;
        let place = self.places.clone().acquire_owned();
        timeout(patience.to_duration(), place).await.ok()?.ok()
    }
}

/// Connections by the address that they are counted under.
#[derive(Default)]
struct Crowd(Mutex<BTreeMap<IpAddr, u32>>);

/// One of an address's connections.
struct Counted {
    address: IpAddr,
    crowd: Arc<Crowd>,
}

impl Counted {
    fn one_of(most: u32, address: IpAddr, crowd: &Arc<Crowd>) -> Result<Self, &'static str> {
        let address = neighbourhood(address);
        let mut open = crowd.0.lock();
        let count = open.entry(address).or_default();
        if *count >= most {
            return Err("connections_per_address");
        }
        *count += 1;
        Ok(Counted {
            address,
            crowd: crowd.clone(),
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.crowd.0.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// What counts as one address.
fn neighbourhood(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = u128::MAX << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Seconds = Seconds(0.05);
    const LONG: Seconds = Seconds(60.0);

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(test);
    }

    async fn come(entrance: &Entrance, address: &str, patience: Seconds) -> Option<Admitted> {
        let address = address.parse().unwrap();
        entrance.admit(Some((address, 2)), patience).await.ok()
    }

    #[test]
    fn an_address_has_its_number_and_gets_back_what_it_leaves() {
        run(async {
            let entrance = Entrance::new(1_000);
            for [one, neighbour, other] in [
                ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"],
                ["2001:db8::1", "2001:db8::2:3:4:5", "2001:db8:0:1::1"],
            ] {
                let first = come(&entrance, one, LONG).await;
                let second = come(&entrance, neighbour, LONG).await;
                assert!(first.is_some() && second.is_some());
                assert!(come(&entrance, one, LONG).await.is_none());
                assert!(come(&entrance, other, LONG).await.is_some());
                drop(first);
                assert!(come(&entrance, neighbour, LONG).await.is_some());
            }
            assert!(entrance.crowd.0.lock().is_empty());
        });
    }

    #[test]
    fn who_finds_no_place_waits_and_one_too_many_does_not() {
        run(async {
            // 8 places, and one may wait.
            let entrance = Entrance::new(10);
            let mut inside = Vec::new();
            for _ in 0..8 {
                inside.push(entrance.admit(None, LONG).await.ok().unwrap());
            }
            assert!(entrance.admit(None, SHORT).await.is_err(), "waits in vain");
            let (waits, refused, ()) = tokio::join!(
                entrance.admit(None, LONG),
                entrance.admit(None, LONG),
                async { drop(inside.pop()) }
            );
            assert!(waits.is_ok());
            assert_eq!(refused.err(), Some("connections"));
        });
    }
}
