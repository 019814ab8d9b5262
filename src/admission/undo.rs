//! Bodies that come compressed: read for routing, and passed on as they came.
//!
//! What a body says counts toward the same limits as the body itself, so that a bomb is refused when it has grown as
//! large as a plain body may be (promise P34).
//!
//! A gRPC message is compressed by itself, as `grpc-encoding` says, and its flag tells whether it is (gRPC over
//! HTTP/2). It is held to the same.

use bytes::Bytes;

use super::Intake;
use super::body::{Counted, Held};
use super::coding::{Coding, Decoder, STEP, bad, unknown};
use crate::facts::{self, PREFIX};
use crate::fault::Fault;

impl Intake {
    /// Reads what a compressed body says; a plain one stays as it is.
    ///
    /// # Errors
    /// `bad_request` when it can't be undone, `body_too_large`, `overloaded`.
    pub async fn undo(&self, held: &mut Held, coding: Option<Coding>) -> Result<(), Fault> {
        let Some(coding) = coding.filter(|_| !held.bytes().is_empty()) else {
            return Ok(());
        };
        let packed = held.bytes().clone();
        let room = (0, 0);
        let plain = self.unpack(held.counted(), coding, packed, room).await?;
        held.says(plain.into());
        Ok(())
    }

    /// Reads what the first message of a call says, if it is compressed; the others stay as they are.
    ///
    /// # Errors
    /// `unsupported_encoding` when it is so in a way that is not known here, else as [`Intake::undo`] has them.
    pub async fn undo_message(&self, held: &mut Held, coding: Option<Coding>) -> Result<(), Fault> {
        let body = held.bytes().clone();
        let packed = facts::first_message(&body)?.filter(|_| facts::is_compressed(&body));
        let Some(packed) = packed else {
            return Ok(());
        };
        let coding = coding.ok_or_else(unknown)?;
        let rest = &body[PREFIX + packed.len()..];
        let packed = body.slice_ref(packed);
        let room = (PREFIX, rest.len());
        let mut text = self.unpack(held.counted(), coding, packed, room).await?;
        let prefix = facts::message_prefix(text.len() - PREFIX);
        text[..PREFIX].copy_from_slice(&prefix.ok_or_else(|| bad("the message is too long"))?);
        text.extend_from_slice(rest);
        held.says(text.into());
        Ok(())
    }

    /// What is compressed there, counted toward the limits, behind room for this much and with room for so much behind
    /// it.
    async fn unpack(
        &self,
        counted: &mut Counted,
        coding: Coding,
        packed: Bytes,
        (before, behind): (usize, usize),
    ) -> Result<Vec<u8>, Fault> {
        let mut decoder = Decoder::new(coding, packed.clone());
        let length = before + self.measure(counted, &mut decoder).await?;
        decoder.ended()?;
        let mut plain = Vec::with_capacity(length + behind);
        plain.resize(length, 0);
        let mut decoder = Decoder::new(coding, packed);
        let mut filled = before;
        while filled < length {
            let step = (filled + STEP).min(length);
            filled += decoder.read(&mut plain[filled..step])?;
            tokio::task::yield_now().await;
        }
        Ok(plain)
    }

    /// How much it says, counted toward the limits. Told before it is kept, so that a bomb takes no memory.
    async fn measure(&self, counted: &mut Counted, decoder: &mut Decoder) -> Result<usize, Fault> {
        let mut scratch = vec![0; STEP];
        let mut length = 0;
        loop {
            let more = decoder.read(&mut scratch)?;
            if more == 0 {
                return Ok(length);
            }
            self.count(counted, more)?;
            length += more;
            tokio::task::yield_now().await;
        }
    }
}
