"""YAML as kubectl reads it, so that a file means the same to kubectl, GitOps and local mode.

The scalar rules were measured with `kubectl --local` 1.36 (tests/data/kubectl_scalars.json): numbers as in YAML 1.2, so
`4e-5` is one; `yes`, `on` and `y` are true; a date is a string. `1.0` becomes `1`, as the API server stores it. What
readers disagree on (`017`, a key above the `<<` that holds it) or JSON cannot hold (`.nan`, a repeated key) is an
error. The result is the same as kubectl's; tests/integration/cluster/test_kubectl_yaml.py compares the two.

Values are written as single lines, and texts as blocks, that parse back to the same.
"""

import json
import math
import re
from collections.abc import Hashable, Iterator
from decimal import Decimal
from typing import Any, ClassVar, Final, cast

import yaml

from rl_operator.api.settings.size_limits import MAX_DEPTH

_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON keeps as they are, and that YAML needs to escape or reads as a line end."""


def flow(value: object) -> str:
    """A value in one line, plain where that parses back to the same: `null`, `0.001`, `bundled`, `[1, 2]`."""
    if isinstance(value, str) and _reads_back(f"key: {value}", {"key": value}):
        return value
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def block(name: str, text: str, indent: int) -> str:
    """A mapping's entry with a multi-line text, written with `|` where that parses back to the same."""
    margin = " " * indent
    keep = "+" if text.endswith("\n\n") else "" if text.endswith("\n") else "-"
    lines = "".join(f"{margin}  {line}\n" if line else "\n" for line in text.removesuffix("\n").split("\n"))
    for first_line in (f"|{keep}", f"|2{keep}"):  # the second one for a text that begins with a space
        written = f"{margin}{name}: {first_line}\n{lines}"
        if _reads_back(f"{written}{margin}end: 1\n", {name: text, "end": 1}):
            return written
    return f"{margin}{name}: {flow(text)}\n"


def _reads_back(written: str, value: object) -> bool:
    try:
        return read_yaml(written) == [value]
    except ValueError:
        return False


MAX_NODES: Final = 30_000
"""Names and values of a text. PyYAML reads them at 20 to 30 µs each."""
MAX_CHARACTERS: Final = 4_000_000
"""Of a text. The API server takes 3 MB at once, and the file of a run holds its objects."""

_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE|n|N|no|No|NO|off|Off|OFF|false|False|FALSE)$")
_INTEGER = re.compile(r"^[-+]?(?:0[bB][01]+|0[oO][0-7]+|0[xX][0-9a-fA-F]+|[0-9]+)$")
_FLOAT = re.compile(
    r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)
_BEGINS_A_NUMBER = tuple("+-0123456789")
_SURROGATE = re.compile("[\ud800-\udfff]")
_AMBIGUOUS_OCTAL = re.compile(r"^[-+]?0[0-9]+$")
_MERGE = "tag:yaml.org,2002:merge"


class YamlError(ValueError):
    """The text is not YAML, or means different things to different readers. The message names line and column."""


