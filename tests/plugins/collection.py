"""Collecting costs each worker many seconds of CPU, and a quarter of them went into looking for garbage in what stays.

So none is looked for until the first test, and no later collection looks at tests, their modules and the libraries.
"""

import gc

import pytest


def pytest_configure() -> None:
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.collect()  # the tests that were not selected
    gc.freeze()
    gc.enable()
