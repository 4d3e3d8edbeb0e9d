import math
import subprocess
import sys

import numpy as np
import pytest

from tinker_atropos.environments.rollout.sampled_work import SampledWork
from tinker_atropos.environments.runner.reporting.wandb_relay import MAX_RECORDS, MetricsQueue

KEPT = {"int": 3, "float": 0.5, "bool": True, "np_float": np.float32(0.25), "np_int": np.int64(2)}
LEFT = {"nan": math.nan, "inf": math.inf, "text": "x", "list": [1], "none": None, "array": np.zeros(2)}


def test_only_finite_numbers_are_relayed():
    queue = MetricsQueue()
    queue.put(KEPT | LEFT, 4, "environment")
    assert [record.to_wire() for record in queue.records] == [
        {
            "step": 4,
            "metrics": {"int": 3.0, "float": 0.5, "bool": 1.0, "np_float": 0.25, "np_int": 2.0},
            "source": "environment",
        }
    ]


def test_a_metric_that_is_not_finite_is_warned_about_once(caplog):
    queue = MetricsQueue()
    for step in (1, 2):
        queue.put({"loss": math.nan, "reward": math.inf, "right": 0.5}, step, "environment")
    assert [record.args for record in caplog.records] == [("loss", math.nan), ("reward", math.inf)]
    assert [record.metrics for record in queue.records] == [{"right": 0.5}] * 2


def test_no_metrics_make_no_record():
    queue = MetricsQueue()
    queue.put(LEFT, None, "environment")
    assert not queue.records


def test_oldest_records_are_dropped_first():
    queue = MetricsQueue()
    for step in range(MAX_RECORDS + 5):
        queue.put({"x": 1}, step, "environment")
    assert len(queue.records) == MAX_RECORDS
    assert queue.records[0].step == 5


def test_latest_is_found_after_a_prefix_and_taken_once():
    queue = MetricsQueue()
    queue.put({"mine_0_eval/percent_correct": 0.25}, 1, "environment")
    queue.put({"mine_0_eval/percent_correct": 0.5}, 2, "environment")
    assert queue.take_latest("eval/percent_correct") == 0.5
    assert queue.take_latest("eval/percent_correct") is None


USES = {
    "a run": "wandb.init(project='p', config={}); wandb.config.update({'a': 1}); wandb.finish()",
    "a summary": "wandb.run.summary['best'] = 1; wandb.run.summary['best']; wandb.run.log_code('.')",
    "a table": "table = wandb.Table(columns=['a'], data=[[1]]); table.add_data(2); wandb.log({'t': table})",
    "media": "wandb.log({'i': wandb.Image([1]), 'h': wandb.Html('x')}, step=3, commit=False)",
    "names": "from wandb import Artifact, Settings; Artifact('n', type='t').add_file('f'); Settings(mode='offline')",
}


@pytest.mark.process
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_ordinary_uses_are_harmless(use):
    program = (
        "from tinker_atropos.environments.runner.reporting.wandb_relay import MetricsQueue, install\n"
        "queue = MetricsQueue(); install(queue)\n"
        f"import wandb\n{use}\n"
        "wandb.log({'reward': 1.5}, step=7)\n"
        "print(queue.records[-1].to_wire())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout.strip() == "{'step': 7, 'metrics': {'reward': 1.5}, 'source': 'environment'}", ran.stderr


def test_an_environments_own_evaluation_comes_with_its_interval_and_n():
    queue = MetricsQueue()
    with queue.judging("eval/percent_correct", SampledWork("evaluation", completions=100, prompts=set(range(50)))):
        queue.put({"mine_0_eval/percent_correct": 0.5, "mine_0_loss": 1.0}, 3, "environment")
    queue.put({"mine_0_eval/percent_correct": 0.5}, 4, "environment")
    judged, later = (record.metrics for record in queue.records)
    assert judged["mine_0_eval/n"] == 100
    assert judged["mine_0_eval/percent_correct_low"] < 0.5 < judged["mine_0_eval/percent_correct_high"]
    assert judged["mine_0_loss"] == 1.0
    assert later == {"mine_0_eval/percent_correct": 0.5}
    assert queue.take_latest("eval/percent_correct") == 0.5
