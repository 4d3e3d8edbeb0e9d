"""A model's fields as rows: what checks, catalogs, policies and reference pages are derived from."""

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Metadata of a field that changes something only with one of these policy losses."""

    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest value that makes sense; `exclusive`: every number above it."""

    value: float
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """One field. `type` is its annotation as source text, `int | None`. `default` is None for a required field, too."""

    name: str
    type: str
    default: Any
    required: bool
    description: str
    smallest: Smallest | None = None
    largest: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    losses: tuple[str, ...] = ()


def settings_of(model: type[BaseModel]) -> Mapping[str, Setting]:
    """A model's fields by name, in their order; those of a model inside of it as `early_stopping.patience`."""
    return {setting.name: setting for name, field in model.model_fields.items() for setting in _settings(name, field)}


def values_of(model: BaseModel) -> Mapping[str, Any]:
    """The values of a model's fields by the same names."""
    found: dict[str, Any] = {}
    for name, value in model:
        if isinstance(value, BaseModel):
            found |= {f"{name}.{inner}": each for inner, each in values_of(value).items()}
        else:
            found[name] = value
    return found


def _settings(name: str, field: FieldInfo) -> Iterable[Setting]:
    inner = field.annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return (replace(each, name=f"{name}.{each.name}") for each in settings_of(inner).values())
    return (_setting(name, field),)


def _setting(name: str, field: FieldInfo) -> Setting:
    found: dict[str, Any] = {}
    for each in (*_inside(field.annotation), *field.metadata):
        found |= _read(each)
    return Setting(
        name=name,
        type=annotation_text(field.annotation),
        default=None if field.is_required() else field.default,
        required=field.is_required(),
        description=field.description or "",
        **found,
    )


def _read(metadata: object) -> dict[str, Any]:
    match metadata:
        case annotated_types.Ge(ge=value):
            return {"smallest": Smallest(_number(value))}
        case annotated_types.Gt(gt=value):
            return {"smallest": Smallest(_number(value), exclusive=True)}
        case annotated_types.Le(le=value):
            return {"largest": _number(value)}
        case annotated_types.MinLen(min_length=value):
            return {"min_length": value}
        case annotated_types.MaxLen(max_length=value):
            return {"max_length": value}
        case OnlyWith(losses=losses):
            return {"losses": losses}
        case _:
            raise TypeError(f"no table has a column for {metadata!r}")


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _inside(annotation: object) -> Iterable[object]:
    """Metadata of the members of a union: `Annotated[float, Field(gt=0)] | Literal["auto"]`."""
    for member in get_args(annotation) if _is_union(annotation) else ():
        if get_origin(member) is Annotated:
            for each in get_args(member)[1:]:
                yield from each.metadata if isinstance(each, FieldInfo) else (each,)


_UNIONS: Final = (Union, types.UnionType)


def _is_union(annotation: object) -> bool:
    return get_origin(annotation) in _UNIONS


def annotation_text(annotation: Any) -> str:
    """`float | Literal['auto']`: an annotation as its source has it, without metadata."""
    if _is_union(annotation):
        return " | ".join(map(annotation_text, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        return annotation_text(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(annotation)))}]"
    return "None" if annotation in (None, type(None)) else str(annotation.__name__)
