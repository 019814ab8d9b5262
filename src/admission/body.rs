//! Reading a request's body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use super::paced::Paced;
use crate::clock::Clock;
use crate::config::plan::Limits;
use crate::fault::{Fault, Kind};
use crate::observe::Observe;
use crate::units::{Bytes as ByteCount, Seconds};

/// Room made at once for a body that says its length; the rest when so much of it has come.
const TRUST: usize = 1 << 20;

/// How long an unwanted body is read, so that the refusal is not lost in a connection reset (RFC 9112 §9.6: a close
/// with unread data may erase the answer before the client reads it).
const DISCARD: Duration = Duration::from_secs(1);

/// Reads bodies within the limits.
#[derive(Debug)]
pub struct Intake {
    clock: Clock,
    limits: Arc<ArcSwap<Limits>>,
    held: Arc<AtomicU64>,
    observe: Arc<Observe>,
}

/// A body in memory, counted until this is dropped.
#[derive(Debug)]
pub struct Held {
    bytes: Bytes,
    /// What it says, where it came compressed.
    plain: Option<Bytes>,
    counted: Counted,
    is_whole: bool,
}

impl Held {
    fn new(bytes: Bytes, counted: Counted) -> Self {
        Held {
            bytes,
            plain: None,
            counted,
            is_whole: true,
        }
    }

    /// The beginning of a body whose rest has not come.
    fn begun(bytes: Bytes, counted: Counted) -> Self {
        Held {
            is_whole: false,
            ..Held::new(bytes, counted)
        }
    }

    /// Whether all of it is here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Gives away what is here, with its count.
    pub fn take(&mut self) -> (Bytes, Counted) {
        let none = self.counted.none();
        let counted = std::mem::replace(&mut self.counted, none);
        (std::mem::take(&mut self.bytes), counted)
    }

    /// The body as it came.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What it says: the same, unless it came compressed.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        self.plain.as_ref().unwrap_or(&self.bytes)
    }

    pub(super) fn says(&mut self, plain: Bytes) {
        self.plain = Some(plain);
    }

    pub(super) fn counted(&mut self) -> &mut Counted {
        &mut self.counted
    }
}

/// A body that comes in pieces. It may stand in line for long, so in the end it takes no more room than it has bytes: a
/// buffer that is doubled until all is in takes up to twice as much.
struct Gathered {
    all: Vec<u8>,
    told: Option<usize>,
}

impl Gathered {
    fn new(told: Option<u64>, first: &[u8]) -> Self {
        let told = told.and_then(|length| usize::try_from(length).ok());
        let room = told.unwrap_or(first.len() * 2).min(TRUST);
        let mut all = Vec::with_capacity(room.max(first.len()));
        all.extend_from_slice(first);
        Gathered { all, told }
    }

    fn add(&mut self, piece: &[u8]) {
        let rest = self.told.map_or(0, |told| told - self.all.len().min(told));
        if self.all.capacity() - self.all.len() < piece.len() && rest >= piece.len() {
            self.all.reserve_exact(rest);
        }
        self.all.extend_from_slice(piece);
    }

    fn whole(mut self) -> Bytes {
        self.all.shrink_to_fit();
        self.all.into()
    }
}

/// Bytes in memory, counted against `limits.buffered`.
#[derive(Debug)]
pub struct Counted {
    held: Arc<AtomicU64>,
    observe: Arc<Observe>,
    /// Those in force: a stream may outlive many.
    limits: Arc<ArcSwap<Limits>>,
    count: u64,
}

impl Counted {
    /// None of them.
    fn none(&self) -> Self {
        Counted {
            held: self.held.clone(),
            observe: self.observe.clone(),
            limits: self.limits.clone(),
            count: 0,
        }
    }

    /// So many more.
    ///
    /// # Errors
    /// `overloaded` when that is too much for all together.
    pub fn add(&mut self, count: usize) -> Result<(), Fault> {
        let count = count as u64;
        self.count += count;
        self.observe.metrics.buffer_grew(count);
        let all = self.held.fetch_add(count, Ordering::AcqRel) + count;
        let most = self.limits.load().buffered;
        if all <= most.0 {
            return Ok(());
        }
        let message = format!("request bodies in memory have reached limits.buffered = {most}");
        Err(Fault::new(Kind::Overloaded, message).retry_after(Seconds(1.0)))
    }

    /// So many fewer.
    pub fn give_back(&mut self, count: usize) {
        let count = (count as u64).min(self.count);
        self.count -= count;
        self.observe.metrics.buffer_shrank(count);
        self.held.fetch_sub(count, Ordering::AcqRel);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.give_back(usize::try_from(self.count).unwrap_or(usize::MAX));
    }
}

