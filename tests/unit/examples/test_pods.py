"""Pods that examples/ brings to a cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

FILES = sorted(Path("examples").rglob("*.yaml"))


def pods() -> Iterator[Any]:
    for file in FILES:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if document and document["kind"] in ("Deployment", "Job", "StatefulSet"):
                name = f"{file.name}: {document['metadata']['name']}"
                yield pytest.param(document["spec"]["template"]["spec"], id=name)


@pytest.mark.parametrize("pod", list(pods()))
def test_what_they_write_to_the_nodes_disk_is_limited(pod: dict[str, Any]) -> None:
    for container in pod["containers"]:
        assert "ephemeral-storage" in container["resources"]["limits"], container["name"]
    for volume in pod.get("volumes", ()):
        assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}), volume["name"]
