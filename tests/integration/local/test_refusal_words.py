"""Local mode refuses the same files in the same words as a cluster. Of sandbox pods it says nothing: it makes none."""

import json
from pathlib import Path

import pytest
import yaml
from tests.refusals import ROWS, Row, runtimes
from typer.testing import CliRunner, Result

from rl_operator.cli.app import app

OF_PODS = {title for title, row in ROWS.items() if "sandbox" in (row.spec or {}) and row.first != "schema"}


def validated(folder: Path, row: Row) -> Result:
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump_all([*runtimes(), row.run()]))
    arguments = ["validate", str(file), "--local", "--state-dir", str(folder / "state"), "-o", "json"]
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("title", [title for title in ROWS if title not in OF_PODS])
def test_the_sentence(tmp_path: Path, title: str) -> None:
    row, ended = ROWS[title], validated(tmp_path, ROWS[title])
    assert ended.exit_code == 2, ended.output
    first = json.loads(ended.stdout)["refusals"][0]
    assert first["code"] == row.code
    assert row.fits(first["sentence"], "default"), first["sentence"]


@pytest.mark.parametrize("title", sorted(OF_PODS))
def test_bounds_of_sandbox_pods_are_a_clusters(tmp_path: Path, title: str) -> None:
    ended = validated(tmp_path, ROWS[title])
    assert ended.exit_code == 0, ended.output
