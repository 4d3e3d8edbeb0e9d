"""Two runs of one file: what is left of chance once all of it has a seed."""

from pathlib import Path

import numpy as np
from tests.integration.training.tape import saved_tensors

SETTINGS = {"total_steps": 3, "group_size": 4, "batch_size": 16, "steps_per_eval": 2, "eval_items": 10}


async def test_two_runs_of_one_file_end_in_the_same_weights_bit_by_bit(half, tinker_service) -> None:
    """No rollout is stale, and there is one process. Samples are side by side, in whatever batches the Tinker service
    makes of them.
    """
    config = half.write_config(env=SETTINGS, tinker={"max_staleness": 0, "seed": 7})
    first, again = [await trained(half, config, tinker_service, uid) for uid in ("first", "again")]
    assert first.keys() == again.keys()
    differing = [name for name, tensor in first.items() if tensor.tobytes() != again[name].tobytes()]
    assert differing == []


async def trained(half, config: Path, tinker_service, uid: str) -> dict[str, np.ndarray]:
    api = await half.start_api()
    trainer = await half.start_trainer(config, RL_RUN_UID=f"{half.folder.name}-{uid}")
    environment = await half.start("environment", "sort_digits", "serve", "--config", str(config))
    await half.ends_well(trainer, environment)
    await half.stop_api(api)
    return saved_tensors(tinker_service.log.parent / "data", half.result["statePath"])
