// The page's list of the last requests, and the one of them that is open: why it went where it went.

/** The button of the request whose choices are shown, while they are; the list stands still as long. */
let opened = null;

function requestRow(request) {
  const button = element("button", "", clock(request.time));
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-label", `Why? The request that came at ${clock(request.time)}`);
  button.addEventListener("click", () => (button === opened ? fold() : unfold(button, request)));
  const failed = request.status >= 400 || request.reason !== "ok";
  const tries = request.attempts > 1 ? quiet(`${count(request.attempts)} attempts`) : "";
  const tenant = request.tenant === "-" ? "" : quiet(request.tenant);
  return row(`${request.time} ${request.id}`,
    cell("Came", "", button),
    cell("Model", "", element("div", "name", request.model ?? "–"), tenant),
    cell("Worker", "", request.worker ?? quiet("none"), tries),
    cell("Ended", failed ? "failed" : "", failed ? `${request.status} ${request.reason}` : String(request.status)),
    cell("Took", "n", lasted(request.total_s)),
    cell("Price", "n", request.price ? lasted(request.price.total_s) : quiet("none")),
    cell("Where it lies", "wide", ...(request.price ? price(request.price) : [quiet("nobody was priced")])));
}

function drawRequests(requests) {
  show("#requests > table", requests.length > 0);
  show("#legend", requests.length > 0);
  const none = requests.length > 0 ? "the newest first; each opens" : "None since the start.";
  say("#requests > p", opened ? "The list stands still while a request is open." : none);
  if (!opened) place("#requests", requests.map(requestRow));
}

function shut() {
  opened?.setAttribute("aria-expanded", "false");
  opened?.closest("tr").nextElementSibling.remove();
  opened = null;
}

function fold() {
  shut();
  redraw();
}

/** Another that is open is closed, and the list stands still in between: this row may be none of the latest any more. */
async function unfold(button, { id }) {
  shut();
  const text = element("td", "", "asking …");
  text.colSpan = 7;
  button.closest("tr").after(element("tr", "why", text));
  button.setAttribute("aria-expanded", "true");
  opened = button;
  redraw();
  try {
    const answer = await fetch(`/api/requests/${encodeURIComponent(id)}`, { cache: "no-store" });
    const told = await answer.json();
    text.replaceChildren(...(answer.ok ? why(told) : [told.error.message]));
  } catch {
    text.replaceChildren("Forebay can't be reached.");
  }
}

/** Where the time went, then each choice: who was considered, at what price. */
function why({ id, culprit, choices }) {
  const dearest = Math.max(...choices.flatMap((choice) => choice.candidates.map((one) => one.total_s ?? 0)), 0.000001);
  const told = choices.flatMap((choice, at) => {
    const sent = choice.worker ? `${choice.worker}: ${choice.outcome ?? "not ended"}` : "nobody was picked";
    const more = choice.left_out > 0 ? `, and ${count(choice.left_out)} more` : "";
    return [quiet(`Choice ${at + 1} after ${lasted(choice.chosen_s)}: ${sent}${more}`), candidates(choice, dearest)];
  });
  return [element("p", "", culprit.sentence), ...told, quiet(`id ${id}`)];
}

function candidates(choice, dearest) {
  const rows = choice.candidates.map((one) => element("tr", "",
    cell("Worker", "name", one.worker ?? "gone"),
    cell("Fate", "", one.fate),
    cell("Price", "n", one.total_s === undefined ? quiet("not priced") : lasted(one.total_s)),
    cell("Where it lies", "wide", ...(one.terms_s ? price(one, one.total_s / dearest) : []))));
  return element("table", "", element("tbody", "", ...rows));
}

