import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.documents.yaml_text import (
    MAX_CHARACTERS,
    MAX_NODES,
    YamlError,
    block,
    flow,
    json_value,
    read_yaml,
    write_yaml,
)

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("bundled", "bundled"),
        ("yes", '"yes"'),
        ("1", '"1"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        (0.001, "0.001"),
        (None, "null"),
        ([1, "a"], '[1, "a"]'),
    ],
)
def test_plain_where_it_can_be(value: Any, written: str) -> None:
    assert flow(value) == written


@given(VALUES)
def test_a_value_in_a_line_reads_back(value: Any) -> None:
    written = f"key: {flow(value)}"
    assert "\n" not in written
    assert read_yaml(written) == [{"key": json_value(value)}]


@given(st.text())
def test_a_text_in_a_block_reads_back(text: str) -> None:
    assert read_yaml(f"data:\n{block('a.py', text, indent=2)}more: 1\n") == [{"data": {"a.py": text}, "more": 1}]


def test_code_stays_readable() -> None:
    assert block("a.py", "def f():\n\n    return 1\n", indent=2) == "  a.py: |\n    def f():\n\n        return 1\n"


KUBECTL_SCALARS = json.loads(Path("tests/data/kubectl_scalars.json").read_text())

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
    | st.sampled_from([text.strip("\"'") for text, _ in KUBECTL_SCALARS]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text("abyn01-", max_size=4), children),
    max_leaves=10,
)


@pytest.mark.parametrize(("text", "value"), KUBECTL_SCALARS)
def test_scalars_mean_what_kubectl_says(text: str, value: Any) -> None:
    """The file holds what `kubectl annotate --local -o json` 1.36 made of each text."""
    [document] = read_yaml(f"a: {text}")
    assert document["a"] == value
    assert type(document["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 017", "017 is octal to some readers"),
        ("a: -08", "-08 is octal to some readers"),
        ("a: .inf", "not a number that JSON can hold"),
        ("a: -.INF", "not a number that JSON can hold"),
        ("a: .nan", "not a number that JSON can hold"),
        ("a: 1e400", "not a number that JSON can hold"),
        ("a: 9223372036854775808", "does not fit into 64 bits"),
        ("a: !!int x", "'x' is not an integer"),
        ("a: !!float x", "'x' is not a number"),
        ("{a: 1, a: 2}", "the key 'a' appears twice"),
        ("{1: a, '1': b}", "the key '1' appears twice"),
        ("{[a]: b}", "cannot be the name of a field"),
        ("a: [1", "line 1"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("&a [*a]", "nested more than 64 deep"),
        ("[" * 600 + "]" * 600, "nested more than 64 deep"),
        ("{null: 1}", "None cannot be the name of a field"),
        ("a: !!binary aGk=", "which JSON does not know"),
        ("a: 1\n<<: {a: 2}", "readers disagree on 'a'"),
        ("b: &b {x: 1}\nc: {x: 2, <<: [{y: 1}, *b]}", "readers disagree on 'x'"),
        (r'a: "\ud83e"', "half of a surrogate pair"),
        (r'{"\udd9c\ud83e": 1}', "half of a surrogate pair"),
        (r'a: "\U00110000"', "line 1, column 7: an escape stands for no character"),
        (r'{"\UFFFFFFFF": 1}', "line 1, column 5: an escape stands for no character"),
    ],
)
def test_what_readers_disagree_on_is_an_error(text: str, complaint: str) -> None:
    with pytest.raises(YamlError, match=complaint):
        read_yaml(text)


def test_aliases_cannot_multiply_endlessly() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10))
    with pytest.raises(YamlError, match="more than 30000 values"):
        read_yaml(f"l0: &l0 [x, x]\n{levels}")


