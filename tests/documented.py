"""What README, docs and examples show: their blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md", "CONTRIBUTING.md", "charts/README.md", "operator/README.md", "tinker-atropos/README.md",
    "tinker-atropos/tinker-service/README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
)  # fmt: skip
EXAMPLES = tuple(
    str(file.relative_to(ROOT)) for file in sorted((ROOT / "examples").rglob("*")) if file.suffix in (".yaml", ".py")
)

SHELLS = ("", "sh")
"""The languages of blocks that may hold commands."""

PROGRAMS = frozenset({
    "rlctl", "tinker-atropos", "tinker-service", "kubectl", "helm", "make", "pip", "python", "kind", "flux", "hermes",
    "curl", "cp", "mkdir", "export", "grep", "for", ".",
})  # fmt: skip
"""A line that begins with one of them is a command; the other lines of its block are what it prints."""

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
COMMENTED = re.compile(r"(?:^#? {4,}\S.*\n)+", re.MULTILINE)
CONTINUED = re.compile(r" *\\\n\s*")
REMARK = re.compile(r"\s{2,}(?! ).*$")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
SEPARATORS = frozenset(";&|()")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    @property
    def head(self) -> str:
        """By which tables name it."""
        return self.text.lstrip().partition("\n")[0].strip()

    @property
    def commands(self) -> "list[Command]":
        return list(_commands(self)) if self.language in SHELLS else []


@dataclass(frozen=True)
class Command:
    """One line for the shell, without remarks; a loop is one, too."""

    page: str
    line: int
    text: str

    @property
    def calls(self) -> Iterator[list[str]]:
        """The programs that it calls, each with its arguments; what is between `$(` and `)` is a call of its own."""
        words: list[str] = []
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        for word in (*lexer, ";"):
            if SEPARATORS.isdisjoint(word):
                words.append(word)
                continue
            if call := _bare(words):
                yield call
            words = []

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@cache
def blocks() -> tuple[Block, ...]:
    """Of all pages, and the commands in the comments at the top of examples."""
    found = [block for page in PAGES for block in _fenced(page)]
    return (*found, *(block for example in EXAMPLES for block in _commented(example)))


@cache
def commands() -> tuple[Command, ...]:
    return tuple(command for block in blocks() for command in block.commands)


def commands_of(page: str, after: str = "", before: str = "") -> list[Command]:
    """Those of a page, between two of its headings."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    first = lines.index(after) if after else 0
    last = lines.index(before) if before else len(lines)
    return [command for command in commands() if command.page == page and first < command.line <= last]


def _fenced(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        indent = match[1]
        inside = "\n".join(line.removeprefix(indent) for line in match[3].splitlines())
        yield Block(page, text.count("\n", 0, match.start()) + 2, match[2], inside)


def _commented(example: str) -> Iterator[Block]:
    """Indented lines of the comment or docstring that a file begins with."""
    text = (ROOT / example).read_text(encoding="utf-8")
    head = re.match(r'"""(.*?)"""', text, re.DOTALL) or re.match(r"(?:#.*\n)*", text)
    assert head
    for match in COMMENTED.finditer(head[0]):
        inside = re.sub(r"^#? {4,}", "", match[0], flags=re.MULTILINE)
        yield Block(example, text.count("\n", 0, match.start()) + 1, "", inside)


def _commands(block: Block) -> Iterator[Command]:
    text = CONTINUED.sub(lambda match: " " + "\0" * match[0].count("\n"), block.text)
    prompted = any(line.startswith("$ ") for line in text.splitlines())
    number, loop = block.line, list[str]()
    for line in text.splitlines():
        start, number = number, number + 1 + line.count("\0")
        if prompted and not line.startswith("$ "):
            continue
        words = REMARK.sub("", line.removeprefix("$ ").replace("\0", "")) if not loop else line.strip()
        if loop or words.startswith("for "):
            loop.append(words)
            if words != "done":
                continue
            words, loop = " ".join(loop).replace(" done", "; done"), []
        if prompted or _program(words) in PROGRAMS:
            yield Command(block.page, start, words)


def _program(line: str) -> str:
    """The first word that is no assignment."""
    return next((word for word in line.split() if not ASSIGNMENT.match(word)), "")


def _bare(words: Sequence[str]) -> list[str]:
    """A call without assignments, redirections and words of the shell."""
    kept: list[str] = []
    skip = False
    for word in words:
        if word in ("<", ">", ">>"):
            skip = True
        elif skip:
            skip = False
        elif kept or not (ASSIGNMENT.match(word) or word in ("do", "done")):
            kept.append(word)
    return kept
