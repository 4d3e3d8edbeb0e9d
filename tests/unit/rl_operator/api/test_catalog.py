import pytest

from rl_operator.api.catalog import Catalog, CatalogProblem, EnvironmentField

SNAKE = {
    "name": "x",
    "type": "int",
    "default": 1,
    "description": "",
    "exclusive_minimum": 0,
    "max_length": 3,
    "choices": [1],
}


def test_output_of_tinker_atropos_is_read_and_camel_case_is_written() -> None:
    field = EnvironmentField.model_validate(SNAKE)
    assert (field.exclusive_minimum, field.minimum, field.choices) == (0, None, (1,))
    wire = field.to_wire()
    assert (wire["exclusiveMinimum"], wire["maxLength"], wire["choices"]) == (0, 3, [1])
    assert EnvironmentField.model_validate(wire) == field


def test_a_catalog_without_the_newer_keys_is_read() -> None:
    catalog = Catalog.model_validate({"environments": [{"name": "e", "fields": [{"name": "x", "type": "int"}]}]})
    assert (catalog.problem, catalog.modules) == (None, ())


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (CatalogProblem(reason="SyntaxError", file="a.py", line=3, message="no."), "a.py, line 3: no."),
        (CatalogProblem(reason="Unreadable", file="a.py", message="no."), "a.py: no."),
        (CatalogProblem(reason="NoEnvironment", file="", message="no."), "no."),
    ],
)
def test_the_sentence_of_a_problem(problem: CatalogProblem, sentence: str) -> None:
    assert problem.sentence == sentence
