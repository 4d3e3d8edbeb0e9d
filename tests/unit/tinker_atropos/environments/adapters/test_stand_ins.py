import importlib
import sys

import pytest

from tinker_atropos.environments.adapters.stand_ins import standing_in


def test_a_module_stands_in_for_another_while_the_block_lasts():
    sys.modules.pop("wave", None)
    with standing_in({"wave": {"Error": None}}):
        assert importlib.import_module("wave").Error is None
    assert issubclass(importlib.import_module("wave").Error, Exception)


def test_what_is_imported_stays():
    with standing_in({"sys": {"path": None}}):
        assert importlib.import_module("sys").path
    assert sys.modules["sys"] is sys


def test_nothing_is_left_of_a_block_that_fails():
    with pytest.raises(ImportError), standing_in({"rl_no_such_module": {}}):
        importlib.import_module("rl_no_such_module.part")
    assert "rl_no_such_module" not in sys.modules
