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


LIBRARY = {
    "families": [
        {
            "name": "gym",
            "description": "Two games.",
            "fields": [{"name": "size", "type": "int", "default": 5}, {"name": "seed", "type": "int", "default": 0}],
        }
    ],
    "environments": [
        {"name": "gym/chess", "family": "gym", "fields": [{"name": "size", "type": "int", "default": 8}]},
        {"name": "gym/go", "family": "gym", "fields": []},
        {"name": "maze", "fields": [{"name": "walls", "type": "int"}]},
    ],
}


def test_an_environment_of_a_library_has_the_librarys_fields_after_its_own() -> None:
    catalog = Catalog.model_validate(LIBRARY)
    chess = catalog.named("gym/chess")
    assert chess is not None
    assert [(field.name, field.default) for field in chess.fields] == [("size", 8), ("seed", 0)]
    assert catalog.named("gym") is None
    assert catalog.names == ("maze", "gym/chess", "gym/go")
    assert [(each.name, each.description) for each in catalog.outline] == [("maze", ""), ("gym/NAME", "Two games.")]
