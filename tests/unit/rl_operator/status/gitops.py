"""The public rules by which Flux and Argo CD judge objects: Flux's own library, and our script as Argo CD runs it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lupa.lua51 import LuaRuntime
from tests.integration.cluster.control_plane import find_program

Manifest = Mapping[str, Any]

HEALTH_SCRIPT: Final = Path("examples/gitops/argocd/health.lua")
IGNORED: Final = "argocd.argoproj.io/ignore-healthcheck"
WORST_LAST: Final = ("Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown")
"""Argo CD's order of health, docs/operator-manual/health.md: an application is as its worst resource."""

SANDBOX: Final = """
for _, name in ipairs({"io", "debug", "require", "module", "package", "python", "string", "math", "coroutine"}) do
  _G[name] = nil
end
for _, name in ipairs({"dofile", "load", "loadfile", "loadstring", "print", "newproxy"}) do
  _G[name] = nil
end
os = {time = os.time, date = os.date}
"""
"""What Argo CD's interpreter does not open (util/lua/lua.go): a script that needs it works here and not there."""


def flux(manifest: Manifest) -> str:
    """Current, InProgress, Failed or Terminating, by kstatus, the library that Flux waits with."""
    program = find_program("kstatus")
    assert program
    text = json.dumps(manifest)
    done = subprocess.run([program], input=text, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()[1]


def argo(manifest: Manifest) -> tuple[str, str]:
    """Health and message of an object of our kinds. Argo CD looks at the deletion itself (gitops-engine, health.go)."""
    if "deletionTimestamp" in manifest["metadata"]:
        return "Progressing", "Pending deletion"
    return health_by(HEALTH_SCRIPT.read_text(), manifest)


def health_by(script: str, manifest: Manifest) -> tuple[str, str]:
    """Health and message, by a script in Argo CD's interpreter."""
    lua = LuaRuntime(register_eval=False, register_builtins=False, attribute_filter=_nothing_of_python)
    lua.execute(SANDBOX)
    lua.globals().obj = _as_lua(lua, manifest)
    health = lua.execute(script)
    return health["status"], health["message"]


def argo_pod(pod: Manifest) -> str:
    """Of a pod (gitops-engine, health_pod.go), as far as ours are concerned: one that never restarts is taken for a
    hook, which is progressing while it runs, however it is.
    """
    if "deletionTimestamp" in pod["metadata"]:
        return "Progressing"
    phase, restarts = pod["status"]["phase"], pod["spec"].get("restartPolicy", "Always")
    if phase in ("Succeeded", "Failed"):
        return {"Succeeded": "Healthy", "Failed": "Degraded"}[phase]
    assert restarts in ("Never", "OnFailure"), "the rule for pods that restart is not written down here"
    return "Progressing"


def argo_application(resources: Mapping[str, tuple[Manifest, str]]) -> str:
    """Of an application, by its resources' health (controller/health.go): resources that opt out do not count."""
    counted = (
        health
        for manifest, health in resources.values()
        if manifest["metadata"].get("annotations", {}).get(IGNORED) != "true"
    )
    return max(counted, key=WORST_LAST.index, default="Healthy")


def _as_lua(lua: LuaRuntime, value: Any) -> Any:
    """JSON as Argo CD hands it over: objects and lists are tables, null is nothing."""
    if isinstance(value, Mapping):
        return lua.table_from({key: _as_lua(lua, each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return lua.table_from([_as_lua(lua, each) for each in value])
    return value


def _nothing_of_python(_object: object, _name: str, _setting: bool) -> str:
    raise AttributeError("the script may not reach into Python")
