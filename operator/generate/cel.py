"""Pieces of CEL source for the admission policies.

A fault is a CEL map {at, name, given, hint}: the path and name of a field, the value that was given (null: it is not
repeated), and a hint in parts. In a list of parts, a string is text, and a one-element list is that value, rendered.
This way the code that turns values into text appears once per policy.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from rl_operator.api.refusal import (
    KEY_INSIDE,
    KEY_VALUE,
    MAX_PLAIN_NAME,
    MAX_SHOWN,
    NOT_SHOWN,
    PLAIN_NAME,
    SECRET_INSIDE,
    SECRET_NAME,
)

Cel = str

_KEY: Final = f"^(?:{KEY_VALUE})$"


def literal(value: Any) -> Cel:
    """A JSON value as CEL. JSON's escapes are valid in CEL, too."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(name)}: {literal(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def let(name: str, value: Cel, body: Cel) -> Cel:
    """`body`, with `name` bound to a value that is computed once: CEL has no let, but `map` binds a name."""
    return f"[{value}].map({name}, {body})[0]"


def filled(template: str, *parts: Cel) -> Cel:
    """The parts of a template, with these parts in place of its `%s`."""
    texts = [literal(text) for text in template.split("%s")]
    interleaved = [texts[0], *(piece for pair in zip(parts, texts[1:], strict=True) for piece in pair)]
    return listed(*(piece for piece in interleaved if piece != literal("")))


def listed(*elements: Cel) -> Cel:
    """A list of mixed types: the API server accepts them only as `dyn`."""
    return f"[{', '.join(f'dyn({element})' for element in elements)}]"


def fault(at: str, name: Cel, given: Cel, hint: Cel) -> Cel:
    entries = {"at": literal(at), "name": name, "given": given, "hint": hint}
    return "{" + ", ".join(f"'{entry}': dyn({value})" for entry, value in entries.items()) + "}"


def is_number(value: Cel) -> Cel:
    return f"(type({value}) == int || type({value}) == double)"


def _is_container(value: Cel) -> Cel:
    return f"(type({value}) == list || type({value}) == map)"


def parts_of(found: Cel) -> Cel:
    """A fault as the parts of its sentence: mirrors `Refusal.sentence` and `loading.field_path`."""
    short = f"{found}.name.size() <= {MAX_PLAIN_NAME}"
    plain = f"{short} && {found}.name.matches({literal(PLAIN_NAME)}) && !{found}.name.matches({literal(_KEY)})"
    name = f"({found}.name.matches({literal(_KEY)}) ? {literal(NOT_SHOWN)} : {found}.name)"
    odd = listed("'['", f"[{name}]", "']'")
    path = f"({plain} ? [dyn('.' + {found}.name)] : {odd})"
    hidden = f"{found}.name.matches({literal(SECRET_NAME)}) || {_is_hidden(f'{found}.given')}"
    repeated = listed("' is '", f"[{found}.given]")
    given = f"({found}.given == null || {hidden} ? [] : {repeated})"
    return f"[{found}.at] + {path} + {given} + [dyn(': ')] + {found}.hint"


def sentence(parts: Cel) -> Cel:
    return f"{parts}.map(p, type(p) == list ? {_shown('p[0]')} : string(p)).join('')"


def looks_like_a_key(value: Cel) -> Cel:
    """Mirrors `refusal.looks_like_a_key`."""
    inside = f"'%s'.format([{value}]).matches({literal(KEY_INSIDE)})"
    whole = f"{value}.matches({literal(_KEY)})"
    return f"(type({value}) == string ? {whole} : {_is_container(value)} ? {inside} : false)"


def _is_hidden(value: Cel) -> Cel:
    inside = f"'%s'.format([{value}]).matches({literal(SECRET_INSIDE)})"
    return f"({looks_like_a_key(value)} || {_is_container(value)} && {inside})"


def _shown(value: Cel) -> Cel:
    """Mirrors `value_text.text_of(refusal.shown(value))`: a truncated text is quoted."""
    cut = f"{_is_container(value)} && t.size() > {MAX_SHOWN} ? {_quoted(_cut('t'))} : t"
    text = f"(type({value}) == string ? {_quoted(_cut(value))} : {let('t', _text(value), cut)})"
    return f"({_is_hidden(value)} ? {literal(literal(NOT_SHOWN))} : {text})"


def _text(value: Cel) -> Cel:
    return f"(type({value}) == list ? '[' + {value}.map(e, {_scalar('e')}).join(', ') + ']' : {_scalar(value)})"


def _scalar(value: Cel) -> Cel:
    return f"(type({value}) == double ? {_double(value)} : {_quoted(value)})"


def _double(value: Cel) -> Cel:
    """64-bit integers are stored without a fraction: `1.0` is `1`."""
    small = f"{value} > -9223372036854775808.0 && {value} < 9223372036854775808.0"
    return f"({small} && double(int({value})) == {value} ? string(int({value})) : string({value}))"


def _quoted(value: Cel) -> Cel:
    """`format` quotes list elements and escapes what is not printable; the list's brackets are removed."""
    return let("f", f"'%s'.format([[{value}]])", "f.substring(1, f.size() - 1)")


def _cut(text: Cel) -> Cel:
    return f"({text}.size() > {MAX_SHOWN} ? {text}.substring(0, {MAX_SHOWN - 1}) + '…' : {text})"
