"""docs/metrics.md, from the table: `python -m tinker_atropos.trainer.metric_page > docs/metrics.md`."""

import sys
from collections.abc import Iterator

from tinker_atropos.trainer.reporting.metric_table import METRICS, Source

HEAD = """# Metrics

Generated from `tinker_atropos/trainer/reporting/metric_table.py` by `make generate`. All of them go into the run's
one W&B run, with `train/step` as their axis; the trainer's are in its `/history`, too. `*` stands for any text, as an
environment's name or a reason. How to read them: [training.md](training.md).
"""

SECTIONS: dict[Source, str] = {
    "trainer": "## Of each step, by the trainer",
    "runner": "## Of the environment, by its runner",
    "environment": "## By the environment itself",
}


def metric_page() -> str:
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for source, title in SECTIONS.items():
        yield f"{title}\n\n| metric | unit | meaning |\n|---|---|---|"
        yield from (f"| `{m.name}` | {m.unit} | {_cell(m.meaning)} |" for m in METRICS if m.source == source)
        yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(metric_page())
