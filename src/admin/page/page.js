// The status page. Once a second `/api/events` tells a whole picture; it is drawn anew, and what says the same as before
// is left alone, so that focus and selection outlive it. Whatever comes from the proxy is put in as text, never as markup.

const UNKNOWN = "unknown";
/** Silence after which what is shown is called old, in milliseconds. Pictures come each second. */
const SILENCE = 5000;
/** Time until somebody who was turned away asks again, in milliseconds. */
const PATIENCE = 5000;
/** More workers than this are shown in one line each, and can be searched. */
const MANY = 15;

/** The terms of a price, in the order in which time passes; the last three are no time of the request itself. */
const TERMS = {
  net: "network", lora: "adapter", swap: "model swap", wait: "wait", own: "prefill", decode: "decode",
  external: "delay of others", failure: "risk", price: "money",
};

const find = (selector) => document.querySelector(selector);
const say = (selector, text) => { if (find(selector).textContent !== text) find(selector).textContent = text; };
const show = (selector, visible) => { find(selector).hidden = !visible; };

// ── Elements ─────────────────────────────────────────────────────────────────────────────────────────────────────────

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

const quiet = (...children) => element("div", "quiet", ...children);

function cell(label, className, ...children) {
  const made = element("td", className, element("div", "", ...children));
  made.dataset.label = label;
  return made;
}

function row(key, ...cells) {
  const made = element("tr", "", ...cells);
  made.dataset.key = key;
  return made;
}

/** Puts these rows in; one that says what it said before stays the one it is. */
function place(section, rows) {
  const body = find(`${section} > table > tbody`);
  const had = new Map([...body.children].map((old) => [old.dataset.key, old]));
  const put = rows.map((fresh) => {
    const old = had.get(fresh.dataset.key);
    had.delete(fresh.dataset.key);
    return old && old.isEqualNode(fresh) ? old : fresh;
  });
  const stays = new Set(put);
  [...body.children].filter((old) => !stays.has(old)).forEach((old) => old.remove());
  put.forEach((fresh, at) => {
    if (body.children[at] !== fresh) body.insertBefore(fresh, body.children[at] ?? null);
  });
}

function bar(part) {
  const fill = element("span", "fill");
  fill.style.width = `${Math.min(100, Math.max(0, part * 100))}%`;
  const track = element("div", "bar", fill);
  track.setAttribute("aria-hidden", "true");
  return track;
}

/** A price as a bar, `part` of the width long, and in words what most of it is. */
function price({ total_s: total, terms_s: terms }, part = 1) {
  const named = Object.keys(TERMS).map((term) => [term, terms[term] ?? 0]);
  const seen = named.filter(([, seconds]) => seconds > total / 200);
  const bits = seen.map(([term, seconds]) => {
    const bit = element("span", term);
    // Below 1 in all they would leave a part of the bar empty.
    bit.style.flexGrow = (seconds / total) * 1000;
    return bit;
  });
  const whole = element("div", "bar terms", ...bits);
  whole.style.width = `${Math.max(1, part * 100)}%`;
  whole.setAttribute("aria-hidden", "true");
  const largest = seen.sort(([, a], [, b]) => b - a).slice(0, 3);
  return [whole, quiet(largest.map(([term, seconds]) => `${TERMS[term]} ${lasted(seconds)}`).join(", "))];
}

// ── Workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The least worth of those of which something is known; the others are multiples of it. */
function least(workers) {
  const weights = workers.filter((worker) => worker.speed > 0).map((worker) => worker.weight);
  return weights.length > 0 ? Math.min(...weights) : undefined;
}

function reads({ prefill }) {
  if (!prefill) return [quiet(UNKNOWN)];
  if (prefill.token_s > 0) return [number(1 / prefill.token_s)];
  return [lasted(prefill.request_s), quiet("each request")];
}

function writes({ prefill, decode }) {
  const step = decode ? decode.step_s + decode.stream_s : 0;
  if (step > 0) return [number(1 / step)];
  return [quiet(prefill ? "–" : UNKNOWN)];
}

function inflight(worker) {
  const { inflight: held, max_inflight: most, max_inflight_from: from, told } = worker;
  const words = most === undefined ? [count(held)] : [`${count(held)} of ${from === "learned" ? "about " : ""}${count(most)}`, bar(held / most)];
  if (held > 0) words.push(element("div", "quiet more", `${count(worker.queue)} reading, ${count(worker.decoding)} writing`));
  if (told && told.fresh && told.foreign >= 1) words.push(quiet(`and ${count(Math.round(told.foreign))} of others`));
  return words;
}

