"""All tests here need a control plane; some of them play whole runs on it."""

from collections.abc import Iterator, Mapping

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.theatre import Theatre, Undisturbed, open_theatre


@pytest.fixture(scope="module")
def theatre(lonely_plane: ControlPlane) -> Iterator[Theatre]:
    with open_theatre(lonely_plane) as theatre:
        yield theatre


@pytest.fixture(scope="session")
def told() -> dict[str, Undisturbed]:
    """What undisturbed lives were like, once they have been played."""
    return {}


@pytest.fixture(scope="module")
def undisturbed(theatre: Theatre, told: dict[str, Undisturbed]) -> Mapping[str, Undisturbed]:
    if not told:
        told.update(theatre.undisturbed())
    return told
