"""A program with OpenAI's own client, trained as it is: it checks what it is told, and asks once more if need be."""

import functools
from collections.abc import Mapping, Sequence

import httpx
import openai

from tinker_atropos.environments.base import Message
from tinker_atropos.environments.bundled import digits
from tinker_atropos.environments.session_environment import SessionConfig, SessionEnvironment
from tinker_atropos.environments.sessions.rollout_session import RolloutSession


@functools.cache
def connections() -> httpx.AsyncClient:
    """Shared by all rollouts: a client with connections of its own takes 35 ms of CPU to make."""
    return openai.DefaultAsyncHttpxClient()


async def sorted_digits(question: str, base_url: str, api_key: str) -> list[str]:
    """The program, and all answers that it got. Nothing in it knows that it is trained."""
    client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, http_client=connections())
    answers: list[str] = []
    while len(answers) < 2 and not (answers and answers[-1] == "".join(sorted(answers[-1]))):
        asked = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": question}])
        answers.append(asked.choices[0].message.content or "")
    return answers


class CarefulSorter(SessionEnvironment[digits.Item]):
    """Sort four digits in two tries at most; it is the first try that counts most."""

    name = "careful_sorter"

    @classmethod
    def config_init(cls) -> tuple[SessionConfig, list[object]]:
        return SessionConfig(group_size=8, batch_size=32, max_token_length=64, rollout_seconds=60), []

    def training_items(self) -> Sequence[digits.Item]:
        return digits.split().training

    def held_out_items(self) -> Sequence[digits.Item]:
        return digits.split().held_out

    def prompt(self, item: digits.Item) -> list[Message]:
        return [{"role": "user", "content": digits.prompt(item)}]

    async def play(self, item: digits.Item, session: RolloutSession) -> Mapping[str, float]:
        answers = await sorted_digits(digits.prompt(item), session.base_url, session.api_key)
        is_right = answers[-1] == digits.answer(item)
        return {"right": 0.5 * is_right, "first_try": 0.5 * (is_right and len(answers) == 1)}
