"""One client of service_soak.py: it samples and trains with the unmodified SDK until it is ended. SIGTERM is the end
that closes its session; it also ends by itself when its parent is gone. TINKER_BASE_URL and TINKER_API_KEY say where
the service is.
"""

import os
import random
import signal
from collections.abc import Callable

import tinker
from tinker import types

WAIT = 600
LONGEST_PROMPT, LONGEST_ANSWER = 1_200, 600
RANKS = (4, 16, 32)


class Client:
    def __init__(self, service: tinker.ServiceClient, model: str, seed: int) -> None:
        self._service, self._model, self._chance = service, model, random.Random(seed)

    def life(self, is_over: Callable[[], bool]) -> None:
        """A client only samples, or it trains, too."""
        if self._chance.random() < 0.5:
            sampler = self._service.create_sampling_client(base_model=self._model).result(WAIT)
            while not is_over():
                self._burst(sampler)
            return
        rank = self._chance.choice(RANKS)
        training = self._service.create_lora_training_client(self._model, rank=rank, seed=0).result(WAIT)
        while not is_over():
            self._step(training)

    def _burst(self, sampler: tinker.SamplingClient) -> None:
        """Requests of mixed lengths at once; one in eight is canceled, the others are waited for."""
        futures = [self._asked(sampler) for _ in range(self._chance.randint(1, 16))]
        canceled = [future for future in futures if self._chance.random() < 0.125]
        for future in canceled:
            future.future().cancel()
        for future in futures:
            if future not in canceled:
                future.result(WAIT)
        if self._chance.random() < 0.25:
            sampler.compute_logprobs(self._prompt()).result(WAIT)

    def _step(self, training: tinker.TrainingClient) -> None:
        """A snapshot, samples of it, and a step of training on them; sometimes a checkpoint."""
        sampler = training.save_weights_and_get_sampling_client().result(WAIT)
        prompt = [self._chance.randrange(3, 512) for _ in range(17)]
        how = types.SamplingParams(max_tokens=self._length(4, 64), stop=[])
        answer = sampler.sample(types.ModelInput.from_ints(prompt), 8, how).result(WAIT)
        losses = training.forward_backward([datum(prompt, one.tokens) for one in answer.sequences], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=1e-4)).result(WAIT)
        losses.result(WAIT)
        if self._chance.random() < 0.1:
            training.save_state("soak", overwrite=True).result(WAIT)

    def _asked(self, sampler: tinker.SamplingClient) -> tinker.APIFuture[types.SampleResponse]:
        how = types.SamplingParams(max_tokens=self._length(4, LONGEST_ANSWER), stop=[])
        return sampler.sample(self._prompt(), self._chance.randint(1, 4), how)

    def _prompt(self) -> types.ModelInput:
        length = self._length(8, LONGEST_PROMPT)
        return types.ModelInput.from_ints([self._chance.randrange(3, 512) for _ in range(length)])

    def _length(self, shortest: int, longest: int) -> int:
        """Log-uniform."""
        return int(shortest * (longest / shortest) ** self._chance.random())


def datum(prompt: list[int], answer: list[int]) -> types.Datum:
    tokens = [*prompt, *answer]
    weights = [0.0] * (len(prompt) - 1) + [1.0] * len(answer)
    inputs = {
        "target_tokens": types.TensorData(data=tokens[1:], dtype="int64"),
        "weights": types.TensorData(data=weights, dtype="float32"),
    }
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def live(model: str, seed: int) -> None:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    parent = os.getppid()
    service = tinker.ServiceClient()
    Client(service, model, seed).life(lambda: bool(asked) or os.getppid() != parent)
    service.close("success").result(WAIT)
