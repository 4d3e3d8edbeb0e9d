"""The list of runs as a page: which runs, and what is said of those that are not there."""

import re
from typing import Any

import httpx
import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.operator_errors import ForbiddenError
from rl_operator.ui.live_runs import LiveRuns
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import UiContext, Visitor, make_templates


class Restricted(MemoryTarget):
    """Only the runs of `allowed` may be listed."""

    allowed = "default"

    def runs(self, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        if namespace != self.allowed:
            raise ForbiddenError("rltrainingruns is forbidden: ann may not list")
        return super().runs(namespace, selector)


class Elsewhere(Restricted):
    allowed = "team"


def run_of(name: str, namespace: str = "default", **status: Any) -> dict[str, Any]:
    run = run_manifest(name, **status)
    run["metadata"] |= {"uid": f"uid-{name}", "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return run


async def shown(target: MemoryTarget, path: str, pinned: str | None = None) -> httpx.Response:
    visitor = Visitor(target, lambda _: LiveRuns(dict), pinned)  # type: ignore[arg-type]  # of the protocol, what is used
    transport = httpx.ASGITransport(ui_app(UiContext(lambda _: visitor, make_templates(), "/ui")))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        return await browser.get(path)


async def test_text_of_runs_is_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e' onload='"
    page = (await shown(MemoryTarget(run_of("a", phase="Failed", message=hostile)), "/runs")).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "' onload='" not in page


@pytest.mark.parametrize("query", ["phase=Stopped", "phase=nope", "environment=other"])
async def test_a_filter_that_no_run_fits_is_shown(query: str) -> None:
    page = (await shown(MemoryTarget(run_of("a", phase="Failed")), f"/runs?{query}")).text
    assert "No run fits these filters." in page
    assert re.search(rf"<option[^>]* selected>{query.partition('=')[2]}\b", page)


async def test_whoever_may_not_list_all_sees_the_usual_namespace_and_which_it_is() -> None:
    target = Restricted(run_of("a"), run_of("b", "team"))
    page = (await shown(target, "/runs")).text
    assert 'href="/ui/runs/default/a"' in page
    assert "/runs/team/b" not in page
    assert "You may not list the runs of all namespaces: these are of <strong>default</strong>." in page
    everything = (await shown(MemoryTarget(run_of("a"), run_of("b", "team")), "/runs")).text
    assert "/ui/runs/team/b" in everything
    assert "You may not list" not in everything


async def test_whoever_may_list_neither_is_asked_for_a_namespace() -> None:
    target = Elsewhere(run_of("b", "team"))
    refused = await shown(target, "/runs")
    assert (refused.status_code, "ann may not list" in refused.text) == (403, True)
    assert '<input name="namespace"' in refused.text
    chosen = await shown(target, "/runs?namespace=team")
    assert (chosen.status_code, 'href="/ui/runs/team/b"' in chosen.text) == (200, True)
    assert 'data-live="/ui/live?namespace=team"' in chosen.text


async def test_a_pinned_page_offers_no_namespace() -> None:
    refused = await shown(Elsewhere(), "/runs", pinned="default")
    assert (refused.status_code, "<input" in refused.text) == (403, False)


@pytest.mark.parametrize(
    ("query", "names"), [("", ["b", "a"]), ("phase=Failed", ["b"]), ("text=A", ["a"]), ("text=x", [])]
)
async def test_rows_alone_are_a_part(query: str, names: list[str]) -> None:
    target = MemoryTarget(run_of("a", phase="Running", message="A step"), run_of("b", phase="Failed"))
    rows = (await shown(target, f"/runs?part=rows&{query}")).text
    assert "<html" not in rows
    assert [part.split('"')[0] for part in rows.split('href="/ui/runs/default/')[1:]] == names


@pytest.mark.parametrize("shown_rows", ["0x10", "-5", "1e9", "99999999999999", "²"])
async def test_strange_numbers_of_rows_do_no_harm(shown_rows: str) -> None:
    assert (await shown(MemoryTarget(run_of("a")), f"/runs?shown={shown_rows}")).status_code == 200