impl Intake {
    /// How much of an unwanted body is read before it is refused.
    pub const DISCARDED: u64 = 256 << 10;

    /// Holds nothing yet.
    #[must_use]
    pub fn new(clock: Clock, limits: &Limits, observe: Arc<Observe>) -> Self {
        let held = Arc::new(AtomicU64::new(0));
        Intake {
            clock,
            limits: Arc::new(ArcSwap::from_pointee(limits.clone())),
            held,
            observe,
        }
    }

    /// Other limits from here on; a body that is arriving keeps some of its own.
    pub fn replan(&self, limits: &Limits) {
        self.limits.store(Arc::new(limits.clone()));
    }

    /// Request bodies in memory now.
    #[must_use]
    pub fn held(&self) -> ByteCount {
        ByteCount(self.held.load(Ordering::Acquire))
    }

    /// A client's body, to be read here.
    pub fn paced<B>(&self, body: B) -> Paced<B> {
        Paced::new(body, self.clock, self.limits.load_full())
    }

    /// Reads a body whole; one that came in one piece is not copied.
    ///
    /// # Errors
    /// `body_too_large`, `overloaded` when all bodies together are too large, `request_timeout` when it comes too
    /// slowly, `bad_request` when it is cut or badly framed.
    pub async fn read<B>(&self, body: &mut Paced<B>) -> Result<Held, Fault>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        self.gather(body, false).await
    }

    /// Reads a body as far as there is room for it: one that finds none can flow on from there.
    ///
    /// # Errors
    /// As [`Intake::read`] has them, but `overloaded`.
    pub async fn read_what_fits<B>(&self, body: &mut Paced<B>) -> Result<Held, Fault>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        self.gather(body, true).await
    }

    async fn gather<B>(&self, body: &mut Paced<B>, may_flow: bool) -> Result<Held, Fault>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let flows = |fault: &Fault| may_flow && fault.kind == Kind::Overloaded;
        let told = body.size_hint().exact();
        if told.is_some_and(|length| length > self.limits.load().body.0) {
            return Err(self.too_large());
        }
        let mut counted = self.counted();
        let Some(first) = next(body).await? else {
            return Ok(Held::new(Bytes::new(), counted));
        };
        match self.count(&mut counted, first.len()) {
            Err(fault) if flows(&fault) => return Ok(Held::begun(first, counted)),
            fits => fits?,
        }
        if body.is_end_stream() {
            return Ok(Held::new(first, counted));
        }
        let mut all = Gathered::new(told, &first);
        drop(first);
        while let Some(piece) = next(body).await? {
            let fits = self.count(&mut counted, piece.len());
            all.add(&piece);
            match fits {
                Err(fault) if flows(&fault) => return Ok(Held::begun(all.whole(), counted)),
                fits => fits?,
            }
        }
        Ok(Held::new(all.whole(), counted))
    }

    /// Reads a stream until that is enough to know where it goes, or it ends.
    ///
    /// # Errors
    /// As [`Intake::read`] has them, and those of `enough`.
    pub async fn begin<B>(
        &self,
        body: &mut Paced<B>,
        enough: impl Fn(&[u8]) -> Result<bool, Fault>,
    ) -> Result<Held, Fault>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        body.streams();
        let mut counted = self.counted();
        let mut all = Vec::new();
        while !enough(&all)? {
            let Some(piece) = next(body).await? else {
                break;
            };
            self.count(&mut counted, piece.len())?;
            all.extend_from_slice(&piece);
        }
        Ok(Held::new(all.into(), counted))
    }

    /// Nothing in memory yet.
    pub fn counted(&self) -> Counted {
        Counted {
            held: self.held.clone(),
            observe: self.observe.clone(),
            limits: self.limits.clone(),
            count: 0,
        }
    }

    /// Reads and forgets what a refused client is still sending, within bounds, so that the connection can be used
    /// again. One that says it sends more than that hears the refusal at once; its connection closes, after a moment.
    pub async fn discard<B>(&self, body: &mut B)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if body.size_hint().lower() > Self::DISCARDED {
            return;
        }
        let reading = async {
            let mut read = 0;
            while read < Self::DISCARDED {
                match body.frame().await {
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len) as u64,
                    _ => return,
                }
            }
        };
        // However it ends, the refusal goes out next.
        let _ = tokio::time::timeout(DISCARD, reading).await;
    }

    pub(super) fn count(&self, counted: &mut Counted, more: usize) -> Result<(), Fault> {
        if counted.count + more as u64 > self.limits.load().body.0 {
            return Err(self.too_large());
        }
        counted.add(more)
    }

    fn too_large(&self) -> Fault {
        let message = format!(
            "the body is over limits.body = {}; send less or raise the limit",
            self.limits.load().body
        );
        Fault::new(Kind::BodyTooLarge, message)
    }
}

