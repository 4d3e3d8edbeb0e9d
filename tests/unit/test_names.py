"""One name, one thing: in the whole product no two files and no two classes share a name. And imports have one way."""

import pytest
from tests.stats import circle, places, product, repeated

SAME_THING = {
    "Environment",  # of the run, whose spec names it, and what an author derives it from
}


@pytest.mark.parametrize("of_classes", [False, True], ids=["files", "classes"])
def test_a_name_is_used_once(of_classes):
    found = places(of_classes=of_classes)
    assert {name: where for name, where in repeated(found).items() if name not in SAME_THING} == {}
    assert found


def test_no_module_imports_itself_through_others():
    assert len(product()) > 100
    assert circle() == ()
