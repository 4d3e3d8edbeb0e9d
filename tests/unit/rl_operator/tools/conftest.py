"""A context over an empty state folder, and a way to call tools as the servers do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.rl_operator.tools.contexts import Call, Unattended, call_at
from tests.unit.rl_operator.tools.gateways import Gateway, running_gateway

from rl_operator.local.state.layout import Layout
from rl_operator.tools.call_context import CallContext


@pytest.fixture
def context(tmp_path: Path) -> CallContext:
    return CallContext(Unattended(Layout(tmp_path), "", print), "default")


@pytest.fixture
def call(context: CallContext) -> Call:
    return lambda tool, **arguments: call_at(context, tool, **arguments)


@pytest.fixture(scope="session")
def gateway(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A separate process."""
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running