/// The next piece of a body. Trailers of a request have no meaning here (RFC 9110 §6.5.1 lets a recipient drop them).
async fn next<B>(body: &mut Paced<B>) -> Result<Option<Bytes>, Fault>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads bodies within such limits, for tests.
#[cfg(test)]
pub(crate) fn intake(body: u64, buffered: u64) -> Intake {
    use crate::config::plan::{AccessTarget, LogLevel, LogPlan};

    let log = LogPlan {
        level: LogLevel::Error,
        access: AccessTarget::Off,
        replay: false,
    };
    let observe = Observe::new(Clock::start(), &log, &[], &[]).unwrap();
    let limits = Limits {
        body: ByteCount(body),
        buffered: ByteCount(buffered),
        header: ByteCount(1),
        header_timeout: Seconds(1.0),
        body_rate: ByteCount(0),
        idle: Seconds(1.0),
        connections_per_address: 0,
    };
    Intake::new(Clock::start(), &limits, Arc::new(observe))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use http_body_util::Full;

    use super::*;

    /// A body that comes in pieces and does not say how long it is.
    struct Pieces(VecDeque<&'static str>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = String;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
            Poll::Ready(
                self.0
                    .pop_front()
                    .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))),
            )
        }
    }

    fn pieces(pieces: &[&'static str]) -> Pieces {
        Pieces(pieces.iter().copied().collect())
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn what_is_counted_on_after_a_reload_has_the_new_limit() {
        let intake = intake(10, 10);
        let mut counted = intake.counted();
        counted.add(8).unwrap();
        let raised = Limits {
            buffered: ByteCount(20),
            ..(**intake.limits.load()).clone()
        };
        intake.replan(&raised);
        counted.add(8).unwrap();
        assert!(counted.add(8).unwrap_err().message.contains("20B"));
    }

    #[test]
    fn a_body_in_one_piece_is_not_copied() {
        let sent = Bytes::from_static(b"whole");
        let intake = intake(10, 10);
        let mut body = intake.paced(Full::new(sent.clone()));
        let held = block(intake.read(&mut body)).unwrap();
        assert_eq!(held.bytes().as_ptr(), sent.as_ptr());
    }

    #[test]
    fn pieces_are_joined_and_counted_until_dropped() {
        let intake = intake(10, 10);
        let mut body = intake.paced(pieces(&["ab", "cd", "e"]));
        let held = block(intake.read(&mut body)).unwrap();
        assert_eq!(&held.bytes()[..], b"abcde");
        assert_eq!(intake.held(), ByteCount(5));
        drop(held);
        assert_eq!(intake.held(), ByteCount(0));
    }

    #[test]
    fn a_body_takes_no_more_room_than_it_has_bytes() {
        let piece = vec![7; 16 << 10];
        for length in [20 << 10, 700_000, (1 << 20) + 70, 5 << 20] {
            for told in [Some(length), None] {
                let mut gathered = Gathered::new(told.map(|length| length as u64), &piece);
                let mut left = length - piece.len();
                while left > 0 {
                    let next = left.min(piece.len());
                    gathered.add(&piece[..next]);
                    left -= next;
                }
                let room = gathered.all.capacity();
                assert!(told.is_none() || room == length, "{room} for {length}");
                let whole = Vec::from(gathered.whole());
                assert_eq!((whole.len(), whole.capacity()), (length, length));
            }
        }
    }

    #[test]
    fn both_limits_hold_and_a_refused_body_counts_no_longer() {
        for (body, buffered, kind) in [(4, 100, Kind::BodyTooLarge), (100, 4, Kind::Overloaded)] {
            let intake = intake(body, buffered);
            let mut in_pieces = intake.paced(pieces(&["abc", "def"]));
            assert_eq!(block(intake.read(&mut in_pieces)).unwrap_err().kind, kind);
            let mut whole = intake.paced(Full::new(Bytes::from_static(b"abcdef")));
            assert_eq!(block(intake.read(&mut whole)).unwrap_err().kind, kind);
            assert_eq!(intake.held(), ByteCount(0));
        }
    }
}
