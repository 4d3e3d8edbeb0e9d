"""Errors as the libraries raise them: what is raised in their modules decides."""

from types import ModuleType

import pytest

from tinker_atropos.environments.adapters.verifiers.hub_data import missing_data


def raised_in(module: str, error: str) -> BaseException:
    made = ModuleType(module)
    exec(f"def load():\n    raise {error}", made.__dict__)
    try:
        made.load()
    except (OSError, LookupError, ValueError) as caught:
        return caught
    raise AssertionError("it raises")


def test_a_dataset_of_a_hub():
    sentence = missing_data("verifiers/rows", raised_in("datasets.load", "ConnectionError('no route to the hub')"))
    assert sentence is not None
    assert sentence.startswith("verifiers/rows loads data from a hub, which is not here (ConnectionError: no route to")
    assert "HF_HOME" in sentence
    assert "HF_DATASETS_OFFLINE=1" in sentence


def test_word_lists():
    sentence = missing_data(
        "verifiers/game", raised_in("nltk.data", "LookupError('\\n***\\n  Resource words not found.')")
    )
    assert sentence is not None
    assert "(LookupError: Resource words not found.)" in sentence
    assert "NLTK_DATA" in sentence


def test_what_it_was_raised_from_counts():
    outer = ValueError("the rows cannot be made")
    outer.__cause__ = raised_in("huggingface_hub.file_download", "OSError('offline')")
    assert "(OSError: offline)" in (missing_data("verifiers/rows", outer) or "")


@pytest.mark.parametrize("module", ["datasets.load", "my_taskset"])
def test_another_error_is_not_about_data(module):
    error = raised_in(module, "ValueError('no')") if module == "datasets.load" else raised_in(module, "OSError('no')")
    assert missing_data("verifiers/rows", error) is None
