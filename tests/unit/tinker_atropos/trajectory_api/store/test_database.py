"""The file: what does not open, and its error messages."""

import sqlite3

import pytest

from rl_contract.processes import ExitCode
from tinker_atropos.errors import InternalError
from tinker_atropos.trajectory_api.store.database import FILE_NAME, Database, JournalError


def test_a_file_that_is_not_a_journal(tmp_path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and long enough to be read as a header of one....." * 20)
    with pytest.raises(InternalError, match=r"journal\.sqlite does not work: file is not a database") as caught:
        Database(tmp_path)
    assert caught.value.exit_code == ExitCode.FAILURE


def test_a_journal_of_another_version(tmp_path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as sql:
        sql.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="has schema 99, this version reads 3: use another folder"):
        Database(tmp_path)


def test_a_folder_that_cannot_be_created(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot make the journal's folder"):
        Database(tmp_path / "file" / "folder")


def test_a_failed_transaction_leaves_nothing(tmp_path) -> None:
    database = Database(tmp_path)
    rows = [("a", "1"), ("a", "2")]
    with pytest.raises(JournalError, match="UNIQUE constraint failed"), database.transaction() as sql:
        sql.executemany("INSERT INTO run VALUES (?, ?)", rows)
    with database.reading() as sql:
        assert sql.execute("SELECT count(*) FROM run").fetchone() == (0,)
    database.close()
