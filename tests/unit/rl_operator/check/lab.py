"""A runtime and an environment small enough to take in at a glance, and a check against them."""

from typing import Any

from tests.unit.rl_operator.samples import catalog_of, inputs_of, make_run, make_runtime

from rl_operator.api.catalog import Catalog
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Runtime
from rl_operator.check.run_check import check_run

LAB = make_runtime(
    locked={"env": {"max_token_length": 64, "use_wandb": True}, "trainer": {"lora_rank": 16, "loss": "ppo"}},
    bounds={"env": {"total_steps": {"min": 1, "max": 100}}, "trainer": {"learning_rate": {"max": 0.01}}},
    limits={"activeDeadlineSeconds": 600},
)
TOY = catalog_of(
    {"name": "color", "type": "Literal['red', 'blue']", "default": "red"},
    {"name": "max_batches_offpolicy", "type": "int", "default": 3},
)


def check(spec: dict[str, Any], runtime: Runtime = LAB, catalog: Catalog = TOY) -> tuple[Refusal, ...]:
    run = make_run(**{"environment": "toy", **spec})
    return check_run(run, inputs_of(run, runtime, catalog))
