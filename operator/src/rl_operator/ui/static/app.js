// Keeps the page up to date: one stream of changes per tab, and only what changed is replaced.
"use strict";

const root = document.body.dataset.root;
const listeners = [];

// Call `react` with the changed runs, as [[namespace, name], …]; null after a (lost) connection is made: anything may have changed.
function onChange(react) {
  listeners.push(react);
  if (listeners.length === 1) connect();
}

function say(words) {
  const live = document.getElementById("live");
  live.textContent = words;
  live.hidden = !words;
}

// A tab that nobody sees needs no stream: browsers open few connections to one server.
function connect() {
  let source = null, over = false;

  function open() {
    if (source || over || document.hidden) return;
    source = new EventSource(document.body.dataset.live);
    source.addEventListener("open", () => { say(""); tell(null); });  // what changed until now was not heard
    source.addEventListener("changed", (event) => tell(JSON.parse(event.data)));
    source.addEventListener("over", (event) => { over = true; close(); say(`not live: ${JSON.parse(event.data)}`); });
    source.addEventListener("error", () => {
      const ended = source.readyState === EventSource.CLOSED;
      say(ended ? "not live: load the page again" : "not live: the server does not answer");
      if (ended) close();
    });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  open();
}

function tell(changed) {
  for (const react of listeners) react(changed);
}

// Run `work` soon, once for all calls until then; and again after it, if it was asked for meanwhile. If it fails, the
// page says why.
function once(work, milliseconds) {
  let waiting = false, busy = false, again = false;
  return async function ask() {
    if (busy) { again = true; return; }
    if (waiting) return;
    waiting = true;
    await new Promise((resume) => setTimeout(resume, milliseconds));
    waiting = false; busy = true;
    try { await work(); } catch (error) { say(`not live: ${error.message}`); } finally { busy = false; }
    if (again) { again = false; ask(); }
  };
}

// Raises what the server says, if it does not answer with the part.
async function fetchPart(url) {
  const answer = await fetch(url, { headers: { "X-Part": "1" } }), text = await answer.text();
  if (answer.ok) return text;
  const said = new DOMParser().parseFromString(text, "text/html").querySelector(".sentence");
  throw new Error(said ? said.textContent : `${url}: ${answer.status}`);
}

// Replace the rows whose version changed; the others keep their focus and selection.
function patchRows(body, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = `<table><tbody>${html}</tbody></table>`;
  const rows = [...fresh.content.querySelectorAll("tr")];
  const known = new Map([...body.rows].map((row) => [row.id, row]));
  rows.forEach((row, index) => {
    const old = known.get(row.id);
    const kept = old && old.dataset.version === row.dataset.version && row.id !== "more" ? old : row;
    if (body.rows[index] !== kept) body.insertBefore(kept, body.rows[index] || null);
    if (old && old !== kept) keepChoices(old, row), old.remove();
    known.delete(row.id);
  });
  for (const row of known.values()) row.remove();
}

function keepChoices(old, row) {
  const chosen = new Set([...old.querySelectorAll("input:checked")].map((input) => input.value));
  for (const input of row.querySelectorAll("input[type=checkbox]")) input.checked = chosen.has(input.value);
}

function followRows(table) {
  const url = new URL(location.href);
  url.searchParams.set("part", "rows");
  const refresh = once(async () => patchRows(table.tBodies[0], await fetchPart(url)), 300);
  onChange(refresh);
}

document.querySelectorAll("[data-live-rows]").forEach(followRows);
document.querySelectorAll("[data-live-form]").forEach((form) =>
  form.addEventListener("change", () => form.requestSubmit()));

async function copy(button) {
  const source = button.dataset.copy ? document.getElementById(button.dataset.copy) : null;
  const said = button.parentElement.querySelector("[data-copied]");
  const text = source ? source.textContent : button.dataset.copyText;
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "Copied.";
  } catch {
    if (source) getSelection().selectAllChildren(source);
    said.textContent = source ? "The text is selected: press Ctrl+C." : `Copy it yourself: ${text}`;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-copy-text]");
  if (button) copy(button);
});
