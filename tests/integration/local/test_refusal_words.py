"""Local mode refuses the same files in the same words as a cluster."""

import json
from pathlib import Path

import pytest
import yaml
from tests.refusals import ROWS, Row, runtimes
from typer.testing import CliRunner

from rl_operator.cli.app import app


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_sentence(tmp_path: Path, row: Row) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump_all([*runtimes(), row.run()]))
    arguments = ["validate", str(file), "--local", "--state-dir", str(tmp_path / "state"), "-o", "json"]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 2, ended.output
    first = json.loads(ended.stdout)["refusals"][0]
    assert first["code"] == row.code
    assert row.fits(first["sentence"], "default"), first["sentence"]
