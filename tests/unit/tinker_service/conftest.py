"""The engine and clients that the Tinker service's tests share."""

import random
from collections.abc import Iterator

import httpx
import pytest
import tinker
import torch
from tests.conftest import TinkerServiceProcess

from rl_contract.bundled import bundled_model_folder
from tinker_service.model.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The bundled model in this process, for tests below HTTP."""
    torch.set_num_threads(1)
    return Engine("bundled", bundled_model_folder(), "cpu")


@pytest.fixture(scope="session")
def prompts(engine: Engine) -> list[tuple[int, ...]]:
    """Prompts of the bundled model's task (sort four digits), as tokens."""
    generator = random.Random(0)
    contents = [f"sort {' '.join(generator.choices('0123456789', k=4))}" for _ in range(32)]
    return [
        tuple(
            engine.tokenizer.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, return_dict=False
            )
        )
        for content in contents
    ]


@pytest.fixture
def client(tinker_service: TinkerServiceProcess) -> Iterator[tinker.ServiceClient]:
    """The unmodified SDK against the running service."""
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    yield client
    client.close("success").result(10)


@pytest.fixture
def rest(tinker_service: TinkerServiceProcess) -> tinker.RestClient:
    return tinker.RestClient(base_url=tinker_service.url, api_key=tinker_service.key)


@pytest.fixture
def http(tinker_service: TinkerServiceProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tinker_service.url, headers={"X-API-Key": tinker_service.key}, timeout=60) as http:
        yield http
