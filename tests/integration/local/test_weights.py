"""`rlctl sample` and `rlctl export` on this machine: the Tinker service is started for them if necessary."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import tinker
from tests.integration.local.conftest import Rlctl, end_everything
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import BY_NAME, Outcome, dispatch
from rl_operator.ui.live_runs import LiveRuns
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import UiContext, Visitor, make_templates

GREEDY = ("sample", "sorting", "sort 4 1 3 2", "--local", "--temperature", "0", "--max-tokens", "8")


@pytest.fixture(scope="module")
def rlctl_with_weights(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rlctl]:
    """A state folder with the finished run `sorting` (one step) and its weights."""
    rlctl = Rlctl(tmp_path_factory.mktemp("state"))
    env_vars = LocalTarget.open(rlctl.root, print, asked=True).tinker_env_vars("tiny")
    assert env_vars is not None
    service = tinker.ServiceClient(base_url=env_vars["TINKER_BASE_URL"], api_key=env_vars["TINKER_API_KEY"])
    client = service.create_lora_training_client("bundled", rank=4).result()
    weights = {
        "samplerPath": client.save_weights_for_sampler("final").result().path,
        "statePath": client.save_state("final").result().path,
    }
    service.close("success").result()
    rlctl.store.create(run_manifest("sorting", phase="Succeeded", weights=weights))
    yield rlctl
    end_everything(rlctl.root)


def test_sample_prints_the_output_of_the_weights(rlctl_with_weights: Rlctl) -> None:
    said = rlctl_with_weights(*GREEDY)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.strip().isdigit()
    wire = json.loads(rlctl_with_weights(*GREEDY, "-o", "json").stdout)
    assert [completion["text"] for completion in wire["completions"]] == [said.stdout.strip()]


@pytest.mark.nightly("operator/src/rl_operator/local")
def test_sample_starts_a_service_that_has_ended(rlctl_with_weights: Rlctl) -> None:
    end_everything(rlctl_with_weights.root)
    said = rlctl_with_weights("sample", "sorting", "--local", "--count", "2", "--seed", "0", "--", "--sort")
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("--- ") == 2


def sampled(trained: Rlctl, given_up: threading.Event | None = None, **asked: object) -> Outcome:
    target = LocalTarget.open(trained.root, print, asked=True)
    context = CallContext(target, "default", variables={}, given_up=given_up or threading.Event())
    return dispatch(BY_NAME["rl_sample"], context, {"run_id": "sorting", "prompt": "sort 4 1 3 2", **asked})


@pytest.mark.nightly("operator/src/rl_operator/local")
def test_agents_sample_what_users_sample(rlctl_with_weights: Rlctl) -> None:
    said = rlctl_with_weights(*GREEDY).stdout
    answer = sampled(rlctl_with_weights, count=2, max_tokens=8, temperature=0, seed=None).answer
    assert [each["text"] for each in answer["untrusted_output"]] == [said.strip()] * 2
    assert answer["untrusted_output"][0].keys() == {"text", "tokens", "logprob", "stop_reason"}
    assert "never instructions" in answer["note"]
    assert answer["weights"].startswith("tinker://")
    first, again = (sampled(rlctl_with_weights, seed=7).answer["untrusted_output"] for _ in range(2))
    assert first == again


async def test_the_page_answers_as_the_command_line_does(rlctl_with_weights: Rlctl) -> None:
    said = rlctl_with_weights(*GREEDY).stdout
    target = LocalTarget.open(rlctl_with_weights.root, print, asked=True)
    visitor = Visitor(target, lambda _: LiveRuns(dict), variables={})  # type: ignore[arg-type]  # nobody listens
    transport = httpx.ASGITransport(ui_app(UiContext(lambda _: visitor, make_templates())))
    form = {
        "prompt": "sort 4 1 3 2",
        "weights": "final",
        "count": "1",
        "max_tokens": "8",
        "temperature": "0",
        "seed": "3",
    }
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as browser:
        page = (await browser.post("/runs/default/sorting/talk", data={**form, "base": "on"})).text
    assert [*re.findall(r"<h3>([^<]*)</h3>", page)] == ["Weights: final", "Base model: bundled"]
    assert f'<div class="words said">{said.strip()}</div>' in page
    assert "Seed 3, temperature 0, at most 8 tokens" in page
    assert 'role="alert"' not in page


def test_an_abandoned_sample_ends(rlctl_with_weights: Rlctl) -> None:
    given_up = threading.Event()
    given_up.set()
    assert sampled(rlctl_with_weights, given_up).code == "timeout"


def test_export_writes_a_peft_folder(rlctl_with_weights: Rlctl, tmp_path: Path) -> None:
    ended = rlctl_with_weights("export", "sorting", "--to", str(tmp_path / "adapter"), "--local")
    assert ended.returncode == 0, ended.stderr
    assert " MB, a PEFT adapter of " in ended.stdout
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {
        path.name for path in (tmp_path / "adapter").iterdir()
    }
    again = rlctl_with_weights("export", "sorting", "--to", str(tmp_path / "adapter"), "--local")
    assert again.returncode == 2
    assert "is there already" in again.stderr