def test_merges_cannot_multiply_endlessly() -> None:
    levels = "\n".join(f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 10)}]}}" for n in range(1, 12))
    with pytest.raises(YamlError, match="more than 30000 values"):
        read_yaml(f"l0: &l0 {{x: 1, y: 2}}\n{levels}")


def test_a_text_is_read_no_further_than_its_limits() -> None:
    """What comes after them would be another error."""
    with pytest.raises(YamlError, match="it holds more than 30000 values"):
        read_yaml("[" + "1, " * MAX_NODES + "]]]]")
    with pytest.raises(YamlError, match="it is nested more than 64 deep"):
        read_yaml("[" * 70 + "}")
    with pytest.raises(YamlError, match="it has 4000002 characters, and at most 4000000 are read"):
        read_yaml("[[" + " " * MAX_CHARACTERS)


def test_merge_keys_and_many_documents() -> None:
    assert read_yaml("b: &b {x: 1, z: 2}\nm: {<<: *b, z: 3}\n---\n---\n[1.0]\n") == [
        {"b": {"x": 1, "z": 2}, "m": {"x": 1, "z": 3}},
        [1],
    ]


def test_a_mapping_that_merges_can_be_merged() -> None:
    text = "a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3}\nd: {<<: *b}"
    assert read_yaml(text) == [{"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}, "d": {"x": 2}}]


def test_of_several_merged_mappings_the_first_one_wins() -> None:
    text = "a: &a {name: 1, size: 1}\nb: &b {name: 2, kind: 2}\nc: {<<: [*a, *b], kind: 3}\nd: {<<: [*b, *a]}"
    assert read_yaml(text)[0]["c"] == {"name": 1, "size": 1, "kind": 3}
    assert read_yaml(text)[0]["d"] == {"name": 2, "size": 1, "kind": 2}


@pytest.mark.parametrize("merged", ["3", "[3]", "[[]]", "[{a: 1}, x]"])
def test_only_mappings_are_merged(merged: str) -> None:
    with pytest.raises(YamlError, match=r"line 1, column .*: `<<` takes a mapping, or a list of mappings"):
        read_yaml(f"{{<<: {merged}}}")


def test_a_surrogate_pair_is_one_character_as_in_json() -> None:
    assert read_yaml(r'{"\ud83e\udd9c": "\ud83e\udd9c"}') == [{"🦜": "🦜"}]


def test_large_floats_are_the_integers_that_the_api_server_writes() -> None:
    """It writes the shortest digits of a float, and reads them back as an integer."""
    assert read_yaml("[1234567890123456768.0, 12345678901234567890.5]") == [[1234567890123456800, 12345678901234567000]]


def test_keys_become_text() -> None:
    assert read_yaml("{1: a, 1.5: b, true: c}") == [{"1": "a", "1.5": "b", "true": "c"}]


@given(JSON_VALUES)
def test_written_values_are_read_back(value: Any) -> None:
    assert read_yaml(write_yaml([value])) == [[value]]


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
    | st.sampled_from(["4e-5", "yes", "y", "2020-01-01"])
)
def test_texts_stay_texts_for_yaml_1_1_readers(text: str) -> None:
    """The config file is read by another package's loader."""
    assert yaml.safe_load(write_yaml({"a": text})) == {"a": text}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlError):
        json.dumps(read_yaml(text), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [1", "line 1, column 6: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)"),
        ("a:\n  b: c: d", "line 2, column 7: mapping values are not allowed here"),
        ("a: *b", "line 1, column 4: found undefined alias 'b'"),
        ("a: x\x00", "character 5 is U+0000, which YAML does not allow: write it as an escape"),
        (
            "key: 'tml-0123456789\n  more",
            "line 2, column 7: found unexpected end of stream (while scanning a quoted scalar)",
        ),
    ],
)
def test_an_error_is_one_line_and_does_not_repeat_the_file(text: str, complaint: str) -> None:
    with pytest.raises(YamlError) as raised:
        read_yaml(text)
    assert str(raised.value) == complaint
