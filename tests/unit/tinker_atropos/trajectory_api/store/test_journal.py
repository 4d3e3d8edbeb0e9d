"""The file: what does not open, and its error messages."""

import sqlite3

import pytest

from rl_contract.processes import ExitCode
from tinker_atropos.errors import InternalError
from tinker_atropos.trajectory_api.store.journal import FILE_NAME, Journal, JournalError


def test_a_file_that_is_not_a_journal(tmp_path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, and long enough to be read as a header of one....." * 20)
    with pytest.raises(InternalError, match=r"journal\.sqlite does not work: file is not a database") as caught:
        Journal(tmp_path, 0)
    assert caught.value.exit_code == ExitCode.FAILURE


def test_a_journal_of_another_version(tmp_path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as sql:
        sql.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="has schema 99, this version reads 5: use another folder"):
        Journal(tmp_path, 0)


def test_a_folder_that_cannot_be_created(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot make the journal's folder"):
        Journal(tmp_path / "file" / "folder", 0)


def test_a_failed_transaction_leaves_nothing(journal) -> None:
    rows = [("a", "1"), ("a", "2")]
    with pytest.raises(JournalError, match="UNIQUE constraint failed"):
        journal.write(lambda sql: sql.executemany("INSERT INTO run VALUES (?, ?)", rows))
    assert journal.read(lambda sql: sql.execute("SELECT count(*) FROM run").fetchone()) == (0,)
