"""Word problems like those of grade school: a text is answered by a text, and its last number counts."""

from collections.abc import Sequence

from tinker_atropos.environments.base import Environment, EnvironmentConfig, Message
from tinker_atropos.environments.bundled import word_problems

SYSTEM_PROMPT = r"Solve the problem step by step. Write the answer at the end, in \boxed{}."


class GsmSynthetic(Environment[word_problems.WordProblem]):
    """Word problems of two to four steps, made from templates; the answer is an integer."""

    name = "gsm_synthetic"

    @classmethod
    def config_init(cls) -> tuple[EnvironmentConfig, list[object]]:
        return EnvironmentConfig(
            tokenizer_name="bundled",
            group_size=8,
            batch_size=64,
            total_steps=100,
            max_token_length=1024,
        ), []

    def training_items(self) -> Sequence[word_problems.WordProblem]:
        return word_problems.split().training

    def held_out_items(self) -> Sequence[word_problems.WordProblem]:
        return word_problems.split().held_out

    def prompt(self, item: word_problems.WordProblem) -> list[Message]:
        asked = {"role": "user", "content": word_problems.question(item)}
        return [{"role": "system", "content": SYSTEM_PROMPT}, asked]

    def score(self, item: word_problems.WordProblem, completion: str) -> float:
        return word_problems.graded(item, completion)

    def gold_answer(self, item: word_problems.WordProblem) -> str:
        return word_problems.worked_solution(item)

    def wrong_answers(self, item: word_problems.WordProblem) -> Sequence[str]:
        return ("I do not know.", rf"\boxed{{{word_problems.answer(item) + 1}}}")
