"""Faults of an API server, and of the connection to it, as hooks of the tests' proxy."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime

from tests.integration.cluster.proxy import (
    Action,
    Answer,
    Cut,
    Delay,
    Event,
    Hold,
    Hooks,
    Kill,
    Pass,
    ProxiedCall,
    error_event,
)

Streamed = Sequence[Event | Delay | Hold | Cut | Kill]


# --- calls --------------------------------------------------------------------------------------------------------
def about_objects(call: ProxiedCall) -> bool:
    """Reads and writes of single objects, Events left out."""
    return "/namespaces/" in call.path and not call.watch and not call.path.endswith("/events")


def writes(call: ProxiedCall) -> bool:
    return about_objects(call) and call.method != "GET"


def before(times: int, action: Action, calls: Callable[[ProxiedCall], bool] = about_objects) -> Hooks:
    """The API server does not receive the next calls, as many as given."""
    return Hooks(before=_first(times, action, calls))


def after(times: int, action: Action) -> Hooks:
    """The API server carries out the next writes, as many as given, and the operator gets no answer."""
    hook = _first(times, action, writes)
    return Hooks(after=lambda call, _: hook(call))


def _first(times: int, action: Action, calls: Callable[[ProxiedCall], bool]) -> Callable[[ProxiedCall], Action]:
    left = itertools.repeat(action, times)
    return lambda call: next(left, Pass()) if calls(call) else Pass()


def by_namespace(faults: Mapping[str, Hooks]) -> Hooks:
    """Each namespace's calls have their own fault."""

    def of(call: ProxiedCall) -> Hooks:
        return faults.get(call.path.partition("/namespaces/")[2].partition("/")[0], Hooks())

    return Hooks(before=lambda call: of(call).before(call), after=lambda call, answer: of(call).after(call, answer))


def clock_off_by(hours: int) -> Hooks:
    """The API server's clock is wrong, as its answers show."""

    def hook(call: ProxiedCall, answer: Answer) -> Action:
        if call.watch or "Date" not in answer.headers:
            return Pass()
        moved = parsedate_to_datetime(answer.headers["Date"]) + timedelta(hours=hours)
        return Answer(answer.status, answer.body, {**answer.headers, "Date": format_datetime(moved, usegmt=True)})

    return Hooks(after=hook)


# --- watches ------------------------------------------------------------------------------------------------------
def plural_of(call: ProxiedCall) -> str:
    """What a watch is about."""
    return call.path.rpartition("/")[2]


def broken(code: int, *plurals: str) -> Hooks:
    """The next event of each watch of these is lost, and the watch ends with that code; the next watch works."""
    left = set(plurals)

    def event(call: ProxiedCall, event: Event) -> Streamed:
        plural = plural_of(call)
        if plural not in left or event["type"] == "BOOKMARK":
            return (event,)
        left.remove(plural)
        return error_event(code, "Expired" if code == 410 else "InternalError"), Cut()

    return Hooks(event=event)


def dropped(*plurals: str) -> Hooks:
    """Watches of these bring nothing, not even bookmarks."""
    return Hooks(event=lambda call, event: () if plural_of(call) in plurals else (event,))


def silent(last: int) -> Hooks:
    """Watches up to that number bring nothing anymore, and no connection closes; those opened later work."""
    return Hooks(event=lambda call, event: (Hold(),) if call.number <= last else (event,))


def jumbled() -> Hooks:
    """Every event comes twice, and those before it come again in between, the newest first."""
    told: dict[int, list[Event]] = {}

    def event(call: ProxiedCall, event: Event) -> Streamed:
        if event["type"] == "BOOKMARK":
            return (event,)
        earlier = told.setdefault(call.number, [])
        again = [old for old in earlier if old["type"] != "DELETED"][::-1][:5]
        earlier.append(event)
        return event, *again, event

    return Hooks(event=event)
