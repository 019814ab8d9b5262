// What numbers are called: the page's words for counts, parts, rates and spans of time.

const count = (value) => value.toLocaleString("en-GB");
const clock = (time) => new Date(time).toLocaleTimeString("en-GB");
const percent = (part) => `${Math.round(part * 100)} %`;

/** Three significant digits are all that a learned number is good for. */
function number(value) {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const rounded = value >= 1000 ? Number(value.toPrecision(3)) : Number(value.toFixed(digits));
  return rounded.toLocaleString("en-GB");
}

/** How many times as much: one place is all that an estimate is good for, and keeps a column straight. */
const times = (value) => `${value < 10 ? value.toFixed(1) : count(Math.round(value))} ×`;

/** The two largest units: "2 d 4 h", "3 min 20 s". */
function span(seconds) {
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    if (whole > 0) parts.push(`${whole} ${unit}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

function lasted(seconds) {
  if (seconds < 0.9995) return `${number(seconds * 1000)} ms`;
  return seconds < 120 ? `${number(seconds)} s` : span(seconds);
}
