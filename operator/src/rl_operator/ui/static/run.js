// A run's page: its curves grow, and what changes around them is replaced, while it is trained.
"use strict";

// Replace the parts that changed; what has the focus gets it back.
function patchParts(html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  for (const part of fresh.content.querySelectorAll("[data-part]")) {
    const old = document.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!old || old.innerHTML === part.innerHTML) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    replaceChanged(old, [...part.childNodes]);
    if (focused) document.getElementById(focused)?.focus();
  }
}

// What stays the same keeps its selection and scroll position, and a button that is being pressed gets its click.
function replaceChanged(old, fresh) {
  const known = [...old.childNodes];
  if (known.length !== fresh.length) old.replaceChildren(...fresh);
  else known.forEach((node, at) => node.isEqualNode(fresh[at]) || node.replaceWith(fresh[at]));
}

function followCurves(element, page, note) {
  const board = new ChartBoard(element, (step) => { location.href = `${element.dataset.rollouts}?step=${step}`; });
  const axis = page.querySelector("[data-axis]");
  const costly = page.querySelector("[data-costly]");
  let attempt = 0, all = "";
  axis.addEventListener("change", (event) => board.show(event.target.value));

  const read = async () => {
    const steps = board.tables.steps?.step ?? [];
    const known = steps.length ? `after=${steps[steps.length - 1]}&attempt=${attempt}` : "";
    const answer = JSON.parse(await fetchPart(`${element.dataset.charts}?${known}${all}`));
    costly.hidden = !answer.costly;
    performance.mark("points");
    if (!isNew(board, answer)) return;
    if (answer.whole) takeAll(board, answer);
    else addPoints(board, answer);
    attempt = answer.attempt;
    board.marks = answer.marks;
    board.draw();
    axis.hidden = !board.hasTimes;
    axis.parentElement.hidden = !board.views.size;
    note.textContent = noteOf(board, answer);
    requestAnimationFrame(() => performance.measure("curves", "points"));
  };
  costly.addEventListener("click", (event) => {
    if (!event.target.matches("button")) return;
    all = "&all=1";
    costly.hidden = true;
    note.textContent = "Loading …";
    read().catch((error) => { note.textContent = `The curves cannot be read: ${error.message}.`; });
  });
  return read;
}

function isNew(board, answer) {
  if (answer.whole || answer.tables.steps.step.length) return true;
  const known = [board.tables.evaluations.step, board.marks], told = [answer.tables.evaluations.step, answer.marks];
  return JSON.stringify(known) !== JSON.stringify(told);
}

function takeAll(board, answer) {
  board.tables = answer.tables;
  board.specs = answer.charts.map((chart) => ({
    ...chart, lines: chart.lines.map((line) => ({ ...line, table: chart.table })),
  }));
}

// Evaluations always come whole: there are few, and one may arrive after later steps.
function addPoints(board, answer) {
  const { steps } = board.tables, more = answer.tables.steps;
  steps.step = steps.step.concat(more.step);
  steps.time = steps.time.concat(more.time);
  for (const name of Object.keys(more.columns)) steps.columns[name] = steps.columns[name].concat(more.columns[name]);
  board.tables.evaluations = answer.tables.evaluations;
}

function noteOf(board, answer) {
  const empty = board.views.size && board.empty.length ? `There are no values of: ${board.empty.join(", ")}` : "";
  return [answer.note, empty].filter(Boolean).map((each) => `${each}.`).join(" ");
}

function followRun(page) {
  const note = page.querySelector("[data-note]");
  const readCurves = followCurves(page.querySelector("[data-charts]"), page, note);
  const draw = once(async () => {
    try {
      await readCurves();
    } catch (error) {
      note.textContent = `The curves cannot be read: ${error.message}.`;
    }
  }, 0);
  const refresh = once(async () => {
    draw();
    patchParts(await fetchPart(`${page.dataset.url}?part=live`));
  }, 300);
  draw();
  onChange((changed) => {
    if (changed === null || changed.some((key) => key.join("/") === page.dataset.run)) refresh();
  });
}

// --- what is loaded when it is opened, and its buttons --------------------------------------------------------------
function loadWhenOpened(details) {
  const place = details.querySelector("div");
  details.addEventListener("toggle", () => details.open && !details.dataset.loaded && load(details.dataset.load));

  async function load(url) {
    try {
      place.innerHTML = await fetchPart(url);
      details.dataset.loaded = "yes";
    } catch (error) {
      place.append(`It cannot be read: ${error.message}`);
    }
    const log = place.querySelector(".log");
    if (log) log.scrollTop = log.scrollHeight;
  }

  place.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-part-form]")) return;
    event.preventDefault();
    load(`${details.dataset.load}&${new URLSearchParams(new FormData(event.target))}`);
  });
}

document.querySelectorAll("[data-run]").forEach(followRun);
document.querySelectorAll("details.lazy").forEach(loadWhenOpened);