function share(worker) {
  const words = worker.share === undefined ? [quiet("none yet")] : [percent(worker.share), bar(worker.share)];
  const failed = worker.failures > 0 ? `, ${count(worker.failures)} failed` : "";
  return [...words, element("div", "quiet more", `${count(worker.requests)} sent${failed}`)];
}

/** The worker's state in words: why, for how long, and what of it an operator changed. */
function state(worker, now) {
  const until = worker.until ? `, for another ${span((Date.parse(worker.until) - now) / 1000)}` : "";
  const why = worker.reason ? `: ${worker.reason}` : "";
  const hand = worker.override?.speed ? ` · speed ${number(worker.override.speed)} by hand` : "";
  const slow = worker.slow_start ? ` · proving itself, ${count(worker.slow_start)} at a time` : "";
  const held = worker.held_s ? ` · asked to be left alone for ${span(worker.held_s)}` : "";
  return `${worker.state}${why}${until}${hand}${slow}${held}`;
}

const where = (worker) => [worker.engine, worker.machine, worker.region, worker.zone && `zone ${worker.zone}`, worker.url];

function workerRow(worker, base, now) {
  const name = element("span", `name ${worker.state}`, element("span", "mark"), worker.name);
  const words = element("span", worker.state === "up" ? "quiet" : "trouble", state(worker, now));
  return row(worker.name,
    cell("Worker", "", element("div", "title", name, words),
      element("div", "quiet more", where(worker).filter(Boolean).join(" · ")),
      element("div", "quiet more", worker.models.join(", ") || "no models known")),
    cell("Worth", "n", worker.speed > 0 ? times(worker.weight / base) : quiet(UNKNOWN)),
    cell("Reads", "n", ...reads(worker)),
    cell("Writes", "n", ...writes(worker)),
    cell("In flight", "n", ...inflight(worker)),
    cell("Share", "n", ...share(worker)),
    cell("Since", "n", span((now - Date.parse(worker.since)) / 1000)));
}

/** How many are in which state, the largest group first. */
function states(workers) {
  const groups = new Map();
  workers.forEach(({ state }) => groups.set(state, (groups.get(state) ?? 0) + 1));
  return [...groups].sort(([, a], [, b]) => b - a).map(([state, many]) => `${count(many)} ${state}`).join(", ");
}

function drawWorkers({ workers, now: drawn }) {
  const now = Date.parse(drawn);
  const sought = find("#sought").value.trim().toLowerCase();
  const text = (worker) => [worker.name, state(worker, now), ...where(worker), ...worker.models, ...(worker.tags ?? [])].join(" ");
  const shown = workers.filter((worker) => text(worker).toLowerCase().includes(sought));
  const base = least(workers);
  show("#finder", workers.length > MANY);
  find("#workers > table").classList.toggle("dense", shown.length > MANY);
  show("#workers > table", shown.length > 0);
  const among = shown.length < workers.length ? `${count(shown.length)} of ${count(workers.length)} shown` : states(workers);
  say("#states", workers.length > 0 ? among : "There are none.");
  place("#workers", shown.map((worker) => workerRow(worker, base, now)));
}

function drawRegions({ workers }) {
  const regions = Map.groupBy(workers.filter((worker) => worker.region), (worker) => worker.region);
  const sum = (list, key) => list.reduce((all, worker) => all + (worker[key] ?? 0), 0);
  show("#regions", regions.size > 0);
  show("nav [href='#regions']", regions.size > 0);
  place("#regions", [...regions].map(([name, there]) => {
    const trips = there.map((worker) => worker.rtt_s).filter((trip) => trip > 0);
    return row(name,
      cell("Region", "name", name),
      cell("Zone", "", there[0].zone ?? quiet("none")),
      cell("Up", "n", `${count(there.filter((worker) => worker.state === "up").length)} of ${count(there.length)}`),
      cell("In flight", "n", count(sum(there, "inflight"))),
      cell("Share", "n", percent(sum(there, "share"))),
      cell("Round trip", "n", trips.length > 0 ? lasted(Math.min(...trips)) : quiet(UNKNOWN)));
  }));
}

// ── Line and tenants ─────────────────────────────────────────────────────────────────────────────────────────────────

function drawLine(classes) {
  const waits = classes.some(({ depth }) => depth > 0);
  show("#line > table", waits);
  say("#line > p", waits ? "" : "Nobody waits.");
  place("#line", classes.map(({ class: name, depth, oldest_s: oldest, overloaded }) => row(name,
    cell("Class", "name", name),
    cell("Waiting", "n", count(depth)),
    cell("The eldest for", "n", depth > 0 ? span(oldest) : quiet("–")),
    cell("Order", "", overloaded ? "overloaded: the newest go first" : "first come, first served"))));
}

