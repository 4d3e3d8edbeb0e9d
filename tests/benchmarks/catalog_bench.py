"""How long the catalog takes: `python -m tests.benchmarks.catalog_bench`. Prints a table; asserts nothing.

The files are made here, as people write them: a config with a dozen fields, limits and an enum, a `config_init`, and
the methods of an environment, about 150 lines each; every tenth derives from a base in another file.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_operator.file_discovery import discover_files
from tinker_atropos.environments.discovery import discover

FILES = 50
TIMES = 9
PROGRAM = str(Path(sys.executable).with_name("tinker-atropos"))

HEAD = '''"""Task {number}: answers are judged by their last number."""

import random
import re
from enum import Enum
from typing import Annotated, Any, Dict, List, Literal, Optional, Tuple

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, EvalHandlingEnum, ScoredDataGroup
from pydantic import Field
{imports}

class Difficulty(Enum):
    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


SYSTEM_PROMPT = "You are a careful mathematician. " "Think first, then say the number."


class Task{number}Config(BaseEnvConfig):
'''

FIELDS = """    limit_{index}: int = Field(default={index} + 1, ge=0, le=1024 * 16, description="Of kind {index}.")
    share_{index}: Annotated[float, Field(gt=0, le=1)] = 0.5
    mode_{index}: Literal["strict", "lenient"] = Field("strict", description="How answers of kind {index} are read.")
    difficulty_{index}: Optional[Difficulty] = Difficulty.EASY
"""

BODY = '''

class Task{number}({base}):
    """Task {number}: say the number."""

    name = "task_{number}"
    env_config_cls = Task{number}Config

    def __init__(self, config, server_configs: List[APIServerConfig], slurm=True, testing=False):
        super().__init__(config, server_configs, slurm, testing)
        self.percent_correct_buffer: List[float] = list()
        self.eval_metrics: List[Tuple[str, float]] = list()

    @classmethod
    def config_init(cls) -> Tuple[Task{number}Config, List[APIServerConfig]]:
        env_config = Task{number}Config(
            tokenizer_name="NousResearch/DeepHermes-3-Llama-3-8B-Preview",
            group_size=16,
            total_steps=2000,
            batch_size=1024,
            steps_per_eval=25,
            max_token_length=1024 * 16,
            eval_handling=EvalHandlingEnum.LIMIT_TRAIN,
        )
        return env_config, [APIServerConfig(model_name="m", base_url="http://localhost:9004/v1", api_key="x")]

    async def setup(self):
        self.random = random.Random({number})
        self.iter = 0
'''

METHOD = """
    async def step_{index}(self, item: Dict[str, Any]) -> Optional[ScoredDataGroup]:
        messages = [{{"role": "system", "content": SYSTEM_PROMPT}}, {{"role": "user", "content": item["question"]}}]
        completions = await self.server.completion(prompt=str(messages), n=self.config.group_size, max_tokens=1024)
        scores = ScoredDataGroup(tokens=[], masks=[], scores=[])
        for completion in completions.choices:
            found = re.findall(r"-?\\\\d+", completion.text)
            scores["scores"].append(1.0 if found and int(found[-1]) == item["answer"] else -1.0)
        if all(score == scores["scores"][0] for score in scores["scores"]):
            return None
        return scores
"""

BASE = '''from abc import ABC

from atroposlib.envs.base import BaseEnv


class MathEnv(BaseEnv, ABC):
    """What all tasks share."""
'''


def source(number: int) -> str:
    derived = number % 10 == 0
    head = HEAD.format(number=number, imports="from lib.math_env import MathEnv\n" if derived else "")
    fields = "".join(FIELDS.format(index=index) for index in range(6))
    body = BODY.format(number=number, base="MathEnv" if derived else "BaseEnv")
    return head + fields + body + "".join(METHOD.format(index=index) for index in range(6))


def write(folder: Path) -> int:
    """Gives the number of lines."""
    (folder / "lib").mkdir()
    (folder / "lib" / "math_env.py").write_text(BASE, encoding="utf-8")
    for number in range(FILES):
        (folder / f"task_{number}.py").write_text(source(number), encoding="utf-8")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def seconds(call: Callable[[], Any]) -> list[float]:
    taken = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return sorted(taken)


def row(what: str, goal: str, taken: list[float]) -> None:
    print(f"{what:<52} {goal:>8} {statistics.median(taken):>8.2f} {taken[-1]:>8.2f} s")


def program(*arguments: str, env_vars: Mapping[str, str] = os.environ) -> Callable[[], Any]:
    command = [PROGRAM, "environments", *arguments, "-o", "json"]
    return lambda: subprocess.run(command, env=dict(env_vars), capture_output=True, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = write(Path(folder))
        found = discover(Path(folder))
        assert (len(found.environments), found.warnings) == (FILES, [])
        print(f"{FILES} files, {lines} lines, {sum(len(each.fields) for each in found.environments)} fields\n")
        print(f"{'what':<52} {'goal':>8} {'median':>8} {'worst':>8}")
        row(f"catalog of {FILES} files, tinker-atropos", "<= 1", seconds(program("--path", folder)))
        row(f"catalog of {FILES} files, in the process", "", seconds(lambda: discover(Path(folder))))
        row("one file, tinker-atropos --entry", "", seconds(program("--path", folder, "--entry", "task_0.py")))
        files = {"lib.py": BASE, "env.py": source(1)}
        row("one file, as the operator reads it", "", seconds(lambda: asyncio.run(discover_files(files, "env.py"))))
        row("the bundled environments", "", seconds(program()))


if __name__ == "__main__":
    main()
