//! Scores as a person reads them: a table, and one sentence on what a change of the fleet is worth.

use std::fmt::Write as _;

use super::score::Score;

/// The reference that others are compared with.
const REFERENCE: &str = "oracle";

/// A row for each policy, the fastest first.
#[must_use]
pub fn table(scores: &[Score]) -> String {
    let mut rows: Vec<&Score> = scores.iter().collect();
    rows.sort_by(|one, other| one.e2e_mean_s.total_cmp(&other.e2e_mean_s));
    let reference = scores.iter().find(|score| score.policy == REFERENCE);
    let mut out = format!(
        "{:20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6} {:>7} {:>9}\n",
        "policy",
        "mean",
        "p95",
        "ttft p50",
        "ttft p95",
        "ttft p99",
        "in time",
        "hits",
        "errors",
        "of oracle"
    );
    for score in rows {
        let of = reference.map(|best| score.e2e_mean_s / best.e2e_mean_s);
        let of = of
            .filter(|of| of.is_finite())
            .map_or("-".to_owned(), |of| format!("{of:.2}"));
        let _ = writeln!(
            out,
            "{:20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7.1}% {:>5.1}% {:>7} {of:>9}",
            score.policy,
            time(score.e2e_mean_s),
            time(score.e2e_p95_s),
            time(score.ttft_p50_s),
            time(score.ttft_p95_s),
            time(score.ttft_p99_s),
            score.goodput * 100.0,
            score.hit_ratio * 100.0,
            score.errors,
        );
    }
    out
}

/// What becomes of the same load when the fleet changes.
#[must_use]
pub fn change(before: &Score, after: &Score) -> String {
    let percent = (after.e2e_mean_s / before.e2e_mean_s - 1.0) * 100.0;
    format!(
        "With this change {} takes {} on average instead of {} ({percent:+.1} %), p95 {} instead of {}, in time {:.1} % \
         instead of {:.1} %.",
        after.policy,
        time(after.e2e_mean_s),
        time(before.e2e_mean_s),
        time(after.e2e_p95_s),
        time(before.e2e_p95_s),
        after.goodput * 100.0,
        before.goodput * 100.0,
    )
}

/// A time with three digits that count.
#[must_use]
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.999_5 => format!("{:.1} ms", s * 1e3),
        s if s < 9.995 => format!("{s:.2} s"),
        s if s < 99.95 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(policy: &'static str, mean: f64) -> Score {
        Score {
            policy,
            e2e_mean_s: mean,
            e2e_p95_s: mean * 2.0,
            ttft_p50_s: 0.5,
            ttft_p95_s: 1.0,
            ttft_p99_s: 2.0,
            goodput: 0.9,
            hit_ratio: 0.25,
            errors: 0,
        }
    }

    #[test]
    fn the_fastest_comes_first_and_is_compared_with_the_oracle() {
        let table = table(&[score("random", 20.0), score("oracle", 10.0)]);
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[1].starts_with("oracle") && lines[1].ends_with("1.00"),
            "{table}"
        );
        assert!(
            lines[2].starts_with("random") && lines[2].ends_with("2.00"),
            "{table}"
        );
        assert!(!super::table(&[score("random", 20.0)]).contains("2.00\n"));
    }

    #[test]
    fn a_change_is_told_in_a_sentence() {
        let told = change(&score("least_time", 8.0), &score("least_time", 10.0));
        assert!(
            told.contains("10.0 s on average instead of 8.00 s (+25.0 %)"),
            "{told}"
        );
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [0.0403, 1.234, 12.34, 321.4].map(time),
            ["40.3 ms", "1.23 s", "12.3 s", "321 s"]
        );
    }
}