function budget({ budget: rule, used, used_ratio: ratio, ends }) {
  return element("div", "", `${used} of ${rule}`, bar(ratio), quiet(`until ${new Date(ends).toLocaleString("en-GB")}`));
}

function drawTenants({ tenants }) {
  show("#tenants", tenants.length > 0);
  show("nav [href='#tenants']", tenants.length > 0);
  place("#tenants", tenants.map((tenant) => row(tenant.name,
    cell("Tenant", "", element("div", "name", tenant.name),
      tenant.key_file?.trouble ? element("div", "trouble", `keys: ${tenant.key_file.trouble}`) : ""),
    cell("Open", "n", count(tenant.open)),
    cell("Tokens left", "n", tenant.tokens_left === undefined ? quiet("no limit") : count(tenant.tokens_left)),
    cell("Budgets", "wide", ...(tenant.budgets.length > 0 ? tenant.budgets.map(budget) : [quiet("none")])))));
}

// ── The whole ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The last picture, and when it came. */
let picture = null;
let heard = performance.now();

function redraw() {
  if (!picture) return;
  const { fleet, classes, tenants, requests, unready, reload } = picture;
  const up = fleet.workers.filter((worker) => worker.state === "up").length;
  const held = fleet.workers.reduce((all, worker) => all + worker.inflight, 0);
  const waiting = fleet.queued > 0 ? ` · ${count(fleet.queued)} waiting` : "";
  say("#summary", `${count(up)} of ${count(fleet.workers.length)} workers up · ${count(held)} in flight${waiting}`);
  say("#drawn", `as of ${clock(fleet.now)}`);
  document.title = up < fleet.workers.length ? `${up} of ${fleet.workers.length} up – Forebay` : "Forebay";
  say("#unready", unready ? `Nothing can be answered now: ${unready}` : "");
  show("#unready", Boolean(unready));
  drawReload(reload);
  drawWorkers(fleet);
  drawRegions(fleet);
  drawLine(classes);
  drawTenants(tenants);
  drawRequests(requests);
}

function drawReload(reload) {
  const refused = reload?.result === "refused";
  const pending = reload?.pending ?? [];
  const words = refused
    ? `The configuration was refused at ${clock(reload.time)}; the one before stays in force.\n${reload.problems.join("\n")}`
    : `Waits for a restart or forebay serve --upgrade: ${pending.join(", ")}`;
  say("#reload", refused || pending.length > 0 ? words : "");
  show("#reload", refused || pending.length > 0);
}

/** Says that what is shown is old, and why; nothing when it is not. The words stand still, so they are read out once. */
function alarm(why) {
  const old = picture ? `What is shown is from ${clock(picture.fleet.now)}.` : "Nothing is known yet.";
  say("#alarm", why && `${why} ${old}`);
  show("#alarm", Boolean(why));
  find("main").classList.toggle("stale", Boolean(why));
}

// ── The stream ───────────────────────────────────────────────────────────────────────────────────────────────────────

let source = null;
let retry = 0;

/** Listens, unless nobody looks. */
function listen() {
  hangUp();
  if (document.hidden) return;
  heard = performance.now();
  source = new EventSource("/api/events");
  source.onmessage = ({ data }) => {
    picture = JSON.parse(data);
    heard = performance.now();
    alarm("");
    redraw();
  };
  source.onerror = broken;
}

function hangUp() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

/** A stream that broke is opened again by the browser; one that was refused is not, and only another request tells why. */
async function broken() {
  if (source?.readyState !== EventSource.CLOSED) {
    alarm("Forebay can't be reached.");
    return;
  }
  hangUp();
  retry = setTimeout(listen, PATIENCE);
  try {
    const { status } = await fetch("/api/events", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (status === 401) {
      alarm("Forebay no longer knows this browser, probably because it was restarted. Open the address with the token again.");
    } else if (status === 503) {
      alarm("Too many pages listen to Forebay already. Close one of them.");
    } else {
      alarm(`Forebay answers ${status}.`);
    }
  } catch {
    alarm("Forebay can't be reached.");
  }
}

/** A stream may be open and yet say nothing: a proxy that hangs, a tunnel that swallows. */
function notice() {
  const open = source?.readyState === EventSource.OPEN;
  if (open && performance.now() - heard > SILENCE) alarm("Forebay says nothing.");
}

for (const [term, name] of Object.entries(TERMS)) {
  find("#legend").append(element("li", "", element("span", term), name));
}
find("#sought").addEventListener("input", redraw);
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || !opened) return;
  opened.focus();
  fold();
});
document.addEventListener("visibilitychange", () => (document.hidden ? hangUp() : listen()));
setInterval(notice, 1000);
listen();
