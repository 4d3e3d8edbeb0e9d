import gc
import sys

import pytest

from tinker_atropos.library_imports import torch_hidden, uncollected


def test_garbage_is_collected_again_after_an_import_that_fails():
    def fail() -> None:
        assert not gc.isenabled()
        raise ImportError

    with pytest.raises(ImportError), uncollected():
        fail()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("source", "hidden"), [("x = 1", True), ("import torch", False), ("import transformers", False)]
)
def test_torch_is_hidden_from_files_that_do_not_mention_it(tmp_path, source, hidden):
    file = tmp_path / "mine.py"
    file.write_text(source)
    loaded = sys.modules.pop("torch", None)
    try:
        with torch_hidden(unless_mentioned_in=file):
            assert ("torch" in sys.modules) is hidden
        assert "torch" not in sys.modules
    finally:
        if loaded is not None:
            sys.modules["torch"] = loaded
