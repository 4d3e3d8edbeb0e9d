"""A state folder with runs and rollout files, and a browser that looks at the pages over it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
from tests.unit.rl_operator.rollouts.made_rollouts import frame
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.targets.local_target import LocalTarget
from rl_operator.ui.live_runs import LiveRuns
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import UiContext, Visitor, make_templates

STARTED = "2026-01-01T00:00:00Z"

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; background:url(javascript:alert(1))",
    "</textarea></title></style><svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;script&gt;",
    "\u202egnp.exe\u2066x\u2069",
    "\x1b[2J\x1b]8;;http://evil\x07link\x1b]8;;\x07\x9b31m\x00\x7f\x08",
    "\u200b\ufeff\u00ad\u2028\u2029",
    "\ud800 half",
    "z" + "\u0301" * 300,
    "line\r\nend\n\n\n",
]  # fmt: skip
"""Texts that would do something, were they not shown as text."""


class StateFolder:
    """Runs whose rollouts are in files."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder)
        self.target = LocalTarget(self.layout, "", print)

    def run(self, name: str = "sorting", *, spec: dict[str, Any] | None = None, **status: Any) -> str:
        """Its uid."""
        manifest = run_manifest(name, spec=spec, **{"startTime": STARTED, "phase": "Running", **status})
        created = StateStore(self.layout).create(manifest)
        return str(created["metadata"]["uid"])

    def files(self, uid: str, files: Mapping[str, Iterable[Any] | bytes], name: str = "sorting") -> Path:
        """By `STEP-ATTEMPT`: records, or a file's content."""
        folder = self.layout.rollouts("default", name, uid)
        folder.mkdir(parents=True, exist_ok=True)
        for key, content in files.items():
            step, _, attempt = key.partition("-")
            written = content if isinstance(content, bytes) else frame(*content)
            (folder / f"{int(step):06}-{attempt}.jsonl.zst").write_bytes(written)
        return folder

    def browser(self, variables: Mapping[str, str] | None = None) -> httpx.AsyncClient:
        visitor = Visitor(self.target, lambda _: LiveRuns(dict), variables=variables)  # nobody listens
        app = ui_app(UiContext(lambda _: visitor, make_templates()))
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
