import asyncio
from pathlib import Path

PROMPT_LENGTH = 17  # of `sort 4 1 3 2` in the bundled tokenizer's chat template


async def test_bundled_environment_serves_a_run_and_is_evaluated_before_and_after(run):
    environment = await run.start_environment("sort_digits")
    await asyncio.wait_for(run.train(), 60)
    assert await environment.ends() == 0, environment.output

    assert [len(group["tokens"]) for group in run.batches[0]] == [4, 4]
    group = run.batches[0][0]
    assert group["masks"][0][:PROMPT_LENGTH] == [-100] * PROMPT_LENGTH
    assert group["inference_logprobs"][0] == [1.0] * PROMPT_LENGTH + [-0.25] * 5
    assert group["tokens"][0][-1] == 2
    assert group["tokens"][0][-2] != 2
    assert set(group["scores"]) == {0.0, 1.0}

    evaluations = [record for record in await run.records() if record["source"] == "evaluation"]
    assert [record["step"] for record in evaluations] == [0, 3]
    metrics = evaluations[0]["metrics"]
    assert metrics["eval/n"] == 500
    assert 0.4 < metrics["eval/percent_correct_low"] < metrics["eval/percent_correct"] < 0.6
