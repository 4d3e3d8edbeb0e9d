"""The catalog of local mode: ours, and the libraries with an interpreter of their own."""

import json
import os
from pathlib import Path

import pytest

from rl_operator.api.catalog import Catalog, CatalogEnvironment, EnvironmentFamily
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.local.interpreters.installed_catalogs import local_catalog, read_catalog, with_library
from rl_operator.local.interpreters.interpreter import Interpreter, Marker
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.state.layout import Layout
from rl_operator.operator_errors import OperatorError


def listing(name: str) -> str:
    environments = [{"name": f"verifiers/{name}", "family": "verifiers"}, {"name": "sort_digits"}]
    return json.dumps({"families": [{"name": "verifiers"}], "environments": environments})


class Lister:
    """An interpreter whose program prints what a file holds, and counts its starts."""

    def __init__(self, root: Path) -> None:
        self.interpreter = Interpreter(root / "verifiers")
        self.sources = root / "mine"
        self.sources.mkdir()
        self.marker = Marker("build-1", "1", "", "", {str(root): ("--editable", str(self.sources))}, 1.0, 1)
        self.program = self.interpreter.program(self.marker)
        self.program.parent.mkdir(parents=True)
        self._listed, self._calls = root / "listed.json", root / "calls"

    def lists(self, text: str, code: int = 0) -> None:
        self._listed.write_text(text)
        script = f"#!/bin/sh\necho >> {self._calls}\ncat {self._listed}\necho out of order >&2\nexit {code}\n"
        self.program.write_text(script)
        self.program.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text().splitlines())

    def read(self) -> Catalog:
        return read_catalog(self.interpreter, self.marker, os.environ)


@pytest.fixture
def lister(process: None, tmp_path: Path) -> Lister:
    return Lister(tmp_path)


def test_it_is_read_once_and_again_when_a_source_changes(lister: Lister) -> None:
    lister.lists(listing("echo"))
    assert "verifiers/echo" in lister.read().names
    assert (lister.read().names, lister.calls) == (("sort_digits", "verifiers/echo"), 1)
    lister.lists(listing("shout"))
    assert lister.read().names == ("sort_digits", "verifiers/echo")
    (lister.sources / "shout.py").write_text("")
    assert (lister.read().names, lister.calls) == (("sort_digits", "verifiers/shout"), 2)


def test_a_listing_that_fails_is_an_error_with_its_last_line(lister: Lister) -> None:
    lister.lists("", code=3)
    with pytest.raises(OperatorError, match="cannot list its environments: out of order"):
        lister.read()
    lister.lists("[]")
    with pytest.raises(OperatorError, match="lists its environments in another way"):
        lister.read()


def test_without_its_interpreter_a_library_is_absent(tmp_path: Path) -> None:
    catalog = local_catalog(bundled_catalog(), Interpreters(Layout(tmp_path), {}))
    assert "rlctl environments install verifiers" in (catalog.absence_of("verifiers/echo") or "")
    assert catalog.absence_of("sort_digits") is None
    assert catalog.absence_of("reasoning-gym/chain_sum") is None
    assert "sort_digits" in catalog.names


def test_a_library_is_taken_as_its_interpreter_has_it() -> None:
    ours = Catalog(
        families=(EnvironmentFamily(name="verifiers", description="old"), EnvironmentFamily(name="reasoning-gym")),
        environments=(CatalogEnvironment(name="sort_digits"), CatalogEnvironment(name="verifiers/old")),
    )
    merged = with_library(ours, Catalog.model_validate_json(listing("echo")))
    assert [each.name for each in merged.families] == ["reasoning-gym", "verifiers"]
    assert merged.names == ("sort_digits", "verifiers/echo")
