from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.trial.provider import KEY, ScriptedProvider

from tinker_atropos.config.run_config import parse_config
from tinker_atropos.environments.runner.loading.environment_config import Wiring
from tinker_atropos.environments.runner.loading.environment_files import locate_environment
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.environments.trial.provider import Provider, Wishes
from tinker_atropos.environments.trial.provider_server import connect, retry_once
from tinker_atropos.environments.trial.trial_step import Trying

SHARED = {"total_steps": 3, "group_size": 4, "batch_size": 8, "tokenizer_name": "bundled", "max_token_length": 64}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider


async def set_up(
    provider: ScriptedProvider, name: str, model: str, *, wishes: Wishes | None = None, seconds: float = 5.0, **env: Any
) -> tuple[Trying, Any]:
    """An environment that is tried with a model of the provider, and may be asked for its first item."""
    retry_once()
    loaded = load_environment(locate_environment(name))
    wiring = Wiring({"ensure_scores_are_not_same": False}, Provider(provider.url, model, KEY).server_fields())
    built = loaded.build(parse_config({"env": SHARED | env}), wiring)
    connect(built, wishes or Wishes(), seconds)
    await built.setup()
    return Trying(built, loaded.source), built
