import pytest

from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.trainer_process import data_folder


def test_without_a_data_folder_a_temporary_one_is_used() -> None:
    with data_folder(None) as folder:
        (folder / "ledger").write_text("x")
    assert not folder.exists()


def test_a_data_folder_is_created_and_kept(tmp_path) -> None:
    with data_folder(tmp_path / "new" / "data") as folder:
        (folder / "ledger").write_text("x")
    assert (tmp_path / "new" / "data" / "ledger").read_text() == "x"


def test_a_data_folder_that_cannot_be_created_is_named_with_its_option(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=r"trainer's folder .*file/data \(--data, RL_DATA_DIR\)"),
        data_folder(tmp_path / "file" / "data"),
    ):
        pass
