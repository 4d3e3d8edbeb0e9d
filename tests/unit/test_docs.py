"""Links lead to files and headings that exist, files that pages name exist, and the index leads to every page."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

INDEX = Path("docs/README.md")
PAGES = [
    *map(Path, ("README.md", "CONTRIBUTING.md", "SECURITY.md", "charts/README.md")),
    *sorted(Path("docs").rglob("*.md")),
]

FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+?)$", re.MULTILINE)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The file and the anchor, if any, of each link inside the repository."""
    for link in LINK.findall(prose(page)):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            yield (Path(os.path.normpath(page.parent / path)) if path else page), anchor


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of the headings; a repeated title gets a number."""
    found: set[str] = set()
    for title in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = sum(each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None for each in found)
        found.add(f"{slug}-{count}" if count else slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_resolves(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{page}: {target} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{page}: {target} has no heading #{anchor}"


@pytest.mark.parametrize(
    ("page", "folder", "at_least"),
    [
        ("docs/reference/guarantees.md", "tests/", 10),
        ("docs/decisions/kopf.md", "operator/src/rl_operator/", 1),
        ("docs/decisions/ours.md", "operator/src/rl_operator/", 3),
    ],
)
def test_every_file_named_by_a_page_exists(page: str, folder: str, at_least: int) -> None:
    named = re.findall(r"`([\w/]+/[\w.]+\.py|operator_settings\.py)`", Path(page).read_text(encoding="utf-8"))
    assert len(named) >= at_least
    assert [name for name in named if not Path(folder, name).exists()] == []


def test_every_key_is_shown_by_tests_that_exist() -> None:
    page = Path("docs/reference/guarantees.md").read_text(encoding="utf-8")
    table = re.findall(r"(?m)^\| .*\|$", page.partition("## Keys and addresses")[2].partition("\n## ")[0])[1:]
    assert len(table) >= 10
    for row in table:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row.rpartition(" | ")[2])
        assert named, f"no test tries {row}"
        for file, test in named:
            assert re.search(rf"(?m)^(async )?def {test}\(", Path("tests", file).read_text(encoding="utf-8")), test


def test_the_index_links_every_page() -> None:
    listed = {target for target, _ in links(INDEX)}
    pages = {page for page in PAGES if page.parts[0] == "docs"} - {INDEX}
    assert len(pages) >= 15
    assert pages - listed == set()


def test_the_pages_are_full_of_links() -> None:
    """The expressions above find what they look for."""
    assert sum(1 for page in PAGES for _ in links(page)) >= 80
    assert sum(1 for page in PAGES for _, anchor in links(page) if anchor) >= 25
    assert {"transitions", "reasons"} <= anchors(Path("docs/reference/status.md"))
