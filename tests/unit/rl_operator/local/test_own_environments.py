"""Own environments of local mode: files and RLEnvironments, read by the real reader."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.training_run import TrainingRun
from rl_operator.file_discovery import discover_files
from rl_operator.local.own_environments import FILE_ANNOTATION, OwnEnvironments, requirements_of
from rl_operator.local.state.state_store import StateStore

ENTRY = "from words import WORDS\n" + Path("tests/data/environments/shout.py").read_text(encoding="utf-8")
WORDS = "WORDS = ['a']\n"


class CountedReader:
    """Reads like the program, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, files: Mapping[str, str], entry: str | None) -> Catalog:
        self.calls += 1
        return await discover_files(files, entry)


@pytest.fixture
def counted_reader() -> CountedReader:
    return CountedReader()


@pytest.fixture
def own_code(store: StateStore, counted_reader: CountedReader) -> OwnEnvironments:
    return OwnEnvironments(store.get, counted_reader)


@pytest.fixture
def code_folder(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    (place / "shout.py").write_text(ENTRY)
    (place / "words.py").write_text(WORDS)
    (place / "unrelated.py").write_text("raise SystemExit\n")
    (place / "latin.py").write_bytes(b"# \xe9\n")
    return place


def run_of(environment: str, path: Path | None = None) -> TrainingRun:
    manifest = run_manifest(spec={"environment": environment})
    manifest["metadata"]["annotations"] = {FILE_ANNOTATION: str(path)} if path else {}
    return parsed(manifest)


def put(store: StateStore, data: dict[str, str] | None, **spec: Any) -> None:
    spec = spec or {"source": {"configMap": {"name": "code", "entry": "shout.py"}}}
    metadata = {"namespace": "default", "name": "shout"}
    store.apply({**run_manifest(), "kind": "RLEnvironment", "metadata": metadata, "spec": spec})
    if data is not None:
        store.apply({"kind": "ConfigMap", "metadata": {"namespace": "default", "name": "code"}, "data": data})


async def read(own_code: OwnEnvironments, environment: str = "own/shout", path: Path | None = None) -> Environment:
    found = await own_code.of_run(run_of(environment, path))
    assert found is not None
    return found


def fault(environment: Environment) -> str:
    stalled = environment.status.condition("Stalled")
    assert stalled is not None, environment.status
    return f"{stalled.reason}: {stalled.message}"


@pytest.mark.process
async def test_a_file_is_read_with_its_imports(own_code: OwnEnvironments, code_folder: Path) -> None:
    found = await read(own_code, "./shout.py", code_folder / "shout.py")
    ready = found.status.condition("Ready")
    assert ready is not None
    assert (ready.status, found.status.class_name, found.status.entry) == ("True", "Shout", "shout.py")
    assert {field.name: field.default for field in found.status.fields}["group_size"] == 4
    assert await own_code.files(found) == {"shout.py": ENTRY, "words.py": WORDS}


@pytest.mark.process
async def test_the_same_content_is_read_once(
    own_code: OwnEnvironments, code_folder: Path, counted_reader: CountedReader
) -> None:
    file = "./shout.py", code_folder / "shout.py"
    for _ in range(3):
        await read(own_code, *file)
    assert counted_reader.calls == 1
    (code_folder / "words.py").write_text("WORDS = ['b']\n")
    await read(own_code, *file)
    assert counted_reader.calls == 2


@pytest.mark.process
async def test_a_broken_file_is_named_with_its_line(own_code: OwnEnvironments, code_folder: Path) -> None:
    (code_folder / "shout.py").write_text(ENTRY + "\n    def (:\n")
    assert "shout.py, line 20:" in fault(await read(own_code, "./shout.py", code_folder / "shout.py"))


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody.py", "SourceNotFound: There is no file {path}"),
        ("latin.py", "Unreadable: {path} is not UTF-8 text"),
        ("words.py", "NoEnvironment: words.py"),
    ],
)
async def test_files_that_are_not_environments(
    own_code: OwnEnvironments, code_folder: Path, name: str, said: str
) -> None:
    path = code_folder / name
    assert fault(await read(own_code, f"./{name}", path)).startswith(said.format(path=path))


