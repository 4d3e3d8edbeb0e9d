import os
from pathlib import Path

import pytest

from rl_operator.operator_errors import GoneError, TargetUnreachableError
from rl_operator.targets.local_needs import RolloutFolder


def test_files_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "000001-1.jsonl.zst").write_bytes(b"12345")
    (tmp_path / "notes.txt").write_bytes(b"1")
    folder = RolloutFolder(tmp_path)
    assert [(file.name, file.bytes) for file in folder.listing().files] == [("000001-1.jsonl.zst", 5)]
    assert folder.content("000001-1.jsonl.zst") == b"12345"
    assert folder.content("000001-1.jsonl.zst", 3) == b"45"


def test_what_no_trainer_writes_is_none_of_its_files(tmp_path: Path) -> None:
    """A link may lead nowhere, and who reads a pipe waits."""
    (tmp_path / "000001-1.jsonl.zst").mkdir()
    (tmp_path / "000002-1.jsonl.zst").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "000003-1.jsonl.zst")
    (tmp_path / "000004-1.jsonl.zst").write_bytes(b"1")
    assert [file.name for file in RolloutFolder(tmp_path).listing().files] == ["000004-1.jsonl.zst"]


def test_a_folder_that_is_not_there_yet_has_none(tmp_path: Path) -> None:
    assert RolloutFolder(tmp_path / "later").listing().files == ()


@pytest.mark.parametrize("name", ["000009-1.jsonl.zst", "../secret", "/etc/passwd", "", ".hidden", "a/b"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path.parent / "secret").write_text("s")
    with pytest.raises(GoneError, match="there is no rollout file"):
        RolloutFolder(tmp_path).content(name)


def test_one_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "000001-1.jsonl.zst").mkdir()
    with pytest.raises(TargetUnreachableError, match="cannot be read"):
        RolloutFolder(tmp_path).content("000001-1.jsonl.zst")
