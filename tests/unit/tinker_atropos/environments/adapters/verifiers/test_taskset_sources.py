import pytest

from tinker_atropos.environments.adapters.verifiers.taskset_catalog import canonical_name
from tinker_atropos.environments.adapters.verifiers.taskset_sources import TasksetName


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
