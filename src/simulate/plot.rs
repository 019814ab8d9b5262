//! Scores as a picture: for each policy a line from its mean to its p95, on a logarithmic axis.
//!
//! Logarithmic, because policies differ by factors and one that is overloaded would press all others to the edge. Plain
//! SVG without a script or a font of its own; it takes the colour of the text around it, so that it can be read on light
//! and on dark ground.

use std::fmt::Write as _;

use super::report::time;
use super::score::Score;

const WIDTH: f64 = 720.0;
const ROW: f64 = 26.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 140.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 34.0;

/// The axis, from and to a decimal logarithm.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    /// One that everything is on.
    fn over(scores: &[&Score]) -> Self {
        let times = scores
            .iter()
            .flat_map(|score| [score.e2e_mean_s, score.e2e_p95_s]);
        let logs = || times.clone().filter(|time| *time > 0.0).map(f64::log10);
        let (from, to) = (logs().reduce(f64::min), logs().reduce(f64::max));
        let from = (from.unwrap_or(0.0) * 3.0).floor() / 3.0;
        let to = (to.unwrap_or(0.0) * 3.0).ceil() / 3.0;
        Axis {
            from,
            to: to.max(from + 1.0),
        }
    }

    fn x(&self, seconds: f64) -> f64 {
        let log = seconds.max(1e-9).log10();
        LEFT + (log - self.from) / (self.to - self.from) * (WIDTH - LEFT - RIGHT)
    }

    /// 1, 2, 5, 10, …
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let decades = (-6_i32..6).map(|power| 10_f64.powi(power));
        decades
            .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * decade))
            .filter(|tick| (self.from - 1e-9..=self.to + 1e-9).contains(&tick.log10()))
    }
}

/// The picture, under this title.
#[must_use]
pub fn plot(title: &str, scores: &[Score]) -> String {
    let mut rows: Vec<&Score> = scores.iter().collect();
    rows.sort_by(|one, other| one.e2e_mean_s.total_cmp(&other.e2e_mean_s));
    let axis = Axis::over(&rows);
    #[expect(clippy::cast_precision_loss, reason = "a dozen rows")]
    let foot = TOP + ROW * rows.len() as f64;
    let height = foot + BOTTOM;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"currentColor\">\n\
         <title>{title}</title>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"600\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"42\" opacity=\"0.7\">time until an answer is complete: ● mean, ○ p95, in seconds</text>\n",
        title = escaped(title),
    );
    for tick in axis.ticks() {
        let x = axis.x(tick);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {TOP} V{foot}\" stroke=\"currentColor\" opacity=\"0.15\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" opacity=\"0.7\">{tick}</text>",
            foot + 18.0
        );
    }
    let mut y = TOP + ROW / 2.0;
    for score in rows {
        row(&mut out, (score, y), &axis);
        y += ROW;
    }
    out.push_str("</svg>\n");
    out
}

fn row(out: &mut String, (score, y): (&Score, f64), axis: &Axis) {
    let (mean, p95) = (axis.x(score.e2e_mean_s), axis.x(score.e2e_p95_s));
    let (weight, colour) = match score.policy {
        "least_time" => (700, "#0a7d8c"),
        _ => (400, "currentColor"),
    };
    let _ = writeln!(
        out,
        "<g fill=\"{colour}\" stroke=\"{colour}\" stroke-width=\"2\">\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" stroke=\"none\" font-weight=\"{weight}\">{}</text>\n\
         <path d=\"M{mean:.1} {y:.1} H{p95:.1}\"/><circle cx=\"{mean:.1}\" cy=\"{y:.1}\" r=\"5\"/>\
         <circle cx=\"{p95:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"none\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" stroke=\"none\" opacity=\"0.8\">{}, p95 {}</text>\n</g>",
        LEFT - 12.0,
        y + 4.0,
        escaped(score.policy),
        p95 + 10.0,
        y + 4.0,
        time(score.e2e_mean_s),
        time(score.e2e_p95_s),
    );
}

/// Text that can stand between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_on_the_picture_and_farther_right_means_longer() {
        let score = |policy, mean: f64| Score {
            policy,
            e2e_mean_s: mean,
            e2e_p95_s: mean * 3.0,
            ttft_p50_s: 0.0,
            ttft_p95_s: 0.0,
            ttft_p99_s: 0.0,
            goodput: 1.0,
            hit_ratio: 0.0,
            errors: 0,
        };
        let scores = [score("random", 900.0), score("least_time", 0.04)];
        let axis = Axis::over(&scores.iter().collect::<Vec<_>>());
        let places = [0.04, 0.12, 900.0, 2_700.0].map(|time| axis.x(time));
        assert!(places.is_sorted());
        assert!(places[0] >= LEFT && places[3] <= WIDTH - RIGHT);
        let picture = plot("a < b", &scores);
        assert!(
            picture.contains("a &lt; b") && picture.find("least_time") < picture.find("random")
        );
        assert_eq!(picture.matches("<circle").count(), 4);
        assert!(!picture.contains("NaN") && !plot("", &[]).contains("NaN"));
    }
}
