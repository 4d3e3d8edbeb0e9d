"""The three documents that make a file of this machine an environment of a cluster. Pure."""

import re
from collections.abc import Mapping

from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND
from rl_operator.documents.yaml_lines import block, flow


def object_name(text: str) -> str:
    """A name for Kubernetes out of a file's or an environment's: `my_env.py` becomes `my-env`."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower().removesuffix(".py")).strip("-")
    return name if name and name[0].isalpha() else f"run-{name}".rstrip("-")


def own_environment_template(name: str, files: Mapping[str, str], entry: str) -> str:
    """ConfigMap and RLEnvironment, each with the line that ends a document."""
    data = "".join(block(file, text, indent=2) for file, text in files.items())
    return (
        f"# The code: Python files, as they are.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n"
        f"{data}---\n"
        f"# The environment: own/{name} in this namespace.\napiVersion: {API_VERSION}\nkind: {ENVIRONMENT_KIND}\n"
        f"metadata:\n  name: {name}\nspec:\n  source:\n    configMap: {{name: {name}, entry: {flow(entry)}}}\n---\n"
    )
