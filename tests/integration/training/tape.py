"""A recorded tape of groups: sampled once from the base model, played to any number of runs in the same order."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import tinker
from safetensors.numpy import load_file
from tinker import types
from tokenizers import Tokenizer

from rl_contract.bundled import BUNDLED, bundled_model_folder
from tinker_atropos.environments.bundled.digits import prompt, split

Tape = list[list[dict[str, Any]]]
"""Batches of groups as environments send them."""


def record_tape(url: str, key: str, *, steps: int, groups: int, group_size: int) -> Tape:
    """Groups with their sampling logprobs, and scores that differ within each group."""
    tokenizer = Tokenizer.from_file(str(bundled_model_folder() / "tokenizer.json"))
    items = iter(split().training)
    service = tinker.ServiceClient(base_url=url, api_key=key)
    sampler = service.create_sampling_client(base_model=BUNDLED).result()

    def group(number: int) -> dict[str, Any]:
        text = f"<|im_start|>user\n{prompt(next(items))}<|im_end|>\n<|im_start|>assistant\n"
        asked = tokenizer.encode(text).ids
        settings = types.SamplingParams(max_tokens=8, temperature=1.0, seed=number)
        answer = sampler.sample(types.ModelInput.from_ints(asked), group_size, settings).result(60)
        return {
            "tokens": [asked + list(sequence.tokens) for sequence in answer.sequences],
            "masks": [[-100] * len(asked) + list(sequence.tokens) for sequence in answer.sequences],
            "inference_logprobs": [[1.0] * len(asked) + list(sequence.logprobs or ()) for sequence in answer.sequences],
            "scores": [float(index) for index in range(group_size)],
        }

    try:
        return [[group(step * groups + index) for index in range(groups)] for step in range(steps)]
    finally:
        service.close("success").result(10)


class TapePlayer:
    """Stands in for the environment: sends the tape from a step on, and renews the lease."""

    def __init__(self, half: Any, tape: Sequence[Sequence[dict[str, Any]]]) -> None:
        self._half = half
        self._tape = tape
        self._holding: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for groups in self._tape:
            for group in groups:
                await self._api("POST", "/scored_data", group)
        self._holding = asyncio.create_task(self._hold_lease())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._holding is not None
        self._holding.cancel()
        with contextlib.suppress(asyncio.CancelledError, httpx.TransportError):  # the api may have ended before
            await self._holding

    async def _hold_lease(self) -> None:
        state = "working"
        while True:
            lease = {"state": state, "reason": None, "ttl_seconds": 15}
            answer = await self._api("PUT", "/rl/lease/environment", lease)
            state = "done" if answer["run_over"] else state
            await asyncio.sleep(0.1)

    async def _api(self, method: str, path: str, body: dict[str, Any]) -> Any:
        response = await self._half.client.request(method, self._half.env_vars["RL_API_URL"] + path, json=body)
        response.raise_for_status()
        return response.json()


def saved_tensors(data: Path, state_path: str) -> dict[str, np.ndarray]:
    """Weights and optimizer of a saved state, read from the Tinker service's folder."""
    run, _, name = state_path.removeprefix("tinker://").split("/")
    files = sorted((data / run / "weights" / name).glob("*.safetensors"))
    assert len(files) == 2, "weights and optimizer"
    return {f"{file.name}:{key}": tensor for file in files for key, tensor in load_file(file).items()}
