"""The pods that read images, as kubelet and test see them."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.kubelet import NODE
from tests.integration.cluster.node import LogNode
from tests.integration.cluster.polling import wait_for

SELECTOR = "app.kubernetes.io/component=discovery"
IMAGE_ID = "registry.test/envs@sha256:4f3c"


def field(name: str, type_: str, default: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "default": default, "description": f"What {name} is.", **more}


SHARED = (
    field("total_steps", "int", 4), field("group_size", "int", 4), field("batch_size", "int", 8),
    field("max_token_length", "int", 64), field("tokenizer_name", "str", "bundled"),
)  # fmt: skip


def printed(*names: str, fields: Sequence[Mapping[str, Any]] = ()) -> str:
    """What `tinker-atropos environments -o json` prints, with an unrelated line before it."""
    environments = [
        {"name": name, "class_name": name.title(), "file_path": f"{name}.py", "description": f"Learn {name}.",
         "fields": [*SHARED, *fields]}
        for name in names
    ]  # fmt: skip
    document = {"environments": environments, "warnings": [], "problem": None, "modules": []}
    return f"some library says hello\n{json.dumps(document, indent=2)}\n"


class Readers:
    """The discovery pods of one namespace."""

    def __init__(self, admin: AdminClient, namespace: str, node: LogNode) -> None:
        self._admin = admin
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._node = node

    def of_image(self, image: str) -> list[dict[str, Any]]:
        pods = self._admin.items(self._pods, labelSelector=SELECTOR)
        return [pod for pod in pods if pod["spec"]["containers"][0]["image"] == image]

    def until_there(self, image: str) -> dict[str, Any]:
        return wait_for(f"a pod reads {image}", lambda: self.of_image(image))[0]

    def until_gone(self, image: str) -> None:
        wait_for(f"no pod reads {image} any more", lambda: not self.of_image(image))

    def cannot_start(self, pod: str, reason: str, message: str) -> None:
        waiting = {"state": {"waiting": {"reason": reason, "message": message}}}
        self._bind(pod)
        self._write(pod, "Pending", waiting)

    def end(self, pod: str, log: str, code: int = 0, *, bind: bool = True) -> None:
        """The container printed `log` and ended."""
        if bind:
            self._bind(pod)
        self._node.logs[f"{self._namespace}/{pod}"] = log
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = log[-200:] if code else ""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
        state = {"state": {"terminated": {**ended, "startedAt": now, "finishedAt": now}}}
        self._write(pod, "Failed" if code else "Succeeded", state)

    def _bind(self, pod: str) -> None:
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": NODE}}
        self._admin.post(f"{self._pods}/{pod}/binding", body)

    def _write(self, pod: str, phase: str, state: Mapping[str, Any]) -> None:
        status = {"name": "environments", "image": "i", "imageID": IMAGE_ID, "ready": False, "restartCount": 0, **state}
        self._admin.patch(f"{self._pods}/{pod}/status", {"status": {"phase": phase, "containerStatuses": [status]}})
