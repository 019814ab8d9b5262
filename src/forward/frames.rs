//! Where one WebSocket frame ends and the next begins (RFC 6455 §5.2), told in passing.
//!
//! A tunnel passes bytes and keeps none, but a close of our own may stand only between two frames. So the heads of
//! frames are followed as they go by: their lengths, and whether one of them closes.

/// Opcode of a close frame, with the bit that says it is whole.
const CLOSE: u8 = 0x88;
/// That of a ping.
const PING: u8 = 0x89;
/// The bit that says a frame is masked.
const MASKED: u8 = 0x80;
/// The longest head: two bytes, a length of eight, a mask of four.
const LONGEST: usize = 14;

/// What an end of a tunnel is told when it closes (RFC 6455 §7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// One of the ends goes away.
    GoingAway = 1001,
    /// Something failed that should not.
    Failed = 1011,
}

/// One direction's frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; LONGEST],
    filled: usize,
    /// Bytes of the frame's payload that are still to come.
    left: u64,
    closed: bool,
}

impl Frames {
    /// These bytes went by.
    pub(super) fn passed(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let here = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                self.left -= here as u64;
                bytes = &bytes[here..];
                continue;
            }
            self.head[self.filled] = *first;
            self.filled += 1;
            bytes = rest;
            if let Some(length) = payload(&self.head[..self.filled]) {
                self.closed |= self.head[0] & 0x0f == CLOSE & 0x0f;
                self.left = length;
                self.filled = 0;
            }
        }
    }

    /// Whether what went by ends a frame.
    pub(super) fn at_border(&self) -> bool {
        self.left == 0 && self.filled == 0
    }

    /// Whether a close frame has begun.
    pub(super) fn closed(&self) -> bool {
        self.closed
    }
}

/// The length of the payload that a whole head announces.
fn payload(head: &[u8]) -> Option<u64> {
    let (&[_, second], rest) = head.split_first_chunk()?;
    let mask = if second & MASKED == 0 { 0 } else { 4 };
    let (length, rest) = match second & !MASKED {
        126 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u64::from(u16::from_be_bytes(*length)), rest)
        }
        127 => {
            let (length, rest) = rest.split_first_chunk()?;
            (u64::from_be_bytes(*length), rest)
        }
        length => (u64::from(length), rest),
    };
    (rest.len() == mask).then_some(length)
}

/// A close frame. Toward a server it is masked (RFC 6455 §5.3).
pub(super) fn close(code: Code, reason: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    // A control frame carries 125 bytes at most, two of them the code.
    let reason = &reason.as_bytes()[..reason.len().min(123)];
    control(
        CLOSE,
        &[&(code as u16).to_be_bytes(), reason].concat(),
        mask,
    )
}

/// A ping without a payload: its answer can be told from that to a ping of the other end's by whoever cares.
pub(super) fn ping(mask: Option<[u8; 4]>) -> Vec<u8> {
    control(PING, &[], mask)
}

fn control(opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap_or_default();
    match mask {
        None => [&[opcode, length][..], payload].concat(),
        Some(mask) => {
            let masked = payload.iter().zip(mask.iter().cycle());
            let masked: Vec<u8> = masked.map(|(byte, mask)| byte ^ mask).collect();
            [&[opcode, MASKED | length][..], &mask, &masked].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, length: usize, masked: bool) -> Vec<u8> {
        let bit = if masked { MASKED } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..126 => frame.push(bit | length as u8),
            126..65_536 => {
                frame.push(bit | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(bit | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(vec![0x88; if masked { 4 } else { 0 } + length]);
        frame
    }

    #[test]
    fn borders_are_found_however_the_bytes_come() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            for masked in [false, true] {
                let bytes = [frame(2, length, masked), frame(9, 3, masked)].concat();
                for size in [1, 3, 1_000, bytes.len()] {
                    let mut frames = Frames::default();
                    let mut seen = 0;
                    for piece in bytes.chunks(size) {
                        frames.passed(piece);
                        seen += piece.len();
                        let borders = [bytes.len() - frame(9, 3, masked).len(), bytes.len()];
                        assert_eq!(
                            frames.at_border(),
                            borders.contains(&seen),
                            "{length} {size}"
                        );
                    }
                    assert!(!frames.closed());
                }
            }
        }
    }

    #[test]
    fn a_close_is_seen_and_our_own_is_one() {
        for mask in [None, Some([1, 2, 3, 4])] {
            let bytes = close(Code::GoingAway, &"x".repeat(200), mask);
            let mut frames = Frames::default();
            frames.passed(&bytes);
            assert!(frames.closed() && frames.at_border());
        }
        assert_eq!(close(Code::Failed, "", None), [0x88, 2, 0x03, 0xf3]);
    }

    #[test]
    fn a_ping_closes_nothing() {
        assert_eq!(ping(None), [0x89, 0]);
        assert_eq!(ping(Some([1, 2, 3, 4])), [0x89, 0x80, 1, 2, 3, 4]);
        let mut frames = Frames::default();
        frames.passed(&ping(None));
        assert!(frames.at_border() && !frames.closed());
    }

    #[test]
    fn no_bytes_panic() {
        let mut rng = crate::rng::Rng::seeded(8);
        let mut frames = Frames::default();
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..rng.below(20)).map(|_| rng.below(256) as u8).collect();
            frames.passed(&bytes);
        }
    }
}
