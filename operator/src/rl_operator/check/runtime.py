"""An RLRuntime against itself."""

from collections.abc import Iterator

from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Runtime


def check_runtime(runtime: Runtime) -> tuple[Refusal, ...]:
    """Every fault of the spec that no run could live with, in a stable order; empty means sound."""
    return tuple(_empty_ranges(runtime))


def _empty_ranges(runtime: Runtime) -> Iterator[Refusal]:
    for section in ("env", "tinker"):
        for name, bound in sorted(getattr(runtime.spec.bounds, section).items()):
            if bound.min is not None and bound.max is not None and bound.min > bound.max:
                hint = f"no value is at least {bound.min:g} and at most {bound.max:g}: correct one of them"
                field = f"spec.bounds.{section}.{name}"
                yield Refusal(code="Inconsistent", field=field, given=bound.to_wire(), hint=hint)
