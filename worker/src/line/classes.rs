//! The best classes of an output, as Triton's classification extension gives them: the highest values of each row, each
//! as a string `VALUE:INDEX`, or `VALUE:INDEX:LABEL` where the model's folder names its classes.

use std::cmp::Ordering;
use std::fmt::Display;

use crate::tensor::{Elements, Tensor};

/// The `count` highest values of each row, or of the whole tensor where its first axis counts no rows. `None` where the
/// elements are no numbers that stand for classes.
pub fn highest(tensor: &Tensor, rows: bool, count: usize, labels: &[String]) -> Option<Tensor> {
    let height = if rows { tensor.rows() } else { 1 };
    let width = tensor.elements().len() / height.max(1);
    let best = Best {
        width,
        count: count.min(width),
        labels,
    };
    let named = match tensor.elements() {
        Elements::Uint8(values) => best.of_whole(values),
        Elements::Uint16(values) => best.of_whole(values),
        Elements::Uint32(values) => best.of_whole(values),
        Elements::Uint64(values) => best.of_whole(values),
        Elements::Int8(values) => best.of_whole(values),
        Elements::Int16(values) => best.of_whole(values),
        Elements::Int32(values) => best.of_whole(values),
        Elements::Int64(values) => best.of_whole(values),
        Elements::Fp32(values) => best.of(
            values,
            |a, b| nan_last(a.into(), b.into()),
            |v| format!("{v:.6}"),
        ),
        Elements::Fp64(values) => best.of(values, nan_last, |value| format!("{value:.6}")),
        Elements::Bool(_) | Elements::Bytes(_) | Elements::Fp16(_) | Elements::Bf16(_) => {
            return None;
        }
    };
    let shape = match rows {
        true => vec![height, best.count],
        false => vec![best.count],
    };
    Tensor::new(shape, Elements::Bytes(named))
}

/// What is picked from each row.
struct Best<'a> {
    width: usize,
    count: usize,
    labels: &'a [String],
}

impl Best<'_> {
    fn of_whole<T: Copy + Ord + Display>(&self, values: &[T]) -> Vec<String> {
        self.of(values, |a, b| a.cmp(&b), |value| value.to_string())
    }

    /// The picked of all rows; equal values keep their order.
    fn of<T: Copy>(
        &self,
        values: &[T],
        order: impl Fn(T, T) -> Ordering,
        show: impl Fn(T) -> String,
    ) -> Vec<String> {
        let of_row = |row: &[T]| {
            let mut places: Vec<usize> = (0..row.len()).collect();
            places.sort_by(|&a, &b| order(row[b], row[a]));
            places.truncate(self.count);
            let named = |place: usize| {
                let value = show(row[place]);
                match self.labels.get(place) {
                    Some(label) => format!("{value}:{place}:{label}"),
                    None => format!("{value}:{place}"),
                }
            };
            places.into_iter().map(named).collect::<Vec<_>>()
        };
        values.chunks(self.width.max(1)).flat_map(of_row).collect()
    }
}

/// Ascending, with what is no number before all numbers, so that it is picked last.
fn nan_last(a: f64, b: f64) -> Ordering {
    b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(tensor: Option<Tensor>) -> (Vec<usize>, Vec<String>) {
        let tensor = tensor.unwrap();
        match tensor.elements() {
            Elements::Bytes(strings) => (tensor.shape().to_vec(), strings.clone()),
            other => panic!("no strings: {other:?}"),
        }
    }

    #[test]
    fn each_row_gives_its_highest_with_their_labels() {
        let values = Elements::Fp32(vec![0.1, 0.7, 0.2, 5.0, f32::NAN, 5.0]);
        let tensor = Tensor::new(vec![2, 3], values).unwrap();
        let labels = ["cat".to_owned(), "dog".to_owned()];
        let (shape, named) = strings(highest(&tensor, true, 2, &labels));
        assert_eq!(shape, [2, 2]);
        assert_eq!(
            named,
            [
                "0.700000:1:dog",
                "0.200000:2",
                "5.000000:0:cat",
                "5.000000:2"
            ]
        );
        let (shape, named) = strings(highest(&tensor, false, 1, &[]));
        assert_eq!((shape, named), (vec![1], vec!["5.000000:3".to_owned()]));
    }

    #[test]
    fn whole_numbers_stay_whole_and_no_more_are_given_than_there_are() {
        let tensor = Tensor::new(vec![2], Elements::Int64(vec![-1, i64::MAX])).unwrap();
        let (_, named) = strings(highest(&tensor, false, 9, &[]));
        assert_eq!(named, [format!("{}:1", i64::MAX), "-1:0".to_owned()]);
        let words = Tensor::new(vec![1], Elements::Bytes(vec!["x".into()])).unwrap();
        assert!(highest(&words, false, 1, &[]).is_none());
    }
}
