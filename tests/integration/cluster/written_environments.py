"""RLEnvironments of one namespace, as their author writes them and sees them."""

from typing import Any

from tests.integration.cluster.admin import ENVIRONMENTS, AdminClient
from tests.integration.cluster.polling import wait_for


class OwnEnvironments:
    """RLEnvironments of one namespace, as their author sees them."""

    def __init__(self, admin: AdminClient, namespace: str) -> None:
        self._admin = admin
        self._environments = ENVIRONMENTS.format(namespace=namespace)
        self._config_maps = f"/api/v1/namespaces/{namespace}/configmaps"

    def write(self, name: str, **files: str) -> None:
        """Create or replace the ConfigMap; `env` is the file env.py."""
        data = {f"{stem}.py": text for stem, text in files.items()}
        if self._admin.find(f"{self._config_maps}/{name}") is None:
            self._admin.post(self._config_maps, {"metadata": {"name": name}, "data": data})
        else:
            self._admin.patch(f"{self._config_maps}/{name}", {"data": data})

    def apply(self, name: str, **spec: Any) -> None:
        body = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLEnvironment",
            "metadata": {"name": name},
            "spec": spec or {"source": {"configMap": {"name": name}}},
        }
        self._admin.post(self._environments, body)

    def until(self, name: str, type_: str, reason: str) -> tuple[dict[str, Any], str]:
        """The status and the condition's message, once it is true for that reason."""

        def look() -> tuple[dict[str, Any], str] | None:
            status = self._admin.get(f"{self._environments}/{name}")["status"]
            for condition in status.get("conditions", []):
                if (condition["type"], condition["status"], condition["reason"]) == (type_, "True", reason):
                    return status, condition["message"]
            return None

        return wait_for(f"RLEnvironment {name} is {type_} because of {reason}", look)

    def edit(self, name: str, **spec: Any) -> int:
        """The new generation."""
        edited = self._admin.patch(f"{self._environments}/{name}", {"spec": spec})
        return int(edited["metadata"]["generation"])

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self._admin.get(f"{self._environments}/{name}")["status"]
        return status

    def versions(self) -> dict[str, str]:
        found = self._admin.items(self._environments)
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}
