"""A run with a teacher. Every process is real, and the teacher serves the model that the student begins with."""

import pytest
from tests.ports import free_port

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/trainer", "tinker-atropos/src/tinker_atropos/environments/rollout"
)


@nightly
@pytest.mark.parametrize("top_k", [1, 4])
async def test_a_run_learns_from_a_teacher_that_is_served_beside_it(half, top_k: int) -> None:
    port = free_port()
    teacher = await half.start("teacher", "--base-model", "bundled", "--port", str(port))
    await half.says(teacher, "is a teacher at")
    config = half.write_config(env={"teacher_top_k": top_k, "eval_items": 8})
    await half.start_api()
    trainer = await half.start_trainer(config)
    command = ("environment", "sort_digits", "serve", "--config", str(config))
    environment = await half.start(*command, TEACHER_URL=f"http://127.0.0.1:{port}")
    await half.reached(trainer, 2)
    first = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"][0]
    await half.ends_well(trainer, environment)
    teacher.stop()
    assert await teacher.exit_code() == 0, teacher.log

    assert first["distil/token_fraction"] == 1.0
    if top_k == 1:
        assert first["distil/advantage_mean"] == pytest.approx(0.0, abs=1e-4), "the teacher is the policy itself"
    else:
        assert 0.0 <= first["distil/forward_kl"] < 0.1, "what it would sample besides its four likeliest tokens"
    assert half.result["outcome"] == "succeeded"
