from types import ModuleType

import pytest

from tinker_atropos.environments.adapters.verifiers.taskset_catalog import canonical_name
from tinker_atropos.environments.adapters.verifiers.taskset_sources import TasksetName, missing_data


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


@pytest.mark.parametrize(
    ("name", "module", "version"),
    [
        ("sort_digits", "sort_digits", None),
        ("sort-digits", "sort_digits", None),
        ("Sort-Digits@1.2.0", "sort_digits", "1.2.0"),
        ("owner/sort-digits@1.2.0", "sort_digits", "1.2.0"),
        ("sort-digits@", "sort_digits", None),
    ],
)
def test_all_forms_of_a_name(name, module, version):
    assert TasksetName.parse(name) == TasksetName(module, version)


def test_the_catalog_lists_one_of_them():
    assert canonical_name("verifiers/owner/sort-digits@1.0") == "verifiers/sort_digits"
