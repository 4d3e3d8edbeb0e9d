"""The table of refusals (tests/data/refusals.yaml), for every component that must say the same."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import API_VERSION, RUN_KIND
from rl_operator.documents.parse import load_documents
from rl_operator.documents.shipped import bundled_runtime_text
from rl_operator.documents.yaml_text import read_yaml

[_TABLE] = read_yaml((Path(__file__).parent / "data" / "refusals.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Row:
    code: str
    first: str = "policy"
    sentence: str = ""
    begins: str = ""
    door: str = ""
    spec: dict[str, Any] | None = None
    name: str = "refused"
    kind: str = RUN_KIND

    def run(self, name: str | None = None) -> dict[str, Any]:
        """What is applied; null removes a field of the usual spec."""
        spec = {"environment": "sort_digits", "runtime": "refusals-lab"} | (self.spec or {})
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "metadata": {"name": name or self.name},
            "spec": {field: value for field, value in spec.items() if value is not None},
        }

    def fits(self, sentence: str, namespace: str) -> bool:
        if self.begins:
            return sentence.startswith(self.begins)
        return sentence == self.sentence.replace("{namespace}", namespace)


ROWS = {title: Row(**row) for title, row in _TABLE["rows"].items()}
POLICY_ROWS = {title: row for title, row in ROWS.items() if row.first == "policy"}


def runtimes() -> list[Manifest]:
    """The runtimes that the rows mention."""
    documents = []
    for name, changes in _TABLE["runtimes"].items():
        [document] = load_documents(bundled_runtime_text("tiny"))
        document["metadata"]["name"] = name
        document["spec"] |= changes
        documents.append(document)
    return documents
