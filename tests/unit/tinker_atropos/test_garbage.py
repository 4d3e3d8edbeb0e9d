import gc

import pytest

from tinker_atropos.garbage import uncollected


def test_garbage_is_collected_again_after_an_import_that_fails():
    def fail() -> None:
        assert not gc.isenabled()
        raise ImportError

    with pytest.raises(ImportError), uncollected():
        fail()
    assert gc.isenabled()
    gc.unfreeze()
