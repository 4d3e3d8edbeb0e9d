"""The API server of local mode: JSON objects in a folder, with the semantics that a reconcile relies on.

uid, resourceVersion, generation (bumped when the spec changes), deletionTimestamp with finalizers, and garbage
collection of what an object owned. Every write is a rename, made under one lock that all processes share.
"""

import errno
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from rl_operator.api.kubernetes_objects import KubernetesObject, Manifest, PodObject
from rl_operator.api.names import OBJECT_NAME_PATTERN
from rl_operator.local.state.layout import STATE_DIR_VARIABLE, Layout
from rl_operator.local.state.locks import locked
from rl_operator.operator_errors import ConflictError, GoneError, InvalidError, NameTakenError, TargetUnreachableError

Change = Callable[[Any], object]
"""Edits an object of whatever kind in place."""

_OWNED_KINDS = ("ConfigMap", "Service", "NetworkPolicy", "Pod")
"""In the order of their removal: what can simply be removed frees space for what must be written first."""


def without_finalizer(finalizer: str) -> Change:
    def remove(manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        metadata["finalizers"] = [name for name in metadata.get("finalizers", []) if name != finalizer]

    return remove


PROBED_BYTES = 64 * 1024


def unwritable(folder: Path) -> str | None:
    """Why nothing can be written there, in a sentence; None: a little can. Leaves nothing behind."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=existing, buffering=0) as file:
            if file.write(bytes(PROBED_BYTES)) == PROBED_BYTES:
                return None
        why = os.strerror(errno.ENOSPC)
    except OSError as error:
        why = error.strerror or str(error)
    return f"cannot write in {folder}: {why}"


class StateStore:
    """Objects by kind, namespace and name. Every method may raise TargetUnreachableError.

    `clock`: the time in UTC, which the store writes down as an API server does.
    """

    def __init__(self, layout: Layout, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.layout = layout
        self._clock = clock

    # --- reads --------------------------------------------------------------------------------------------------
    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        found: Manifest | None = _read(self._path(kind, namespace, name)) if _can_be(namespace, name) else None
        return found

    def list_all(self, kind: str, namespace: str | None = None, prefix: str = "") -> Iterator[Manifest]:
        """All objects of a kind whose names begin with `prefix`, read while they are asked for; `namespace` None: of
        every namespace.
        """
        for path in sorted(self._paths(kind, namespace, prefix)):
            if (manifest := _read(path)) is not None:
                yield manifest

    def pod(self, namespace: str, name: str) -> PodObject | None:
        return cast("PodObject | None", self.get("Pod", namespace, name))

    def pods(self, namespace: str, prefix: str) -> Iterator[PodObject]:
        """All whose names begin with `prefix`."""
        return cast("Iterator[PodObject]", self.list_all("Pod", namespace, prefix))

    def version(self, kind: str, namespace: str, name: str) -> str | None:
        """Changes whenever the object is written; costs one `stat`. None: there is no such object."""
        return _version(self._path(kind, namespace, name)) if _can_be(namespace, name) else None

    def versions(self, kind: str, namespace: str | None = None) -> dict[tuple[str, str], str]:
        """As `version`, of all objects of a kind, by namespace and name. Nothing is read but the folders."""
        found = ((path, _version(path)) for path in self._paths(kind, namespace))
        return {(path.parent.name, path.stem): version for path, version in found if version}

    # --- writes -------------------------------------------------------------------------------------------------
    def exclusive(self) -> AbstractContextManager[None]:
        """No other process writes while the block runs. A folder that is made here is its user's alone."""
        with suppress(OSError):  # the lock says what is wrong
            self.layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return locked(self.layout.lock)

    def create(self, manifest: Mapping[str, object]) -> Manifest:
        """Raises NameTakenError if the name is in use, InvalidError if it is not a valid object name."""
        with self.exclusive():
            wanted = _copy(manifest)
            kind, namespace, name = _identity(wanted)
            if self.get(kind, namespace, name) is not None:
                raise NameTakenError(f"{kind} {namespace}/{name} is there already")
            return self._create(wanted)

    def apply(self, manifest: Mapping[str, object]) -> Manifest:
        """Create the object, or replace the content of the existing one. Raises NameTakenError if a run owns it."""
        with self.exclusive():
            wanted = _copy(manifest)
            kind, namespace, name = _identity(wanted)
            current = self.get(kind, namespace, name)
            if current is None:
                return self._create(wanted)
            if current["metadata"].get("ownerReferences"):
                raise NameTakenError(f"{kind} {namespace}/{name} belongs to a run: choose another name")
            return self._replace(current, lambda live: _take_content(live, wanted))

    def update(
        self, kind: str, namespace: str, name: str, change: Change, *, uid: str = "", resource_version: str = ""
    ) -> Manifest:
        """Read, change, write.

        Raises GoneError (also if another object took the name of `uid`) and ConflictError (it was written since
        `resource_version`).
        """
        with self.exclusive():
            return self._replace(self._current(kind, namespace, name, uid, resource_version), change)

    def delete(self, kind: str, namespace: str, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """Remove, or mark for deletion while finalizers hold it. Raises GoneError and ConflictError, like `update`."""
        with self.exclusive():
            self._delete(self._current(kind, namespace, name, uid, resource_version))

    # --- under the lock -----------------------------------------------------------------------------------------
    def _create(self, created: Manifest) -> Manifest:
        created["metadata"] |= {
            "uid": str(uuid.uuid4()),
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": self._timestamp(),
        }
        _write(self._path(*_identity(created)), created)
        return created

    def _current(self, kind: str, namespace: str, name: str, uid: str, resource_version: str) -> Manifest:
        current = self.get(kind, namespace, name)
        if current is None or uid not in ("", current["metadata"]["uid"]):
            raise GoneError(f"there is no {kind} {namespace}/{name}")
        if resource_version not in ("", current["metadata"]["resourceVersion"]):
            raise ConflictError(f"{kind} {namespace}/{name} was changed by someone else in the meantime")
        return current

    def _replace(self, current: Manifest, change: Change) -> Manifest:
        updated = _copy(current)
        change(updated)
        if updated == current:
            return current
        metadata = updated["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        if updated.get("spec") != current.get("spec"):
            metadata["generation"] += 1
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self._remove(updated)
        else:
            _write(self._path(*_identity(updated)), updated)
        return updated

    def _delete(self, current: Manifest) -> None:
        if current["metadata"].get("finalizers"):
            grace = current.get("spec", {}).get("terminationGracePeriodSeconds", 0)
            asked = {"deletionTimestamp": self._timestamp(grace), "deletionGracePeriodSeconds": grace}
            self._replace(current, lambda m: m.update(metadata={**asked, **m["metadata"]}))
        else:
            self._remove(current)

    def _remove(self, manifest: Manifest) -> None:
        """Remove everything that an object owned, then the object: an interrupted removal can be repeated."""
        kind, namespace, name = _identity(manifest)
        uid = manifest["metadata"]["uid"]
        for owned_kind in _OWNED_KINDS:
            for owned in self.list_all(owned_kind, namespace):
                if any(owner["uid"] == uid for owner in owned["metadata"].get("ownerReferences", [])):
                    self._delete(owned)
        self._path(kind, namespace, name).unlink(missing_ok=True)

    def _timestamp(self, seconds_ahead: float = 0) -> str:
        return (self._clock() + timedelta(seconds=seconds_ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _paths(self, kind: str, namespace: str | None, prefix: str = "") -> Iterator[Path]:
        """Of all objects of a kind; of every namespace, unless one is given."""
        is_valid = namespace is None or _can_be(namespace)
        return (self.layout.objects / kind.lower()).glob(f"{namespace or '*'}/{prefix}*.json") if is_valid else iter(())

    def _path(self, kind: str, namespace: str, name: str) -> Path:
        """Raises InvalidError: users write names, and a path must not lead elsewhere."""
        if not _can_be(namespace, name):
            raise InvalidError(f"no {kind} can be called {name!r} in the namespace {namespace!r}")
        return self.layout.objects / kind.lower() / namespace / f"{name}.json"


def _version(path: Path) -> str | None:
    try:
        stat = path.stat()
    except OSError:  # it may have been deleted since
        return None
    return f"{stat.st_ino}/{stat.st_mtime_ns}"


def _can_be(*names: str) -> bool:
    """Whether these are valid object names."""
    return all(re.fullmatch(OBJECT_NAME_PATTERN, name) for name in names)


def _copy(manifest: Mapping[str, object]) -> Manifest:
    copy: Manifest = json.loads(json.dumps(manifest))
    return copy


def _take_content(live: Any, wanted: Manifest) -> None:
    """Everything that an author writes: missing fields are removed, identity and status stay."""
    for part in set(live) - {"metadata", "status"} - set(wanted):
        del live[part]
    live |= {part: value for part, value in wanted.items() if part not in ("metadata", "status")}
    for part in ("labels", "annotations"):
        if live["metadata"].get(part, {}) != wanted["metadata"].get(part, {}):
            live["metadata"][part] = wanted["metadata"].get(part, {})


def _identity(manifest: KubernetesObject) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["namespace"], metadata["name"]


def _read(path: Path) -> Any:
    """The object; None: there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise TargetUnreachableError(f"cannot read {path}: {error}") from error


def private(path: str, flags: int) -> int:
    """An opener of files for their user alone: a pod holds the token of its trainer's ops port."""
    return os.open(path, flags, 0o600)


def _write(path: Path, manifest: Manifest) -> None:
    """Write to a temporary file and rename, so that readers see the old or the new object, even after a power loss."""
    draft = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "w", encoding="utf-8", opener=private) as file:
            file.write(json.dumps(manifest, indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)  # noqa: PTH105 -- the same call, but its name says that it overwrites
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise TargetUnreachableError(
            f"cannot write {path}: {error.strerror}; free some space, or set {STATE_DIR_VARIABLE} to another folder"
        ) from error
