"""The query against W&B's own client: the real SDK, once, over HTTP."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.rl_operator.samples import TINY
from tests.unit.rl_operator.status.builders import make_run
from tests.wandb_server import WandbRun, running_wandb_server

from rl_operator.api.runtime import Runtime, RuntimeWandb
from rl_operator.metrics.wandb_query import QUERY, WandbProject, WandbRefusedError, place_of, question, read_answer

SDK = """
import json
from wandb.apis.public import Api
runs = Api().runs("me/rl", filters={"name": {"$in": ["u-1", "u-2"]}}, lazy=False)
print(json.dumps([[run.id, run.state, run.summary["train/loss"]] for run in runs]))
"""


def words(query: str) -> set[str]:
    """What a query asks for: its fields, variables, arguments and types."""
    return set(re.findall(r"\$?\w+", query))


@pytest.mark.process
async def test_it_is_part_of_the_query_of_wandbs_own_client(tmp_path: Path) -> None:
    async with running_wandb_server() as server:
        server.runs["u-1"] = WandbRun("rl", "u-1", summary={"train/loss": 0.5}, state="crashed")
        key = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": server.url, "WANDB_DIR": str(tmp_path)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SDK), env={**os.environ, **key}, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await asyncio.wait_for(process.communicate(), 60)
        assert json.loads(printed.splitlines()[-1]) == [["u-1", "crashed", 0.5]]
        theirs = next(body for body in server.queries if "query Runs(" in body["query"])
        ours = question("me", "rl", ["u-1", "u-2"])
        assert words(QUERY) <= words(theirs["query"])
        assert ours["variables"].items() - {("perPage", 2)} <= theirs["variables"].items()
        answer = server._Runs(ours["variables"])
        assert read_answer({"data": answer}, ["u-1"])["u-1"].state == "crashed"


def test_runs_that_were_not_requested_are_left_out() -> None:
    node = {"name": "u-2", "state": "running", "summaryMetrics": "{}"}
    assert read_answer({"data": {"project": {"runs": {"edges": [{"node": node}]}}}}, ["u-1"]) == {}


@pytest.mark.parametrize(
    "answer", [{"data": {"project": None}}, {"data": None}, {}], ids=["no project", "null", "empty"]
)
def test_a_missing_project_has_no_runs(answer: object) -> None:
    assert read_answer(answer, ["u-1"]) == {}


def test_an_error_is_given_in_wandbs_words() -> None:
    with pytest.raises(WandbRefusedError, match="permission denied"):
        read_answer({"data": None, "errors": [{"message": "permission denied"}]}, ["u-1"])


@pytest.mark.parametrize(
    "answer", [None, [], "x", {"data": {"project": {"runs": {"edges": [{"node": {}}]}}}}], ids=range(4)
)
def test_an_answer_of_another_shape_is_an_error(answer: object) -> None:
    with pytest.raises(ValidationError):
        read_answer(answer, ["u-1"])


KEY = {"keySecret": {"name": "wandb", "key": "WANDB_API_KEY"}}


def runtime(**wandb: Any) -> Runtime:
    return TINY.with_changes(spec=TINY.spec.with_changes(wandb=RuntimeWandb.model_validate({**KEY, **wandb})))


def place(told: dict[str, Any] | None, asked: dict[str, Any], **usual: Any) -> WandbProject | None:
    return place_of(make_run({"wandb": told} if told else {}, wandb=asked), runtime(**usual))


CLOUD = "https://api.wandb.ai"
PAGE = {"url": "https://wandb.ai/acme/rl%20runs/runs/u-1", "runId": "u-1", "state": "running"}


def test_the_trainers_answer_wins_over_the_runs_and_the_runtimes() -> None:
    usual = {"entity": "e", "project": "p"}
    assert place(PAGE, {"entity": "mine", "project": "asked"}, **usual) == WandbProject(CLOUD, "acme", "rl runs")
    assert place(None, {"entity": "mine", "project": "asked"}, **usual) == WandbProject(CLOUD, "mine", "asked")
    assert place(None, {"project": "asked"}, **usual) == WandbProject(CLOUD, "e", "asked")
    assert place(None, {}, **usual) == WandbProject(CLOUD, "e", "p")


def test_only_a_runtime_decides_which_server_gets_the_key() -> None:
    elsewhere = {**PAGE, "url": "https://evil.example/acme/rl/runs/u-1"}
    assert place(elsewhere, {}) == WandbProject(CLOUD, "acme", "rl")
    assert place(elsewhere, {}, baseURL="https://wandb.acme.example/") == WandbProject(
        "https://wandb.acme.example", "acme", "rl"
    )


@pytest.mark.parametrize("url", ["https://wandb.ai/acme/rl", "https://[/a/b/runs/c", "", "runs"])
def test_an_invalid_page_is_ignored(url: str) -> None:
    assert place({**PAGE, "url": url}, {}) is None


@pytest.mark.parametrize("state", ["disabled", "offline; to send it: wandb sync /x"])
def test_a_run_that_is_not_at_wandb_is_not_queried(state: str) -> None:
    assert place({**PAGE, "state": state}, {}) is None


def test_a_runtime_without_a_key_has_no_runs_at_wandb() -> None:
    assert place(PAGE, {}, keySecret=None) is None
