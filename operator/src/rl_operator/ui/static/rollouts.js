// The numbers of a token, by pointer or keyboard, and whether there are newer steps. The page works without it.
"use strict";

const line = document.getElementById("token-line");
const numbersOf = new WeakMap();

function sequenceOf(token) {
  const box = token.closest("[data-numbers]");
  if (box && !numbersOf.has(box)) {
    numbersOf.set(box, { ...JSON.parse(box.dataset.numbers), tokens: [...box.querySelectorAll("i")] });
  }
  return box && numbersOf.get(box);
}

function figure(value, signed) {
  if (value === null || value === undefined) return null;
  const text = Math.abs(value) < 1e-4 && value !== 0 ? value.toExponential(1) : String(Number(value.toFixed(4)));
  return (signed && value > 0 ? "+" : "") + text.replaceAll("-", "−");
}

function told(token) {
  const known = sequenceOf(token);
  const at = known.tokens.indexOf(token);
  const run = token.closest(".run");
  const q = known.q[at], p = known.p[at];
  const advantage = Array.isArray(known.a) ? known.a[at] : known.a;
  const both = q !== null && q !== undefined && p !== null && p !== undefined;
  const parts = [
    `token ${at + 1} of ${known.tokens.length}`, JSON.stringify(token.textContent.slice(0, 60)), `id ${known.id[at]}`,
    run.dataset.words,
    advantage === null || advantage === undefined ? null : `advantage ${figure(advantage, true)}`,
    figure(q) && `log q ${figure(q)} (probability ${(100 * Math.exp(q)).toPrecision(3)} %)`,
    figure(p) && `log p ${figure(p)}`,
    both ? `|log p − log q| ${figure(Math.abs(p - q))}` : null,
    run.dataset.policy && `sampled by the policy of step ${run.dataset.policy}`,
  ];
  return parts.filter(Boolean).join(" · ");
}

function tellToken(token) {
  line.hidden = false;
  line.textContent = told(token);
}

function tokenAt(event) {
  return event.target instanceof Element ? event.target.closest("[data-numbers] i") : null;
}

// Arrow keys go from token to token: an answer is one stop of the Tab key.
const MOVES = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };

function move(event) {
  const box = event.target instanceof Element ? event.target.closest("[data-numbers]") : null;
  const by = MOVES[event.key];
  if (!box || by === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  const first = box.querySelector("i");
  if (!first) return;
  const { tokens } = sequenceOf(first);
  const now = tokens.indexOf(event.target);
  const next = now < 0 ? (event.key === "End" ? tokens.length - 1 : 0) : Math.max(0, Math.min(tokens.length - 1, now + by));
  event.preventDefault();
  if (now >= 0) tokens[now].removeAttribute("tabindex");
  tokens[next].tabIndex = 0;
  box.tabIndex = -1;
  tokens[next].focus();
}

for (const box of document.querySelectorAll("[data-numbers]")) {
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", box.dataset.label);
}
document.addEventListener("pointerover", (event) => { const token = tokenAt(event); if (token) tellToken(token); });
document.addEventListener("focusin", (event) => { const token = tokenAt(event); if (token) tellToken(token); });
document.addEventListener("keydown", move);

const newer = document.getElementById("newer");
if (newer) {
  const { url, namespace, name } = newer.dataset;
  const look = once(async () => {
    const newest = Number(await fetchPart(url));
    if (newest <= Number(newer.dataset.newest)) return;
    const link = newer.querySelector("a");
    link.textContent = `Newer steps exist: step ${newest}`;
    link.hidden = false;
  }, 1000);
  onChange((changed) => { if (!changed || changed.some((key) => key[0] === namespace && key[1] === name)) look(); });
}

// A form whose answer takes a while says so, and is sent once.
document.querySelectorAll("form[data-busy]").forEach((form) => form.addEventListener("submit", () => {
  form.querySelector("[role=status]").textContent = form.dataset.busy;
  form.querySelector("button").disabled = true;
}));
window.addEventListener("pageshow", () => document.querySelectorAll("form[data-busy] button").forEach((button) => { button.disabled = false; }));
