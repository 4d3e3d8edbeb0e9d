"""Query parameters at the border."""

from starlette.requests import Request

from tinker_atropos.trajectory_api.bodies import Refusal

MAX_STEP_DIGITS = 9
MAX_NUMBER = 2.0**53


def number(request: Request, name: str, default: float) -> float:
    """Raises Refusal for what is none, or negative."""
    text = request.query_params.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < MAX_NUMBER:
        raise Refusal(422, name, f"{name} is {text!r}; it must be a number, at least 0 and below 2**53")
    return value


def step_of(request: Request) -> int | None:
    """None for a request that names no step. Raises Refusal for what is none."""
    text = request.query_params.get("step")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_STEP_DIGITS):
        raise Refusal(422, "step", f"step is {text!r}; it must be a whole number, at least 0")
    return int(text)
