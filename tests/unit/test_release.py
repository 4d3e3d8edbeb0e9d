"""What a release needs before anything is uploaded: one version, a section of the changelog, a tag, all files."""

import re
from pathlib import Path

import pytest
import yaml
from release import CHANGELOG, ReleaseError, check, collect, distributions, newest_section, stated_versions, version

ROOT = Path(__file__).resolve().parents[2]
CHANGES = "# Changelog\n\n## {0} ({1})\n\n* New.\n\n## 0.1.0 (2026-01-31)\n\n* Old.\n"


UNTAGGED = {"HEAD": "new"}
TAGGED = {"HEAD": "new", "refs/tags/v0.2.0": "new"}
TAGGED_BEFORE = {"HEAD": "new", "refs/tags/v0.2.0": "old"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Of one distribution, one chart and one image, at version 0.2.0."""
    write(tmp_path, "alpha/pyproject.toml", '[build-system]\n[project]\nname = "al-pha"\nversion = "0.2.0"\n')
    write(tmp_path, "alpha/src/alpha/__init__.py", '__version__ = "0.2.0"\n')
    write(tmp_path, "examples/mine/pyproject.toml", '[build-system]\n[project]\nname = "mine"\nversion = "9.0.0"\n')
    write(tmp_path, "pyproject.toml", "[tool.ruff]\n")
    write(tmp_path, "charts/alpha/Chart.yaml", "name: alpha\nversion: 0.2.0\nappVersion: 0.2.0\n")
    write(tmp_path, "images/alpha/Dockerfile", "FROM scratch\nARG VERSION=0.2.0 REVISION=\n")
    write(tmp_path, CHANGELOG, CHANGES.format("0.2.0", "unreleased"))
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# --- this repository -------------------------------------------------------------------------------------------------
def test_this_repository_states_one_version() -> None:
    places = [place.partition(":")[0] for place, _ in stated_versions(ROOT)]
    assert version(ROOT) == newest_section(ROOT).version
    for path in (*ROOT.glob("charts/*/Chart.yaml"), *ROOT.glob("images/*/Dockerfile"), *ROOT.glob("*/pyproject.toml")):
        assert str(path.relative_to(ROOT)) in places
    for page in ("docs/how-to/install.md", "docs/how-to/gitops.md", "charts/README.md"):
        assert page in places


def test_every_distribution_is_built_by_make_dist() -> None:
    (folders,) = re.findall(r"^DISTRIBUTIONS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {str(each.folder.relative_to(ROOT)) for each in distributions(ROOT)} == set(folders.split())


def test_every_image_is_released() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text(encoding="utf-8"))
    folders = {each["folder"] for each in workflow["jobs"]["images"]["strategy"]["matrix"]["include"]}
    assert folders == {path.parent.name for path in ROOT.glob("images/*/Dockerfile")}


def test_every_distribution_is_kept_up_to_date() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    looked_at = {each["directory"] for each in updates if each["package-ecosystem"] == "pip"}
    assert looked_at == {"/", *(f"/{each.folder.relative_to(ROOT)}" for each in distributions(ROOT))}


# --- any repository --------------------------------------------------------------------------------------------------
def test_a_dry_run_of_an_unreleased_version_shows_its_section(repository: Path) -> None:
    assert check(repository, None, UNTAGGED.get).text == "* New.\n"


def test_a_tag_of_a_dated_version_is_released(repository: Path) -> None:
    write(repository, CHANGELOG, CHANGES.format("0.2.0", "2026-02-28"))
    assert check(repository, "v0.2.0", TAGGED.get).date == "2026-02-28"


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("alpha/src/alpha/__init__.py", '__version__ = "0.1.0"\n', "differ:\n  0.1.0: alpha/src/alpha/__init__.py:1\n"),
        ("charts/alpha/Chart.yaml", "version: 0.2.0\nappVersion: 0.1.0\n", "  0.1.0: charts/alpha/Chart.yaml:2\n"),
        ("images/alpha/Dockerfile", "ARG VERSION=0.3.0 X=\n", "  0.3.0: images/alpha/Dockerfile:1"),
        (CHANGELOG, CHANGES.format("0.3.0", "unreleased"), "starts with 0.3.0, and the version is 0.2.0"),
        (CHANGELOG, CHANGES.format("0.2.0", "soon"), "starts with 0.1.0"),
        (CHANGELOG, "# Changelog\n\n## 0.2.0 (unreleased)\n\n", "says nothing about 0.2.0"),
        (CHANGELOG, "# Changelog\n", "has no section like"),
    ],
)
def test_what_does_not_fit_is_named(repository: Path, path: str, text: str, message: str) -> None:
    write(repository, path, text)
    with pytest.raises(ReleaseError, match=re.escape(message)):
        check(repository, None, UNTAGGED.get)


@pytest.mark.parametrize(
    ("date", "tag", "commits", "message"),
    [
        ("unreleased", "v0.2.0", TAGGED, "write the date"),
        ("2026-02-28", "v0.3.0", TAGGED, "expected v0.2.0"),
        ("2026-02-28", "v0.2.0", UNTAGGED, "is not a tag"),
        ("2026-02-28", "v0.2.0", TAGGED_BEFORE, "is the tag of another commit (old): raise the version"),
        ("2026-02-28", None, TAGGED_BEFORE, "is the tag of another commit (old): raise the version"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(
    repository: Path, date: str, tag: str | None, commits: dict[str, str], message: str
) -> None:
    write(repository, CHANGELOG, CHANGES.format("0.2.0", date))
    with pytest.raises(ReleaseError, match=re.escape(message)):
        check(repository, tag, commits.get)


def test_what_is_collected_is_complete(repository: Path) -> None:
    section = newest_section(repository)
    write(repository, "dist/al_pha-0.2.0.tar.gz", "")
    with pytest.raises(ReleaseError, match="run 'make dist'"):
        collect(repository, section, None)
    write(repository, "dist/al_pha-0.2.0-py3-none-any.whl", "")
    collect(repository, section, None)
    assert (repository / "dist/notes.md").read_text(encoding="utf-8") == "* New.\n"
