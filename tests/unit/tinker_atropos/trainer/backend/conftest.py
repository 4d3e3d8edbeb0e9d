import pytest
from tests.conftest import TinkerServiceProcess


@pytest.fixture
def addressed(tinker_service: TinkerServiceProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK finds the session's service."""
    for name, value in tinker_service.env_vars.items():
        monkeypatch.setenv(name, value)
