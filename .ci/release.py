"""A release, as far as it needs no credentials: `make release-dry-run`, and .github/workflows/release.yaml by a tag.

usage: release.py check [TAG]      one version everywhere, its section in CHANGELOG.md, the tag that it has or will get
       release.py collect [TAG]    after `make dist`: its files are complete; adds dist/charts/ and dist/notes.md

With TAG it is a real release: the section has a date, the tag is HEAD's, and what packages the charts must be there.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHANGELOG = "CHANGELOG.md"
VERSION = r"\d+\.\d+\.\d+"
SECTION = re.compile(rf"^## ({VERSION}) \((unreleased|\d{{4}}-\d\d-\d\d)\)\n", re.MULTILINE)
UNRELEASED = "unreleased"
Commits = Callable[[str], str | None]
"""A commit's hash by the name of a tag or branch."""
NOT_OURS = ("examples", "tests")
"""Top folders whose distributions are not released."""

STATED = {
    "charts/*/Chart.yaml": rf"^(?:version|appVersion): ({VERSION})$",
    "images/*/Dockerfile": rf"^ARG VERSION=({VERSION})\b",
    "examples/gitops/**/*.yaml": rf"\b(?:tag|targetRevision): ({VERSION})\b",
    "docs/how-to/install.md": rf"\.tag=({VERSION})\b",
    "docs/how-to/gitops.md": rf"(?:[}}]:|-)({VERSION})(?:`|\.tgz)",
    "charts/README.md": rf"-({VERSION})\.tgz",
}
"""Where else the version stands, by file."""


class ReleaseError(Exception):
    """Why this is not ready to be released."""


@dataclass(frozen=True)
class Distribution:
    folder: Path
    name: str
    version: str

    def files(self) -> set[str]:
        """What `make dist` builds of it."""
        stem = f"{re.sub(r'[-_.]+', '_', self.name)}-{self.version}"
        return {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"}


@dataclass(frozen=True)
class Section:
    """Of the changelog, without its heading."""

    version: str
    date: str
    text: str


def distributions(root: Path) -> list[Distribution]:
    """Those with a build system; the root's pyproject.toml has none."""
    found = []
    for path in sorted([*root.glob("[!.]*/pyproject.toml"), *root.glob("[!.]*/*/pyproject.toml")]):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        if "build-system" in content and path.relative_to(root).parts[0] not in NOT_OURS:
            found.append(Distribution(path.parent, content["project"]["name"], content["project"]["version"]))
    return found


def stated_versions(root: Path) -> Iterator[tuple[str, str]]:
    """Every place that states the version, and what it states."""
    packages = {}
    for each in distributions(root):
        yield str((each.folder / "pyproject.toml").relative_to(root)), each.version
        packages[f"{each.folder.relative_to(root)}/src/*/__init__.py"] = rf'^__version__ = "({VERSION})"$'
    for pattern, stated in (STATED | packages).items():
        for path in sorted(root.glob(pattern)):
            for match in re.finditer(stated, path.read_text(encoding="utf-8"), re.MULTILINE):
                line = match.string.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(root)}:{line}", match[1]


def version(root: Path) -> str:
    """The one that all places state. Raises ReleaseError if they differ."""
    places: dict[str, list[str]] = {}
    for place, stated in stated_versions(root):
        places.setdefault(stated, []).append(place)
    if len(places) != 1:
        lines = "".join(f"\n  {stated}: {', '.join(found)}" for stated, found in sorted(places.items()))
        raise ReleaseError(f"the places that state the version differ:{lines}")
    return next(iter(places))


def newest_section(root: Path) -> Section:
    changelog = (root / CHANGELOG).read_text(encoding="utf-8")
    found = list(SECTION.finditer(changelog))
    if not found:
        raise ReleaseError(f"{CHANGELOG} has no section like '## 1.2.3 ({UNRELEASED})' or '## 1.2.3 (2026-01-31)'")
    end = found[1].start() if len(found) > 1 else len(changelog)
    return Section(found[0][1], found[0][2], changelog[found[0].end() : end].strip() + "\n")


def commit(name: str) -> str | None:
    """Of this checkout, by a tag's or a branch's name."""
    command = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def check(root: Path, tag: str | None, commit: Commits = commit) -> Section:
    """The section that becomes the release's text. Raises ReleaseError."""
    released = version(root)
    section = newest_section(root)
    if section.version != released:
        raise ReleaseError(f"{CHANGELOG} starts with {section.version}, and the version is {released}")
    if not section.text.strip():
        raise ReleaseError(f"{CHANGELOG} says nothing about {released}")
    expected = f"v{released}"
    if tag not in (None, expected):
        raise ReleaseError(f"the tag is {tag}, and the version is {released}: expected {expected}")
    if tag and section.date == UNRELEASED:
        raise ReleaseError(f"{CHANGELOG} calls {released} {UNRELEASED}: write the date, commit, and tag that commit")
    tagged = commit(f"refs/tags/{expected}")
    if tag and not tagged:
        raise ReleaseError(f"{tag} is not a tag of this repository")
    if tagged and tagged != commit("HEAD"):
        raise ReleaseError(f"{expected} is the tag of another commit ({tagged[:8]}): raise the version")
    return section


def collect(root: Path, section: Section, helm: str | None) -> None:
    """What a release uploads, in dist/; without helm, no charts. Raises ReleaseError."""
    folder = root / "dist"
    expected = {name for each in distributions(root) for name in each.files()}
    built = {path.name for path in folder.glob("*.*") if path.suffix in (".whl", ".gz")}
    if built != expected:
        raise ReleaseError(f"dist/ has {sorted(built)}, expected {sorted(expected)}: run 'make dist'")
    (folder / "notes.md").write_text(section.text, encoding="utf-8")
    if helm:
        for chart in sorted(root.glob("charts/*/Chart.yaml")):
            package(helm, chart.parent, folder / "charts", section.version)


def package(helm: str, chart: Path, folder: Path, stated: str) -> None:
    """Raises ReleaseError with what helm said."""
    for command in (["lint", "--strict", chart], ["package", chart, "--destination", folder]):
        done = subprocess.run([helm, *map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReleaseError(f"helm {command[0]} {chart.name}: {done.stderr}{done.stdout}")
    if not (folder / f"{chart.name}-{stated}.tgz").exists():
        raise ReleaseError(f"helm wrote no {chart.name}-{stated}.tgz: does its Chart.yaml have another name?")


def main(step: str, tag: str | None = None) -> None:
    section = check(Path(), tag)
    print(f"Version {section.version} ({section.date}): one everywhere, in {CHANGELOG}, and its tag is free or HEAD's")
    if step == "collect":
        helm = shutil.which("helm", path=os.environ.get("KUBEBUILDER_ASSETS")) or shutil.which("helm")
        if tag and not helm:
            raise ReleaseError("helm is not there, so the charts cannot be packaged: install it (https://helm.sh)")
        collect(Path(), section, helm)
        print("\n".join(sorted(str(path) for path in Path("dist").rglob("*") if path.is_file())))
        print("" if helm else "The charts were not packaged: helm is not there")


if __name__ == "__main__":
    if sys.argv[1:2] not in (["check"], ["collect"]):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:3])
    except ReleaseError as error:
        sys.exit(f"Not ready for a release: {error}")
