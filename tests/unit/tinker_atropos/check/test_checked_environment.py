"""Real environments against the scripted policy over HTTP: each fault, and the finding that names it."""

import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tinker_atropos.check.check_process import to_wire
from tinker_atropos.check.checked_environment import EnvironmentCheck
from tinker_atropos.check.checks import Finding, findings
from tinker_atropos.check.observations import BrokenOffError, Observations
from tinker_atropos.config.run_config import parse_config
from tinker_atropos.environments.runner import atropos_patches
from tinker_atropos.environments.runner.loading.environment_files import locate_environment
from tinker_atropos.errors import ConfigError

DATA = Path(__file__).parents[3] / "data" / "environments"
HEAD = """\
import random
from tinker_atropos.environments.bundled.sort_digits import SortDigits, digits


class Mine(SortDigits):
"""
CHECKS = (
    *("import", "setup", "items", "requests", "rollouts", "groups", "masks", "tokens", "logprobs", "length"),
    *("training", "rewards", "spread", "grader", "held_out", "close"),
)

Check = Callable[..., Awaitable[tuple[Observations, dict[str, Finding]]]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Check SortDigits with a body of one's own, or a file, and return what was seen and found."""

    async def checked(body: str | Path = "", seed: int = 0, **env: object) -> tuple[Observations, dict[str, Finding]]:
        if isinstance(body, str):
            file = tmp_path / "mine.py"
            file.write_text(HEAD + textwrap.indent(textwrap.dedent(body) or "pass", "    "))
        else:
            file = body
        shared = {"total_steps": 3, "group_size": 8, "batch_size": 8, "tokenizer_name": "bundled"}
        run = parse_config({"env": {**shared, "max_token_length": 64, **env}}) if env else None
        seen = Observations(file.name, seed=seed, groups_asked=2)
        atropos_patches.list_token_ids()
        try:
            await EnvironmentCheck(locate_environment(str(file)), run, None, seen).check()
        except BrokenOffError:
            assert seen.broken
        found = {each.check: each for each in findings(seen)}
        assert tuple(found) == CHECKS
        return seen, found

    return checked


def not_ok(found: dict[str, Finding]) -> dict[str, str]:
    return {name: each.verdict for name, each in found.items() if each.verdict != "ok"}


async def test_a_good_environment_passes_everything(check: Check) -> None:
    seen, found = await check()
    assert not_ok(found) == {}
    assert (len(seen.groups), seen.requests) == (2, {"/generate": 2})
    answers = seen.groups[0].answers
    assert [(answer.kind, answer.reward) for answer in answers[:4]] == [
        ("gold", 1.0),
        ("wrong", 0.0),
        ("empty", 0.0),
        ("random", 0.0),
    ]
    wire = to_wire(seen, list(found.values()))
    assert wire["groups"] | {"rollouts_scored": 0} == {
        "asked": 2, "size": 8, "sent": 2, "refused": 0, "unusable": 0, "differ": 2, "dropped": {}, "failed": {},
        "rollouts_scored": 0, "rollouts_failed": {}, "rollouts_trained": 16,
    }  # fmt: skip
    assert wire["tokens"]["trained"] == wire["tokens"]["sampled"] == wire["tokens"]["trained_and_sampled"] > 0
    assert wire["rewards"] == {"min": 0.0, "max": 1.0, "mean": 0.25}
    assert wire["held_out"] == {"items": 2000, "training_items": 2000, "overlap": 0, "compared": 2000, "left_out": 0}


ITEMS_SEEN: dict[str, tuple[str, str, str, str]] = {
    "what is held out is left out": (
        "def held_out_sets(self):\n    return {'hard': digits.split().training[:3]}",
        "held_out", "ok", "hard 3, none of them among the 2,000 training items; 3 items that would be are left out",
    ),
    "too few for a batch": (
        "def training_items(self):\n    return digits.split().training[:3]",
        "items", "warning", "the environment has 3 items to train on, and a batch takes 4 (env.batch_size / ",
    ),
    "drawn by the environment": (
        "async def get_next_item(self):\n    return digits.split().training[0]",
        "items", "ok", "the environment draws its items itself (get_next_item), in an order that only its code knows",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "name", "verdict", "said"), ITEMS_SEEN.values(), ids=ITEMS_SEEN)
async def test_what_is_said_of_items(check: Check, body: str, name: str, verdict: str, said: str) -> None:
    _, found = await check(body)
    assert found[name].verdict == verdict
    assert said in found[name].said


async def test_a_seed_decides_all_answers(check: Check) -> None:
    one, again, other = [(await check(seed=seed))[0].groups[0].answers for seed in (1, 1, 2)]
    assert one == again != other


COLLECT = """
async def collect_trajectories(self, item):
    group, backlog = await super().collect_trajectories(item)
    {}
    return group, backlog
"""

FAULTS: dict[str, tuple[str, dict[str, str], str]] = {
    "pays for everything": (
        "def score(self, item, completion):\n    return 1.0",
        {"spread": "failed", "grader": "failed"},
        "pays 1 for the worthless answer '' (8 of 8 tries)",
    ),
    "rejects the right answer": (
        "def score(self, item, completion):\n    return 0.9 * super().score(item, completion)",
        {"grader": "failed"},
        "gives 0.9 to the right answer",
    ),
    "grader expects an answer": (
        "def score(self, item, completion):\n    return float(completion[0] == '1')",
        {"rollouts": "warning", "grader": "failed"},
        "IndexError: string index out of range (mine.py, line 7, in score)",
    ),
    "grader always raises": (
        "def score(self, item, completion):\n    raise KeyError(completion)",
        {"rollouts": "failed", "grader": "failed", "groups": "unknown"},
        "no group was made",
    ),
    "grader raises now and then": (
        ("def score(self, item, completion):\n    if not completion:\n        raise ConnectionError('away')\n"
        "    return super().score(item, completion)"),
        {"rollouts": "warning", "grader": "failed"},
        "transport",
    ),
    "rewards are equal": (
        ("async def _scored(self, item, prompt, output):\n    rollout = await super()._scored(item, prompt, output)\n"
        "    return type(rollout)(rollout.sequences, 0.25)"),
        {"spread": "failed"},
        "although right, wrong and empty answers were among them",
    ),
    "masks are of another kind": (
        COLLECT.format("group['masks'] = [[int(m != -100) for m in row] for row in group['masks']]"),
        {"groups": "failed"},
        "masks[0][0] is 0; allowed are -100",
    ),
    "masks are shifted": (
        COLLECT.format("group['masks'] = [[-100, *m[:-1]] for m in group['masks']]\n    "
                       "group['masks'] = [[t if m != -100 else m for t, m in zip(*two)] "
                       "for two in zip(group['tokens'], group['masks'])]"),
        {"masks": "warning"},
        "masks leave out",
    ),
    "masks have the prompt": (
        COLLECT.format("group['masks'] = group['tokens']"),
        {"masks": "warning"},
        "that the policy did not sample, such as a prompt's",
    ),
    "masks are empty": (
        COLLECT.format("group['masks'] = [[-100] * len(m) for m in group['masks']]"),
        {"masks": "failed"},
        "no token would be trained",
    ),
    "tokens are made from text": (
        COLLECT.format("group['tokens'] = [[*t[:-1], 5] for t in group['tokens']]\n    "
                       "group['masks'] = group['tokens']; del group['inference_logprobs']"),
        {"tokens": "failed"},
        "they were made from text again",
    ),
    "a token is unknown": (
        COLLECT.format("group['tokens'][0][0] = 512"),
        {"groups": "failed"},
        "tokens[0][0] is 512; the model knows the ids 0 to 511",
    ),
    "logprobs are shifted": (
        COLLECT.format("group['inference_logprobs'] = [[*r[1:], -9.0] for r in group['inference_logprobs']]"),
        {"logprobs": "warning"},
        "inference_logprobs of 16 of 16 sequences are not those sampled",
    ),
    "a reward is not a number": (
        COLLECT.format("group['scores'][0] = float('nan')"),
        {"groups": "failed", "rewards": "failed"},
        "2 of 16 rewards are not finite numbers",
    ),
    "a rollout is missing": (
        COLLECT.format("group['tokens'].pop()"),
        {"groups": "failed"},
        "some of their rollouts were missing",
    ),
    "keeps its groups back": (
        COLLECT.format("return None, []"),
        {"groups": "warning"},
        "kept back all of its groups",
    ),
    "samples greedily": (
        ("async def generate(self, prompt, n, split):\n"
        "    from tinker_atropos.environments.rollout.conversation import Output\n"
        "    _, o, l, _ = await self.server.tokens_and_logprobs_completion(input_ids=prompt, n=n, max_tokens=9, "
        "temperature=0.0, split=split)\n    return [Output(*each) for each in zip(o, l)]"),
        {"training": "failed"},
        "it was sampled with temperature, top_p or top_k",
    ),
    "samples with a temperature": (
        ("async def generate(self, prompt, n, split):\n"
        "    from tinker_atropos.environments.rollout.conversation import Output\n"
        "    _, o, l, _ = await self.server.tokens_and_logprobs_completion(input_ids=prompt, n=n, max_tokens=9, "
        "temperature=0.8, split=split)\n    return [Output(*each) for each in zip(o, l)]"),
        {"training": "warning"},
        "rollouts are sampled with temperature",
    ),
    "asks for what is not served": (
        ("async def generate(self, prompt, n, split):\n"
        "    return await self.server.completion(prompt='x', n=n, max_tokens=9, logit_bias={'5': 1})"),
        {"requests": "failed", "rollouts": "failed"},
        "/v1/completions: 400 logit_bias is not supported",
    ),
    "asks nobody": (
        ("async def generate(self, prompt, n, split):\n"
        "    from tinker_atropos.environments.rollout.conversation import Output\n"
         "    return [Output([5, 2], [-1., -1.])] * n"),
        {"requests": "failed"},
        "nothing was asked of the policy",
    ),
    "has no item": (
        "async def get_next_item(self):\n    return None",
        {"items": "failed"},
        "get_next_item gave None",
    ),
    "leaves": (
        "async def get_next_item(self):\n    raise SystemExit(3)",
        {"items": "failed"},
        "it called sys.exit(3) (mine.py, line 7, in get_next_item)",
    ),
    "leaves in a rollout": (
        "async def collect_trajectories(self, item):\n    raise SystemExit(3)",
        {"rollouts": "failed"},
        "the environment failed in a rollout: it called sys.exit(3)",
    ),
    "trains what it holds out": (
        ("def held_out_items(self):\n    return [*digits.split().held_out[:5], *digits.split().training[:3]]\n"
        "def is_held_out(self, item):\n    return False"),
        {"held_out": "failed"},
        "3 of 8 held-out items ask what a training item asks",
    ),
    "trains what another set holds out": (
        ("def held_out_sets(self):\n    parts = digits.split()\n"
        "    return {'hard': parts.training[:3], 'easy': parts.held_out[:2]}\n"
        "def is_held_out(self, item):\n    return False"),
        {"held_out": "failed"},
        "3 of 3 held-out items of the set hard ask what a training item asks",
    ),
    "has a set without a name": (
        "def held_out_sets(self):\n    return {'': digits.split().held_out}",
        {"setup": "failed"},
        "Mine.held_out_sets() has a set named ''",
    ),
    "holds nothing out": (
        "def held_out_items(self):\n    return []",
        {"held_out": "warning", "grader": "ok"},
        "there are no held-out items",
    ),
    "does not set up": (
        "async def setup(self):\n    raise FileNotFoundError('no data')",
        {"setup": "failed", "items": "unknown", "close": "unknown"},
        "FileNotFoundError: no data (mine.py, line 7, in setup)",
    ),
    "does not close": (
        "async def close(self):\n    raise OSError('busy')",
        {"close": "failed"},
        "OSError: busy",
    ),
    "has a config that is wrong": (
        ("@classmethod\ndef config_init(cls):\n    config, servers = super().config_init()\n"
        "    config.group_size = 0\n    return config, servers"),
        {"setup": "failed"},
        "env.group_size is 0: input should be greater than or equal to 1",
    ),
    "is not Python": ("def score(self:", {"import": "failed", "setup": "unknown"}, "SyntaxError"),
    "groups of one": (
        ("@classmethod\ndef config_init(cls):\n    config, servers = super().config_init()\n"
        "    config.group_size = 1\n    return config, servers"),
        {"groups": "failed"},
        "a group of one teaches nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "verdicts", "said"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_found_and_named(check: Check, body: str, verdicts: dict[str, str], said: str) -> None:
    _, found = await check(body)
    assert {name: found[name].verdict for name in verdicts} == verdicts, found
    assert any(said in found[name].said for name in verdicts), found


PLAIN = {
    "plain_game.py": {"groups": "ok", "masks": "ok", "spread": "unknown", "held_out": "unknown"},
    "plain_conversation.py": {"groups": "warning"},
    "plain_tools.py": {"groups": "warning"},
    "second_chance.py": {"spread": "unknown"},
}


@pytest.mark.process
@pytest.mark.parametrize(("file", "verdicts"), PLAIN.items(), ids=PLAIN)
async def test_files_as_people_write_them_do_not_fail(check: Check, file: str, verdicts: dict[str, str]) -> None:
    seen, found = await check(DATA / file)
    assert "failed" not in not_ok(found).values(), found
    assert {name: found[name].verdict for name in verdicts} == verdicts
    assert seen.requests.total() > 0


async def test_a_config_file_decides_and_is_to_blame(check: Check) -> None:
    seen, found = await check(group_size=4, batch_size=4)
    assert (seen.group_size, seen.max_token_length) == (4, 64)
    assert not_ok(found) == {}
    with pytest.raises(ConfigError, match=r"env\.no_such_field is not a field of this environment"):
        await check(no_such_field=1)
