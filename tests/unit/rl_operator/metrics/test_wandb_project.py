from typing import Any

import pytest
from tests.unit.rl_operator.samples import TINY
from tests.unit.rl_operator.status.builders import make_run

from rl_operator.api.runtime import Runtime, RuntimeWandb
from rl_operator.metrics.wandb_query import WandbProject, place_of

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