class _Underscores(yaml.resolver.BaseResolver):
    """kubectl ignores underscores in anything that begins like a number."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: tuple[bool, bool]) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            value = _without_underscores(value)
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # the stubs leave it out


class _Loader(_Underscores, yaml.SafeLoader):
    """SafeLoader with kubectl's scalars instead of YAML 1.1's."""

    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012 -- PyYAML's own protocol: a table on the class

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._flattened: set[yaml.MappingNode] = set()
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The limits hold while a text is read, and not only for what it has become."""
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        self._count(1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: yaml.Mark) -> list[str]:
        try:
            return super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError):  # PyYAML's `chr`
            message = "an escape stands for no character: the last one is \\U0010FFFF"
            raise yaml.scanner.ScannerError(None, None, message, self.get_mark()) from None

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise ValueError(f"it holds more than {MAX_NODES} values")

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """Keys become text first: to Python `1` and `true` are the same key."""
        self.flatten_mapping(node)
        return {self._key(key): self.construct_object(value, deep=deep) for key, value in node.value}

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Resolve `<<` once per mapping; keys must not repeat before that, and after it the later one wins.

        PyYAML's own way depends on its release: 6.0.4 keeps the first of equal keys, and only of some.
        """
        if node in self._flattened:
            return
        self._flattened.add(node)
        above = self._names_above_merge(node)
        merged = [pair for key, value in node.value if key.tag == _MERGE for pair in self._merged(value)]
        self._count(max(len(merged) - 1, 0))
        node.value = [*merged, *(pair for pair in node.value if pair[0].tag != _MERGE)]
        for name in {self._key(key) for key, _ in merged} & above.keys():
            raise _problem(f"readers disagree on {name!r}, which `<<` holds, too: write `<<` above it", above[name])

    def _merged(self, value: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """What a `<<` stands for. Of several mappings the first one wins: it comes last."""
        for source in reversed(value.value) if isinstance(value, yaml.SequenceNode) else (value,):
            if not isinstance(source, yaml.MappingNode):
                raise _problem("`<<` takes a mapping, or a list of mappings", source)
            self.flatten_mapping(source)
            yield from source.value

    def _names_above_merge(self, node: yaml.MappingNode) -> dict[str, yaml.Node]:
        """Keys above a `<<`, empty if there is none. In kubectl the later one wins."""
        names: dict[str, yaml.Node] = {}
        above: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            name = "<<" if key.tag == _MERGE else self._key(key)
            if name in names:
                raise _problem(f"the key {name!r} appears twice in one mapping", key)
            if name == "<<":
                above = dict(names)
            names[name] = key
        return above

    def _key(self, node: yaml.Node) -> str:
        try:
            return _json_key(self.construct_object(node, deep=True))
        except ValueError as error:
            raise _problem(str(error), node) from None


def _without_underscores(scalar: str) -> str:
    return scalar.replace("_", "") if scalar.startswith(_BEGINS_A_NUMBER) else scalar


def _problem(message: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)


def _construct_integer(_loader: _Loader, node: yaml.ScalarNode) -> int:
    text = _without_underscores(node.value)
    if _AMBIGUOUS_OCTAL.match(text):
        raise _problem(
            f"{text} is octal to some readers and decimal to others: write it without the leading zero", node
        )
    try:
        value = int(text, 0)
    except ValueError as error:  # `!!int x`
        raise _problem(f"{text!r} is not an integer", node) from error
    if not -(2**63) <= value < 2**63:
        raise _problem(f"{text} does not fit into 64 bits", node)
    return value


def _construct_float(_loader: _Loader, node: yaml.ScalarNode) -> float:
    text = _without_underscores(node.value).lower()
    try:
        value = math.inf if "inf" in text or "nan" in text else float(text)
    except ValueError as error:  # `!!float x`
        raise _problem(f"{text!r} is not a number", node) from error
    if math.isinf(value):
        raise _problem(f"{node.value} is not a number that JSON can hold", node)
    return value


def _construct_bool(_loader: _Loader, node: yaml.ScalarNode) -> bool:
    return cast("str", node.value).lower() in ("y", "yes", "on", "true")


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("yYnNtTfFoO"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Loader.add_implicit_resolver(_MERGE, re.compile(r"^<<$"), ["<"])
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)


_REPEATED: Final = 64
"""Characters of a scalar that is likely to come again: a name, a number."""
_REMEMBERED: Final = 4096


class _Dumper(_Underscores, yaml.CSafeDumper):
    """Quotes what either YAML 1.1 or YAML 1.2 would not read back as a string, and never uses aliases."""

    _resolved: ClassVar[dict[tuple[str, tuple[bool, bool]], object]] = {}

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: tuple[bool, bool]) -> Any:
        """What a plain scalar is read as depends on nothing but its text: it is found out once."""
        if kind is not yaml.ScalarNode or len(value) > _REPEATED:
            return super().resolve(kind, value, implicit)
        if (value, implicit) not in self._resolved:
            if len(self._resolved) >= _REMEMBERED:
                self._resolved.clear()
            self._resolved[value, implicit] = super().resolve(kind, value, implicit)
        return self._resolved[value, implicit]

    def ignore_aliases(self, _value: object) -> bool:
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("yYnNtTfFoO"))


def read_yaml(text: str) -> list[Any]:
    """All documents of a YAML (or JSON) text as plain JSON values; empty ones are left out. Raises YamlError."""
    if len(text) > MAX_CHARACTERS:
        raise YamlError(f"it has {len(text)} characters, and at most {MAX_CHARACTERS} are read: split it")
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
        budget = iter(range(MAX_NODES))
        return [json_value(document, budget) for document in documents if document is not None]
    except yaml.YAMLError as error:
        raise YamlError(_sentence(error)) from error
    except ValueError as error:
        raise YamlError(str(error)) from error
    except RecursionError:
        raise YamlError(f"it is nested more than {MAX_DEPTH} deep") from None


def _sentence(error: yaml.YAMLError) -> str:
    """Position and cause, in one line; without the surrounding text, which may contain a key."""
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark(line=line, column=column)):
            context = f" ({error.context})" if error.context else ""
            return f"line {line + 1}, column {column + 1}: {problem}{context}"
        case yaml.reader.ReaderError(position=position, character=character):
            code = ord(character) if isinstance(character, str) else character
            return f"character {position + 1} is U+{code:04X}, which YAML does not allow: write it as an escape"
    return " ".join(str(error).split())


def write_yaml(value: object) -> str:
    """Plain JSON values as YAML, in the order given."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def json_value(value: object, budget: Iterator[int] | None = None, depth: int = 0) -> Any:
    """A value as the API server stores it: string keys, `1.0` as `1`. Raises ValueError for what JSON cannot hold.

    The budget limits the nodes (a few aliases can expand to billions) and the depth limits recursive aliases.
    """
    budget = iter(range(MAX_NODES)) if budget is None else budget
    if next(budget, None) is None:
        raise ValueError(f"it holds more than {MAX_NODES} values")
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    match value:
        case dict():
            return {_json_key(key): json_value(item, budget, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item, budget, depth + 1) for item in value]
        case float():
            return _json_number(value)
        case str():
            return _json_text(value)
        case None | bool() | int():
            return value
    raise ValueError(f"{value!r} is a {type(value).__name__}, which JSON does not know")


def _json_number(value: float) -> float | int:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a number that JSON can hold")
    # The range in which Go writes a float's shortest digits without an exponent: it is read back as an integer.
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < 1e21 else value


def _json_text(text: str) -> str:
    """Escaped surrogate pairs are joined, as in JSON; an unpaired surrogate is not valid text."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"{text!r} contains half of a surrogate pair, which is not a character") from None


def _json_key(key: object) -> str:
    match key:
        case str():
            return _json_text(key)
        case bool():
            return str(key).lower()
        case int():
            return str(key)
        case float():
            return str(_json_number(key))
    raise ValueError(f"{key!r} cannot be the name of a field")
