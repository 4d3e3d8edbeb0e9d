"""A run that learns from a teacher alone: `python -m tests.benchmarks.distillation_bench`.

A teacher learns the demo's task by supervised steps on right answers. Students then train as whole runs, every rollout
with a reward of 0: one with the teacher's top-k (forward KL), one with its scores of the sampled tokens (reverse KL),
and one without it. Held-out accuracy before and after, at temperature 1.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tinker
from tests.conftest import TinkerServiceProcess, running_tinker_service
from tests.integration.training.conftest import training_half
from tests.ports import free_port
from tinker import types

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.bundled.digits import answer, prompt, split

RANK, SECONDS = 16, 300.0
SUPERVISED_STEPS, SUPERVISED_BATCH = 16, 32
UNREWARDED = """\
from dataclasses import replace

from tinker_atropos.environments.bundled.sort_digits import SortDigits


class Unrewarded(SortDigits):
    name = "unrewarded"

    async def roll_out(self, item, n, split):
        outcomes = await super().roll_out(item, n, split)
        return outcomes if split == "eval" else [replace(outcome, score=0.0) for outcome in outcomes]
"""


def right_answers() -> Iterator[types.Datum]:
    tokenizer = Tokenizer("bundled")
    for item in split().training[: SUPERVISED_STEPS * SUPERVISED_BATCH]:
        text = tokenizer.render_template([{"role": "user", "content": prompt(item)}], (), {})
        asked = tokenizer.encode(text, add_special_tokens=False).tolist()
        answered = [*tokenizer.encode(answer(item), add_special_tokens=False).tolist(), tokenizer.eos_id]
        weights = np.array([0.0] * (len(asked) - 1) + [1.0] * len(answered), np.float32)
        tokens = asked + answered
        yield types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={"target_tokens": tokens[1:], "weights": types.TensorData.from_numpy(weights)},
        )


def trained_teacher(server: TinkerServiceProcess) -> str:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.key)
    client = service.create_lora_training_client("bundled", rank=RANK).result(SECONDS)
    data = list(right_answers())
    for start in range(0, len(data), SUPERVISED_BATCH):
        client.forward_backward(data[start : start + SUPERVISED_BATCH], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=1e-2)).result(SECONDS)
    path = str(client.save_weights_for_sampler("teacher").result(SECONDS).path)
    service.close("success").result(SECONDS)
    return path


async def student(folder: Path, server: TinkerServiceProcess, path: str, top_k: int, steps: int) -> str:
    """A line of the table."""
    async with training_half(folder, server) as half:
        port = free_port()
        teacher = await half.start("teacher", "--model-path", path, "--port", str(port))
        await half.says(teacher, "is a teacher at")
        taught = {"teacher_top_k": top_k, "ensure_scores_are_not_same": False}
        env = {"total_steps": steps, "group_size": 4, "batch_size": 32, "eval_items": 250, **taught}
        config = half.write_config(env=env, tinker={"learning_rate": 5e-3, "lora_rank": RANK})
        await half.start_api()
        trainer = await half.start_trainer(config)
        command = ("environment", str(folder / "unrewarded.py"), "serve", "--config", str(config))
        environment = await half.start(*command, TEACHER_URL=f"http://127.0.0.1:{port}")
        try:
            await half.reached(trainer, steps - 1, seconds=SECONDS)
        except AssertionError:
            print(environment.log)
            raise
        points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
        assert await trainer.exit_code(SECONDS) == 0, trainer.log
        metrics = half.result["metrics"]
    apart = [f"{point['distil/forward_kl']:.3f}" for point in points if "distil/forward_kl" in point]
    accuracy = f"{metrics['baseline']['value']:.3f} -> {metrics['heldOut']['value']:.3f}"
    return f"teacher_top_k {top_k}: held-out {accuracy}  forward KL by step: {', '.join(apart) or '-'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name, running_tinker_service(Path(name), real_start=True) as server:
        path = trained_teacher(server)
        for top_k in (8, 1, 0):
            folder = Path(name) / f"top-{top_k}"
            folder.mkdir()
            (folder / "unrewarded.py").write_text(UNREWARDED)
            print(asyncio.run(student(folder, server, path, top_k, steps)), flush=True)


if __name__ == "__main__":
    main()
