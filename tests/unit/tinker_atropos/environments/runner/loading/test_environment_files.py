import contextlib

import pytest

from rl_contract.content_hash import sha256_of_texts
from tinker_atropos.environments.runner.loading.environment_files import locate_environment, sha256_of_files
from tinker_atropos.errors import ConfigError


def test_bundled_environment_is_identified_by_module_and_class():
    located = locate_environment("sort_digits")
    assert located.file.name == "sort_digits.py"
    assert located.file.is_file()
    assert (located.module, located.class_name) == ("tinker_atropos.environments.bundled.sort_digits", "SortDigits")


def test_file_is_identified_by_its_absolute_path(tmp_path):
    (tmp_path / "mine.py").touch()
    with contextlib.chdir(tmp_path):
        assert locate_environment("mine.py").file == tmp_path / "mine.py"
        assert locate_environment("./mine.py").module is None


WRONG = {
    "sort_digit": r"there is no environment 'sort_digit'; did you mean 'sort_digits'\? \(available: .*sort_digits",
    "": r"there is no environment '' \(available: .*sort_digits",
    "./nowhere.py": r"there is no environment file /.*/nowhere\.py",
    "nowhere.py": r"there is no environment file /.*/nowhere\.py",
    "folder/": r"there is no environment file /.*/folder",
}


@pytest.mark.parametrize(("name", "message"), WRONG.items(), ids=list(WRONG))
def test_a_missing_environment(name, message):
    with pytest.raises(ConfigError, match=message):
        locate_environment(name)


def test_files_are_known_by_their_hash_as_the_kubelet_mounts_them(tmp_path):
    """Links into a folder that is exchanged as a whole; Python's own cache does not count, a file more does."""
    mounted = tmp_path / "..2026"
    mounted.mkdir()
    (mounted / "mine.py").write_bytes("x = 'ä'\r\n".encode())
    (tmp_path / "..data").symlink_to(mounted)
    (tmp_path / "mine.py").symlink_to(mounted / "mine.py")
    (tmp_path / "__pycache__").mkdir()
    frozen = sha256_of_texts({"mine.py": "x = 'ä'\r\n"})
    assert sha256_of_files(tmp_path) == frozen
    (tmp_path / "more.py").write_bytes(b"\xff")
    assert sha256_of_files(tmp_path) != frozen
