//! "Did you mean": the nearest known word to one that is not known.

/// The nearest of `known` to `word`, if it is near enough to be a slip of the finger: one edit for short words, a
/// third of the letters for longer ones.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let budget = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(edits, _)| *edits <= budget)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["max_inflight", "models", "url"];
        assert_eq!(nearest("max_infligth", known), Some("max_inflight"));
        assert_eq!(nearest("model", known), Some("models"));
        assert_eq!(nearest("ulr", known), Some("url"));
        assert_eq!(nearest("colour", known), None);
    }
}
