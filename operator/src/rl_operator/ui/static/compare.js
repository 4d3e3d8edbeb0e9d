// Runs over each other: batch reward and held-out of each, by step.
"use strict";

const OVERLAYS = [
  { name: "reward", title: "Batch reward", unit: "reward", table: "steps", line: { column: "batch_reward" } },
  {
    name: "held-out", title: "Held-out", unit: "fraction, with 95 % intervals", table: "evaluations",
    line: { column: "held_out", low: "held_out_low", high: "held_out_high" },
  },
];

function followOverlay(element) {
  const note = document.querySelector("[data-note]");
  const runs = [...element.querySelectorAll("[data-label]")].map((link) => ({ label: link.dataset.label, url: link.getAttribute("href") }));
  const board = new ChartBoard(element, null);
  board.specs = OVERLAYS.map(({ line, table, ...spec }) => ({
    ...spec, meaning: "",
    lines: runs.map(({ label }, number) => ({ low: "", high: "", ...line, label, dash: DASHES[number], table: `${number} ${table}` })),
  }));

  async function readAll() {
    const answers = await Promise.all(runs.map(async ({ url }) => JSON.parse(await fetchPart(`${url}/points`))));
    board.tables = {};
    answers.forEach(({ tables }, number) => {
      for (const [name, table] of Object.entries(tables)) board.tables[`${number} ${name}`] = table;
    });
    board.draw();
    const notes = answers.map(({ note: said }, number) => said && `${runs[number].label}: ${said}.`);
    note.textContent = notes.filter(Boolean).join(" ");
  }

  const refresh = once(readAll, 1000);
  readAll().catch((error) => { note.textContent = `The curves cannot be read: ${error.message}.`; });
  const keys = new Set(runs.map(({ url }) => url.split("/").slice(-2).map(decodeURIComponent).join("/")));
  onChange((changed) => {
    if (changed === null || changed.some((key) => keys.has(key.join("/")))) refresh();
  });
}

document.querySelectorAll("[data-overlay]").forEach(followOverlay);
