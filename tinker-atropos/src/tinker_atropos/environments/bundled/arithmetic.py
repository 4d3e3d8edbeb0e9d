"""The agentic task of the bundled model: `what is 37 * 48?`, answered by calling a calculator and repeating its result.

As in `digits`, the model is pre-trained on one part of the items, trained by RL on another and evaluated on a third.
"""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from tinker_atropos.environments.bundled.splits import Split, in_shuffled_order

Item = tuple[int, str, int]
"""Two numbers of two digits, and the operator between them."""

PRETRAINING_SIZE = 12_000
TRAINING_SIZE = 8_000

TOOL_NAME: Final = "calculator"
TOOL_DESCRIPTION: Final = "Compute an expression."
ARGUMENT: Final = "expression"
TOOL_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {ARGUMENT: {"type": "string"}},
    "required": [ARGUMENT],
}
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": TOOL_PARAMETERS},
}
"""In OpenAI's form. The bundled model knows its exact words, without another message before the question."""

OPERATORS: Final[Mapping[str, tuple[type[ast.operator], Callable[[int, int], int]]]] = MappingProxyType(
    {"+": (ast.Add, operator.add), "-": (ast.Sub, operator.sub), "*": (ast.Mult, operator.mul)}
)
SIGNS: Final[Mapping[type[ast.unaryop], Callable[[int], int]]] = MappingProxyType(
    {ast.UAdd: operator.pos, ast.USub: operator.neg}
)
MAX_LENGTH: Final = 60
"""Of an expression. It bounds the rest, too: without powers, no value has more digits than the expression."""

NUMBER: Final = re.compile(r"(?<![0-9])-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")
"""As people write it in a text: `-3`, `1,776`, `12.50`. The minus of `5-3` is none of its own."""


@cache
def split() -> Split[Item]:
    items = itertools.product(range(10, 100), OPERATORS, range(10, 100))
    return in_shuffled_order(items, question, PRETRAINING_SIZE, TRAINING_SIZE)


def question(item: Item) -> str:
    """The content of the user's message."""
    return f"what is {expression(item)}?"


def expression(item: Item) -> str:
    """What the calculator is asked: `37 * 48`."""
    return " ".join(map(str, item))


def answer(item: Item) -> str:
    """What the calculator returns, and the last message repeats."""
    return compute(expression(item))


def is_right(item: Item, text: str) -> bool:
    """Whether the last number of the text is the answer."""
    return last_number(text) == int(answer(item))


def last_number(text: str) -> Decimal | None:
    """None: the text has no number."""
    numbers: list[str] = NUMBER.findall(text)
    return Decimal(numbers[-1].replace(",", "")) if numbers else None


def compute(expression: str) -> str:
    """The calculator: the value of an expression, or a sentence about what is wrong with it. Never raises."""
    if len(expression) > MAX_LENGTH:
        return f"The expression has {len(expression)} characters; {MAX_LENGTH} are allowed."
    if unknown := re.search(r"[^0-9+\-*() ]", expression):
        return f"{unknown[0]!r} is not allowed; an expression has integers, + - * and parentheses."
    try:
        return str(_value(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, _UnknownNodeError, MemoryError, RecursionError):
        return f"{expression!r} is not an expression of integers, + - * and parentheses."


class _UnknownNodeError(ValueError):
    """Python has a meaning for it that the calculator does not have, such as `**`."""


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=sign, operand=operand):
            return _apply(SIGNS.get(type(sign)), operand)
        case ast.BinOp(left=left, op=symbol, right=right):
            return _apply(_OPERATIONS.get(type(symbol)), left, right)
    raise _UnknownNodeError


def _apply(operation: Callable[..., int] | None, *operands: ast.expr) -> int:
    if operation is None:
        raise _UnknownNodeError
    return operation(*map(_value, operands))


_OPERATIONS: Final = dict(OPERATORS.values())
