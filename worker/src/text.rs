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
use crate::units::{Activation, Padding, Pooling};

/// The token ids of one text, or of two that belong together, special tokens included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// One per token.
    pub ids: Vec<u32>,
    /// Where the second text begins; as long as the row where there is none.
    pub second: usize,
}

impl From<Vec<u32>> for Row {
    fn from(ids: Vec<u32>) -> Row {
        let second = ids.len();
        Row { ids, second }
    }
}

/// How long the longest of these rows is.
pub fn longest(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.ids.len()).max().unwrap_or(0)
}

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
        Ok(encoding.get_ids().to_vec().into())
    }

    /// The ids of two texts, the longer of which is cut first.
    pub fn read_pair(&self, first: &str, second: &str) -> Result<Row, String> {
        let encoding = self.tokenizer.encode_fast((first, second), true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        let ids = encoding.get_ids().to_vec();
        let types = encoding.get_type_ids().iter();
        let second = types.take_while(|kind| **kind == 0).count();
        Ok(Row { ids, second })
    }

    /// Ids that a client made itself: taken as they are, cut at the model's limit. `Err` names an id that is no token.
    pub fn adopt(&self, mut ids: Vec<u32>) -> Result<Row, u32> {
        match ids.iter().find(|&&id| id >= self.vocabulary) {
            Some(&stranger) => Err(stranger),
            None => {
                ids.truncate(self.max_tokens);
                Ok(ids.into())
            }
        }
    }

    /// The text of these ids. `Err` says what is wrong with them.
    pub fn write(&self, ids: &[i64], skip_special_tokens: bool) -> Result<String, String> {
        let known = |id: &i64| {
            let token = u32::try_from(*id).ok();
            let token = token.filter(|token| *token < self.vocabulary);
            token.ok_or_else(|| format!("{id} is no token here"))
        };
        let ids: Vec<u32> = ids.iter().map(known).collect::<Result<_, _>>()?;
        let text = self.tokenizer.decode(&ids, skip_special_tokens);
        text.map_err(|error| error.to_string())
    }

    /// The id that fills short rows.
    pub fn pad(&self) -> u32 {
        self.pad
    }

    /// How long these rows are once they are filled up.
    pub fn width(&self, rows: &[Row], padding: Padding) -> usize {
        match padding {
            Padding::Longest(multiple) => longest(rows).next_multiple_of(multiple.max(1)),
            Padding::Most => self.max_tokens,
        }
    }
}

/// What an embedding graph takes, one per input it may declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// `input_ids`.
    Ids,
    /// `attention_mask`: 1 for a token, 0 for padding.
    Mask,
    /// `token_type_ids`: 1 for tokens of a second text.
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

    /// The input's tensor for these rows, filled up to this width. `None` if one of them is longer.
    pub fn tensor(self, rows: &[Row], width: usize, pad: u32) -> Option<Tensor> {
        let mut cells = Vec::with_capacity(rows.len() * width);
        for row in rows {
            let filler = width.checked_sub(row.ids.len())?;
            let cell = |(place, token): (usize, &u32)| match self {
                Feed::Ids => i64::from(*token),
                Feed::Mask => 1,
                Feed::Types => i64::from(place >= row.second),
            };
            let padding = match self {
                Feed::Ids => i64::from(pad),
                Feed::Mask | Feed::Types => 0,
            };
            cells.extend(row.ids.iter().enumerate().map(cell));
            cells.extend(repeat_n(padding, filler));
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
                .map(|(states, &length)| pool(states.chunks(width).take(length), width, pooling))
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
pub fn pool<'a>(
    states: impl Iterator<Item = &'a [f32]>,
    width: usize,
    pooling: Pooling,
) -> Vec<f32> {
    let counted = match pooling {
        Pooling::Cls => 1,
        Pooling::Mean | Pooling::None => usize::MAX,
    };
    let mut sum = vec![0.0f32; width];
    let mut count = 0;
    for state in states.take(counted) {
        count += 1;
        for (total, value) in sum.iter_mut().zip(state) {
            *total += value;
        }
    }
    sum.iter_mut()
        .for_each(|total| *total /= count.max(1) as f32);
    sum
}

/// Turns the scores of one text's classes into what they are to be read as.
pub fn activate(scores: &mut [f32], activation: Activation) {
    match activation {
        Activation::None => {}
        Activation::Sigmoid => {
            for score in scores {
                *score = 1.0 / (1.0 + (-*score).exp());
            }
        }
        Activation::Softmax => {
            // Without the highest, which changes nothing of the outcome, so that no power overflows.
            let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores
                .iter_mut()
                .for_each(|score| *score = (*score - highest).exp());
            let sum: f32 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
        }
    }
}

/// Scales to length 1; a vector of zeros stays.
pub fn to_unit_length(vector: &mut [f32]) {
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
    fn rows_are_filled_up_and_the_mask_says_where() {
        let pair = Row {
            ids: vec![5, 6, 7],
            second: 2,
        };
        let rows = [pair, vec![8].into()];
        let cells = |feed: Feed| match feed.tensor(&rows, 4, 9).unwrap().elements() {
            Elements::Int64(cells) => cells.clone(),
            _ => vec![],
        };
        assert_eq!(cells(Feed::Ids), [5, 6, 7, 9, 8, 9, 9, 9]);
        assert_eq!(cells(Feed::Mask), [1, 1, 1, 0, 1, 0, 0, 0]);
        assert_eq!(cells(Feed::Types), [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(longest(&rows), 3);
        assert!(Feed::Ids.tensor(&rows, 2, 9).is_none());
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
    fn scores_become_probabilities() {
        let active = |activation| {
            let mut scores = [1000.0, 1000.0, f32::MIN];
            activate(&mut scores, activation);
            scores
        };
        assert_eq!(active(Activation::Softmax), [0.5, 0.5, 0.0]);
        assert_eq!(active(Activation::Sigmoid), [1.0, 1.0, 0.0]);
        assert_eq!(active(Activation::None), [1000.0, 1000.0, f32::MIN]);
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
