"""docs/reference/metrics.md lists every metric, and no other."""

import re
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from rl_operator import telemetry

ROW = re.compile(r"^\| `(rl_operator_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)


def declared() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Type and labels by the name that a scrape shows."""
    found = {}
    for metric in vars(telemetry).values():
        if isinstance(metric, MetricWrapperBase):
            family = metric.describe()[0]
            suffix = "_total" if family.type == "counter" else ""
            found[family.name + suffix] = (family.type, tuple(metric._labelnames))
    return found


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = ROW.findall(Path("docs/reference/metrics.md").read_text(encoding="utf-8"))
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


def test_the_page_lists_every_metric_with_its_type_and_labels() -> None:
    assert len(declared()) >= 15
    assert documented() == declared()
