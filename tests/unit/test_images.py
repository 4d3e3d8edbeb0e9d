"""The contents of the images, as far as they can be checked without building them."""

import gzip
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from images import install
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rl_operator.render.sandbox_pod import TOOLS_FOLDER, TOOLS_IN_IMAGE
from tinker_atropos.sandboxes import portable_python

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "images"
NAMES = ("operator", "tinker-atropos", "tinker-service")
LOCKS = {str(path.relative_to(IMAGES)): path for path in sorted(IMAGES.rglob("*.txt"))}
OUR_DISTRIBUTIONS = {
    "operator": ("operator", "tools"),
    "tinker-atropos": ("tinker-atropos", "reasoning-gym"),
    "tinker-service": ("tinker-atropos/tinker-service", None),
}
UNLOCKED = {"rl-contract", "torch"}
"""From this repository, and by tinker-atropos/install_torch.py."""

OVERRIDDEN = {"matplotlib", "pycosat"}
"""What reasoning-gym does without here: tinker-atropos/overrides.txt."""

LINUX = {**default_environment(), "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}


def locked(lock: Path) -> dict[str, str]:
    """Versions by canonical name."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", lock.read_text(encoding="utf-8"), flags=re.MULTILINE))


def needed(requirements: list[str]) -> list[Requirement]:
    parsed = [Requirement(each) for each in requirements]
    return [each for each in parsed if each.marker is None or each.marker.evaluate(LINUX)]


# --- locks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_package_to_hashes_and_nothing_else(name: str) -> None:
    text = LOCKS[name].read_text(encoding="utf-8")  # no comments, either: uv's contain paths of the machine it ran on
    pinned = r"[a-z0-9-]+==\S+ \\\n(    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n"
    assert re.fullmatch(f"({pinned})+", text)


@pytest.mark.parametrize("name", OUR_DISTRIBUTIONS)
def test_a_lock_is_up_to_date_with_its_pyproject(name: str) -> None:
    folder, extra = OUR_DISTRIBUTIONS[name]
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = needed(project["dependencies"] + (project["optional-dependencies"][extra] if extra else []))
    wanted = [each for each in wanted if each.name not in UNLOCKED]
    versions = locked(IMAGES / name / "requirements.txt")
    stale = [
        str(each) for each in wanted if not each.specifier.contains(versions.get(canonicalize_name(each.name), "0"))
    ]
    assert not stale, "run 'make lock'"


@pytest.mark.parametrize("name", OUR_DISTRIBUTIONS)
def test_a_lock_is_complete_because_pip_resolves_nothing(name: str) -> None:
    """The requirements of a locked version are locked too: read from packages installed here in the same version."""
    versions = locked(IMAGES / name / "requirements.txt")
    here = {canonicalize_name(each.name): each for each in importlib.metadata.distributions()}
    same = [here[each] for each in versions if each in here and here[each].version == versions[each]]
    assert len(same) > len(versions) / 2, "install what is locked: make setup"
    for each in same:
        missing = (
            {canonicalize_name(one.name) for one in needed(each.requires or [])}
            - versions.keys()
            - OVERRIDDEN
            - UNLOCKED
        )
        assert not missing, f"{each.name} needs {missing}: run 'make lock'"


@pytest.mark.parametrize("name", ["operator/sources.txt", "tinker-service/requirements.txt"])
def test_images_install_the_same_versions(name: str) -> None:
    of_the_others = locked(LOCKS["tinker-atropos/requirements.txt"])
    assert {
        each: version for each, version in locked(LOCKS[name]).items() if of_the_others.get(each, version) != version
    } == {}


def test_the_tinker_service_has_what_torch_needs() -> None:
    there = locked(LOCKS["tinker-service/requirements.txt"])
    asked = {canonicalize_name(each.name) for each in needed(importlib.metadata.requires("torch") or [])}
    cuda = {each for each in asked if each.startswith(("nvidia-", "cuda-", "triton"))}  # a CPU build requires none
    assert asked - cuda <= there.keys()


# --- Dockerfiles -----------------------------------------------------------------------------------------------------
def dockerfile(name: str) -> str:
    return (IMAGES / name / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_an_image_runs_as_a_numeric_user_that_is_not_root(name: str) -> None:
    assert re.findall(r"^USER (.+)$", dockerfile(name), flags=re.MULTILINE)[-1] == "65532:65532"


@pytest.mark.parametrize("name", NAMES)
def test_an_image_describes_itself(name: str) -> None:
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", dockerfile(name)))
    assert labels == {"title", "description", "licenses", "version", "revision", "source", "created"}


@pytest.mark.parametrize("name", NAMES)
def test_every_base_image_can_be_overridden(name: str) -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", dockerfile(name), flags=re.MULTILINE)
    known = {"scratch", "${PYTHON_IMAGE}"} | {stage for _, stage in stages if stage}
    assert {base for base, _ in stages} <= known


@pytest.mark.parametrize("name", NAMES)
def test_labels_come_last_so_that_they_rebuild_nothing(name: str) -> None:
    *_, last = re.split(r"^FROM .+$", dockerfile(name), flags=re.MULTILINE)
    assert re.search(r"^(COPY|RUN)", last[last.index("ARG VERSION") :], flags=re.MULTILINE) is None


def test_images_share_one_layer() -> None:
    """Nodes store it once: the same instructions make the same layer."""
    bases = {re.search(r"AS base\n.*?COPY --from=base / /\n", dockerfile(name), flags=re.DOTALL)[0] for name in NAMES}
    assert len(bases) == 1


def test_the_image_has_the_tools_where_the_pods_of_sandboxes_look() -> None:
    assert f"COPY --from=sandbox-tools {TOOLS_IN_IMAGE} {TOOLS_IN_IMAGE}\n" in dockerfile("tinker-atropos")
    assert portable_python.PLACE == TOOLS_FOLDER


# --- the scripts -----------------------------------------------------------------------------------------------------
def test_only_unimported_files_are_dropped(tmp_path: Path) -> None:
    for folder in ("pandas/tests/io/tests", "pandas/testing", "joblib/test", "wandb/sdk/test", "pyarrow/include/arrow"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests.py").touch()
    dropped = {str(path.relative_to(tmp_path)) for path in install.droppable(tmp_path)}
    assert dropped == {"pandas/tests", "joblib/test", "pyarrow/include"}


@pytest.mark.parametrize(
    ("module", "compiled"),
    [
        ("transformers/models/qwen3/modeling_qwen3.py", False),
        ("transformers/models/qwen3/configuration_qwen3.py", True),
        ("transformers/models/qwen2/tokenization_qwen2.py", True),
        ("kubernetes/aio/client/models/v1_pod.py", False),
        ("kubernetes/aio/client/models/__init__.py", True),
        ("kubernetes/aio/client/rest.py", True),
    ],
)
def test_rarely_imported_modules_are_not_compiled(module: str, compiled: bool) -> None:
    assert (install.NOT_COMPILED.search(f"/opt/venv/lib/python3.11/site-packages/{module}") is None) is compiled


LAYERS = [b"layer one " * 9999, bytes(range(256)) * 999]


def archive(path: Path, layers: list[bytes]) -> Path:
    names = [f"blobs/{number}.tar" for number in range(len(layers))]
    members = {"manifest.json": json.dumps([{"Layers": names}]).encode(), **dict(zip(names, layers, strict=True))}
    with tarfile.open(path, "w") as opened:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.process
@pytest.mark.parametrize("saved_compressed", [False, True])
def test_sizes_match_those_of_a_registry(tmp_path: Path, saved_compressed: bool) -> None:
    compressed = [gzip.compress(each, 6) for each in LAYERS]
    path = archive(tmp_path / "some-image.tar", compressed if saved_compressed else LAYERS)
    megabytes = sum(map(len, compressed)) / 1e6
    for limit, code, word in (("1", 0, "ok"), (f"{megabytes / 2}", 1, "TOO LARGE")):
        done = subprocess.run(
            [sys.executable, IMAGES / "sizes.py", f"{path}={limit}"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (code, "")
        assert re.match(rf"some-image +{megabytes:.1f} MB = .*{word}", done.stdout), done.stdout
