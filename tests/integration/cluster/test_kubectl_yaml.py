"""The same file means the same to kubectl and to local mode: random YAML through both.

Local mode may refuse more (what readers disagree on), never read something else. It reads some escapes of JSON that
kubectl's YAML refuses.
"""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.integration.cluster.kubectl import Kubectl
from tests.unit.rl_operator.strategies import draw

from rl_operator.documents.yaml_text import YamlError, read_yaml

HEAD = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLTrainingRun
metadata: {name: r%d}
spec:
  environment: x
  config:
"""
REFUSED = object()

NUMBERS = st.from_regex(r"\A[-+]?(0[bBoOxX])?[0-9_]{1,4}(\.[0-9_]{0,3})?([eE][-+]?[0-9_]{1,3})?\Z")
NUMBER_LIKE = st.text("0123456789+-._eExXoObBaAfFnNiI:", min_size=1, max_size=8)
WORDS = (
    st.sampled_from(
        ["yes", "No", "ON", "off", "y", "N", "true", "True", "~", "null", "Null", "nULL", "", "=", "<<", ".inf"]
    )
    | st.sampled_from(["-.INF", ".NaN", "2020-01-01", "2020-01-01 10:00:00", "12:30:45", "0777", "08", "0o17", "&a 3"])
    | st.sampled_from(["!!str 012", "!!int '3'", "!!float 3", "!!null ''", "a # no comment", "a#b", "a: b", "*x", "@a"])
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10)
QUOTED = (
    TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False))
    | TEXTS.map(lambda text: "'" + text.replace("'", "''") + "'")
    | st.sampled_from(
        [r'"\x41\u00e9\U0001F99C"', r'"\ud83e\udd9c"', r'"\ud83e"', r'"\t\0\e\N\_\L\P"', r'"a\/b"', '"a\\\n      b"']
    )
)
SCALARS = NUMBERS | NUMBER_LIKE | WORDS | QUOTED | TEXTS
KEYS = st.sampled_from(
    ["a", "b", "<<", "yes", "1", "1.0", "0x10", "1e3", "~", "🦜", "'a'", '"b"', "2020-01-01", "a b", ""]
)
FLOWS = st.lists(SCALARS, max_size=3).map(lambda items: "[" + ", ".join(items) + "]") | st.lists(
    st.tuples(KEYS, SCALARS), max_size=3
).map(lambda items: "{" + ", ".join(f"{k}: {v}" for k, v in items) + "}")
BLOCKS = st.tuples(
    st.sampled_from(["|", "|-", "|+", ">", ">-", ">+", "|2"]),
    st.lists(st.sampled_from(["a", "", "  b", "c: d", "# e"]), max_size=4),
).map(lambda block: block[0] + "".join(f"\n      {line}" for line in block[1]))
MERGES = st.sampled_from(
    [
        "{<<: {a: 1}, a: 2}",
        "{a: 2, <<: {a: 1}}",
        "{<<: [{a: 1}, {a: 2, b: 3}]}",
        "{<<: {<<: {a: 1}, a: 2}, b: 1}",
        "{<<: 3}",
        "{'<<': {a: 1}}",
        "&m {a: 1}\n    w: {<<: *m, b: 2}",
        "&m {a: 1}\n    w: {a: 0, <<: *m}",
        "&m {a: 1}\n    w: [*m, *m]",
        "&m [*m]",
    ]
)  # fmt: skip
VALUES = SCALARS | SCALARS | FLOWS | BLOCKS | MERGES
CONFIGS = st.lists(st.tuples(KEYS | st.just("v"), VALUES), min_size=1, max_size=2).map(
    lambda items: "".join(f"    {key}: {value}\n" for key, value in items)
)
FILES = CONFIGS | CONFIGS.map(lambda text: text.replace("\n", "\r\n")) | CONFIGS.map(lambda text: text + "---\n---\n")
COUNT = 400


def means(text: str) -> Any:
    """What local mode reads as the run's config."""
    try:
        return read_yaml(text)[0]["spec"]["config"]
    except YamlError:
        return REFUSED


def test_a_file_means_the_same_to_kubectl(kubectl: Kubectl, tmp_path: Path) -> None:
    files = [HEAD % number + text for number, text in enumerate(draw(FILES, COUNT))]
    for number, text in enumerate(files):
        (tmp_path / f"{number}.yaml").write_bytes(text.encode())
    answer = kubectl("create", "--dry-run=server", "-f", str(tmp_path))
    theirs = {run["metadata"]["name"]: run["spec"].get("config") for run in answer.objects}
    assert len(theirs) > COUNT / 4, answer.complaints[-3000:]

    both = 0
    for number, text in enumerate(files):
        ours, their = means(text), theirs.get(f"r{number}", REFUSED)
        if ours is not REFUSED and their is not REFUSED:
            assert json.dumps(ours, sort_keys=True) == json.dumps(their, sort_keys=True), text
            both += 1
    assert both > COUNT / 4


def test_a_byte_order_mark_changes_nothing(kubectl: Kubectl, tmp_path: Path) -> None:
    text = HEAD % 1 + "    v: 1\n"
    file = tmp_path / "run.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    [run] = kubectl("create", "--dry-run=server", "-f", str(file)).objects
    assert run["spec"]["config"] == means(file.read_text(encoding="utf-8")) == {"v": 1}
