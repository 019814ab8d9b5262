//! Texts in, vectors out: everything around the graph of an embedding model.
//!
//! A `tokenizer.json` often asks for padding and truncation that suited whoever exported it: all-MiniLM-L6-v2's asks
//! for 128 tokens, always, so a text of five tokens costs what one of 128 does and longer ones lose their end although
//! the model takes 256. Both are overridden here: rows are cut at the model's own `max_tokens` and padded to the
//! longest row of their batch.

use std::iter::repeat_n;
use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::tensor::{Elements, Tensor};
use crate::units::Pooling;

/// The token ids of one text, special tokens included.
pub type Row = Vec<u32>;

/// Turns text into token ids the way the model was trained to read them.
pub struct Reader {
    tokenizer: Tokenizer,
    max_tokens: usize,
    pad: u32,
    vocabulary: u32,
}

impl Reader {
    /// Reads a `tokenizer.json`. Without `max_tokens`, the file's own truncation counts, else 512.
    pub fn open(path: &Path, max_tokens: Option<usize>) -> Result<Reader, String> {
        let mut tokenizer = Tokenizer::from_file(path).map_err(|error| error.to_string())?;
        let own = tokenizer.get_truncation().map(|cut| cut.max_length);
        let max_tokens = max_tokens.or(own).unwrap_or(512);
        let pad = tokenizer.get_padding().map_or(0, |padding| padding.pad_id);
        tokenizer.with_padding(None);
        // The crate subtracts special tokens without a check, so a limit below them must not reach it.
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
        let special = tokenizer.encode("", true).map_err(|e| e.to_string())?.len();
        if max_tokens <= special {
            return Err(format!(
                "max_tokens = {max_tokens} leaves no room beside {special} special tokens"
            ));
        }
        let truncation = TruncationParams {
            max_length: max_tokens,
            ..TruncationParams::default()
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(|error| error.to_string())?;
        let vocabulary = u32::try_from(tokenizer.get_vocab_size(true)).unwrap_or(u32::MAX);
        Ok(Reader {
            tokenizer,
            max_tokens,
            pad,
            vocabulary,
        })
    }

    /// The ids of a text, cut at the model's limit.
    pub fn read(&self, text: &str) -> Result<Row, String> {
        let encoding = self.tokenizer.encode_fast(text, true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Ids that a client made itself: taken as they are, cut at the model's limit. `Err` names an id that is no token.
    pub fn adopt(&self, mut ids: Row) -> Result<Row, u32> {
        match ids.iter().find(|&&id| id >= self.vocabulary) {
            Some(&stranger) => Err(stranger),
            None => {
                ids.truncate(self.max_tokens);
                Ok(ids)
            }
        }
    }

    /// The id that fills short rows.
    pub fn pad(&self) -> u32 {
        self.pad
    }
}

/// What an embedding graph takes, one per input it may declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// `input_ids`.
    Ids,
    /// `attention_mask`: 1 for a token, 0 for padding.
    Mask,
    /// `token_type_ids`: 0 throughout, as only single texts are embedded.
    Types,
}

impl Feed {
    /// The feed for an input of this name, by the names that exporters agree on.
    pub fn from_name(name: &str) -> Option<Feed> {
        match name {
            "input_ids" => Some(Feed::Ids),
            "attention_mask" => Some(Feed::Mask),
            "token_type_ids" => Some(Feed::Types),
            _ => None,
        }
    }

    /// The input's tensor for these rows, padded to the longest. `None` if there are no rows.
    pub fn tensor(self, rows: &[Row], pad: u32) -> Option<Tensor> {
        let width = rows.iter().map(Vec::len).max()?;
        let mut cells = Vec::with_capacity(rows.len() * width);
        for row in rows {
            let filler = width - row.len();
            let cell = |token: Option<u32>| match self {
                Feed::Ids => i64::from(token.unwrap_or(pad)),
                Feed::Mask => i64::from(token.is_some()),
                Feed::Types => 0,
            };
            cells.extend(row.iter().map(|&token| cell(Some(token))));
            cells.extend(repeat_n(cell(None), filler));
        }
        Tensor::new(vec![rows.len(), width], Elements::Int64(cells))
    }
}

/// One vector per text from what the graph gave. `lengths` are the rows' tokens without padding. `Err` says how the
/// output does not fit.
pub fn vectors(
    output: &Tensor,
    lengths: &[usize],
    pooling: Pooling,
    normalize: bool,
) -> Result<Vec<Vec<f32>>, String> {
    let Elements::Fp32(values) = output.elements() else {
        let datatype = output.elements().datatype();
        return Err(format!("the output is {datatype}, not FP32"));
    };
    let mut vectors: Vec<Vec<f32>> = match (pooling, output.shape()) {
        (Pooling::None, &[rows, width]) if rows == lengths.len() && width > 0 => {
            values.chunks(width).map(<[f32]>::to_vec).collect()
        }
        (Pooling::Mean | Pooling::Cls, &[rows, tokens, width])
            if rows == lengths.len() && width > 0 && lengths.iter().all(|&l| l <= tokens) =>
        {
            let states = values.chunks((tokens * width).max(1)).zip(lengths);
            states
                .map(|(states, &length)| pool(states, length, width, pooling))
                .collect()
        }
        (_, shape) => {
            let rows = lengths.len();
            return Err(format!(
                "the output's shape {shape:?} gives no vector for each of {rows} texts with pooling {pooling:?}"
            ));
        }
    };
    if normalize {
        for vector in &mut vectors {
            to_unit_length(vector);
        }
    }
    Ok(vectors)
}

/// One vector from the states of a text's tokens; a text of no tokens gives zeros.
fn pool(states: &[f32], length: usize, width: usize, pooling: Pooling) -> Vec<f32> {
    if pooling == Pooling::Cls {
        return states[..width].to_vec();
    }
    let mut sum = vec![0.0f32; width];
    for state in states.chunks(width).take(length) {
        for (total, value) in sum.iter_mut().zip(state) {
            *total += value;
        }
    }
    let count = length.max(1) as f32;
    sum.iter_mut().for_each(|total| *total /= count);
    sum
}

/// Scales to length 1; a vector of zeros stays.
fn to_unit_length(vector: &mut [f32]) {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::new(shape.to_vec(), Elements::Fp32(values.to_vec())).unwrap()
    }

    #[test]
    fn rows_are_padded_to_the_longest_and_the_mask_says_where() {
        let rows = [vec![5, 6, 7], vec![8]];
        let cells = |feed: Feed| match feed.tensor(&rows, 9).unwrap().elements() {
            Elements::Int64(cells) => cells.clone(),
            _ => vec![],
        };
        assert_eq!(cells(Feed::Ids), [5, 6, 7, 8, 9, 9]);
        assert_eq!(cells(Feed::Mask), [1, 1, 1, 1, 0, 0]);
        assert_eq!(cells(Feed::Types), [0; 6]);
    }

    #[test]
    fn the_mean_leaves_padding_out() {
        let output = states(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 900.0, 900.0]);
        let means = vectors(&output, &[2, 1], Pooling::Mean, false).unwrap();
        assert_eq!(means, [vec![2.0, 3.0], vec![5.0, 6.0]]);
        let firsts = vectors(&output, &[2, 1], Pooling::Cls, false).unwrap();
        assert_eq!(firsts, [vec![1.0, 2.0], vec![5.0, 6.0]]);
    }

    #[test]
    fn normalised_vectors_have_length_one_and_zeros_stay_zeros() {
        let output = states(&[2, 2], &[3.0, 4.0, 0.0, 0.0]);
        let unit = vectors(&output, &[1, 1], Pooling::None, true).unwrap();
        assert_eq!(unit, [vec![0.6, 0.8], vec![0.0, 0.0]]);
    }

    #[test]
    fn an_output_that_does_not_fit_is_named() {
        let output = states(&[1, 2], &[1.0, 2.0]);
        assert!(vectors(&output, &[1], Pooling::Mean, true).is_err());
        assert!(vectors(&output, &[1, 1], Pooling::None, true).is_err());
        let whole = Tensor::new(vec![1, 1], Elements::Int64(vec![1])).unwrap();
        assert!(vectors(&whole, &[1], Pooling::None, true).is_err());
    }
}
