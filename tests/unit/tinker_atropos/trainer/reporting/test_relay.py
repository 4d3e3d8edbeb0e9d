"""Metrics relayed from a real api into a recording sink."""

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tinker_atropos.errors import DivergedError
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.reporting.relay import MAX_NAMES, Relay, curves
from tinker_atropos.trainer.reporting.trackers.wandb_tracker import TrackerProcess
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.trajectories.api_client import ApiClient


class RememberingSink(TrackerProcess):
    def __init__(self) -> None:
        super().__init__("nowhere", {}, (), 1)
        self.reports: list[tuple[int | None, Mapping[str, float]]] = []

    def log_report(self, step: int | None, metrics: Mapping[str, float]) -> None:
        self.reports.append((step, metrics))


def test_each_environment_has_its_own_curve_of_the_runners_counts() -> None:
    metrics = {"env/groups_kept": 3.0, "sort_1_train/percent_correct": 0.5}
    assert curves(None, metrics) == curves(0, metrics) == metrics
    assert curves(2, metrics) == {"env_2/groups_kept": 3.0, "sort_1_train/percent_correct": 0.5}


def test_no_environment_writes_a_curve_of_the_run() -> None:
    metrics = {"train/loss": 9.0, "train/step": 9.0, "reward/mean": 9.0, "_step": 9.0, "samples": 9.0, "result/a": 9.0}
    own = {"train/percent_correct": 0.5, "reward/of_mine": 1.0, "samples_seen": 2.0, "eval/percent_correct": 0.5}
    assert curves(None, metrics | own) == {f"env_0/{name}": 9.0 for name in metrics} | own
    assert curves(2, metrics | own) == {f"env_2/{name}": 9.0 for name in metrics} | own


async def test_a_collapse_in_what_is_reported_ends_the_run_only_while_it_trains() -> None:
    learning = {"env/groups_kept": 50.0, "env/groups_filtered_equal": 0.0, "env/reward_mean": 0.75}
    collapsed = {"env/groups_kept": 50.0, "env/groups_filtered_equal": 120.0, "env/reward_mean": 0.0}
    records = [{"step": 1, "metrics": metrics, "source": "runner"} for metrics in (learning, collapsed)]

    async def show(_request: Request) -> Response:
        return JSONResponse({"records": records, "last": len(records)})

    async with serve(Starlette(routes=[Route("/rl/metrics", show)]), bind("127.0.0.1", 0, "RL_API_URL")) as port:
        api = ApiClient(f"http://127.0.0.1:{port}")
        await Relay(api, LiveStatus(total_steps=1, phase="done"), RememberingSink(), print).collect()
        with pytest.raises(
            DivergedError, match="the last 120 groups were equal, with a mean of 0, and the best mean over 10 groups"
        ):
            await Relay(api, LiveStatus(total_steps=1), RememberingSink(), print).collect()
        await api.close()


async def test_new_names_stop_at_a_limit_and_known_ones_continue(caplog) -> None:
    records: list[dict[str, Any]] = []

    async def show(request: Request) -> Response:
        after = int(request.query_params["after"])
        return JSONResponse({"records": records[after:], "last": len(records)})

    async with serve(Starlette(routes=[Route("/rl/metrics", show)]), bind("127.0.0.1", 0, "RL_API_URL")) as port:
        sink = RememberingSink()
        api = ApiClient(f"http://127.0.0.1:{port}")
        relay = Relay(api, LiveStatus(total_steps=1), sink, print)
        for report in range(3):
            flood = {f"flood/{report}/{number}": 1.0 for number in range(MAX_NAMES // 2)}
            records.append({"step": 1, "metrics": {"env/reward_mean": 0.5} | flood, "source": "environment"})
            await relay.collect()
        await api.close()
    assert [len(metrics) for _, metrics in sink.reports] == [MAX_NAMES // 2 + 1, MAX_NAMES // 2 + 1, 1]
    assert caplog.messages == ["environments reported 2001 different metrics: W&B gets no more of them"]