@pytest.mark.process
async def test_an_object_in_the_state_folder_is_read_the_same_way(own_code: OwnEnvironments, store: StateStore) -> None:
    put(store, {"shout.py": ENTRY, "words.py": WORDS, "notes.txt": "hello"})
    found = await read(own_code)
    assert (found.status.class_name, found.status.observed_generation) == ("Shout", 1)
    assert set(await own_code.files(found) or {}) == {"shout.py", "words.py", "notes.txt"}


async def test_a_missing_object_is_none(own_code: OwnEnvironments) -> None:
    assert await own_code.of_run(run_of("own/nobody")) is None
    assert await own_code.of_run(run_of("sort_digits")) is None


async def test_an_object_without_its_config_map(own_code: OwnEnvironments, store: StateStore) -> None:
    put(store, None)
    assert fault(await read(own_code)).startswith("SourceNotFound: ConfigMap default/code does not exist")


@pytest.mark.parametrize("openenv", [{"command": ["serve"]}, {"url": "http://127.0.0.1:8000"}], ids=str)
async def test_an_openenv_server_needs_no_reading(
    own_code: OwnEnvironments, store: StateStore, counted_reader: CountedReader, openenv: dict[str, Any]
) -> None:
    put(store, None, openenv=openenv)
    found = await read(own_code)
    assert (found.status.fault, found.status.entry) == (None, "openenv")
    assert {field.name for field in found.status.fields} >= {"max_turns", "system_prompt"}
    assert await own_code.files(found) is None
    assert counted_reader.calls == 0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"openenv": {"image": "team/echo:1"}},
            'spec.openenv.image is "team/echo:1": local mode runs no images.*spec.openenv.command',
        ),
        ({"image": {"reference": "team/env:1", "entry": "shout"}}, "Local mode runs no images"),
    ],
)
async def test_images_need_a_cluster(
    own_code: OwnEnvironments, store: StateStore, spec: dict[str, Any], said: str
) -> None:
    put(store, None, **spec)
    found = await read(own_code)
    assert re.match(f"NeedsCluster: {said}", fault(found))
    assert await own_code.files(found) is None


@pytest.mark.process
async def test_the_requirements_beside_a_file_are_frozen_with_it(own_code: OwnEnvironments, code_folder: Path) -> None:
    file = "./shout.py", code_folder / "shout.py"
    before = await read(own_code, *file)
    (code_folder / "requirements.txt").write_text("numpy\n")
    after = await read(own_code, *file)
    assert await own_code.files(after) == {"shout.py": ENTRY, "words.py": WORDS, "requirements.txt": "numpy\n"}
    assert before.status.source_hash != after.status.source_hash
    (code_folder / "requirements.txt").write_text("numpy\n-r more.txt\n")
    assert fault(await read(own_code, *file)).startswith("InvalidRequirements: requirements.txt, line 2: '-r more.txt'")


@pytest.mark.process
async def test_a_config_map_may_hold_requirements(own_code: OwnEnvironments, store: StateStore) -> None:
    put(store, {"shout.py": ENTRY, "words.py": WORDS, "requirements.txt": "./mine\n"})
    assert fault(await read(own_code)).startswith("InvalidRequirements: requirements.txt, line 1")
    put(store, {"shout.py": ENTRY, "words.py": WORDS, "requirements.txt": "numpy\n"})
    found = await read(own_code)
    assert found.status.fault is None
    assert requirements_of(run_of("own/shout"), store.get) == "numpy\n"


def test_what_has_no_requirements_needs_none(store: StateStore, code_folder: Path) -> None:
    put(store, {"shout.py": ENTRY})
    for environment, path in (("own/shout", None), ("own/nobody", None), ("./shout.py", code_folder / "shout.py")):
        assert requirements_of(run_of(environment, path), store.get) is None
    (code_folder / "requirements.txt").write_text("\n")
    assert requirements_of(run_of("./shout.py", code_folder / "shout.py"), store.get) is None
