"""The calls of a run as points at which the operator can be killed, and the traps that wait there."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.integration.cluster.proxy import Action, Answer, Hold, Hooks, Pass, ProxiedCall


class Moment(StrEnum):
    BEFORE = "before the API server hears of it"
    AFTER = "before the operator hears the answer"


class Point(NamedTuple):
    """The n-th call of that kind in a life. Numbered by kind, because some calls are made side by side."""

    kind: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.kind} #{self.occurrence}"


def points_of(calls: Iterable[ProxiedCall], namespace: str) -> list[Point]:
    """All calls about single objects in a namespace."""
    seen: Counter[str] = Counter()
    points = []
    for call in calls:
        if kind := kind_of(call, namespace):
            seen[kind] += 1
            points.append(Point(kind, seen[kind]))
    return points


def kind_of(call: ProxiedCall, namespace: str) -> str | None:
    """Verb, resource and the subject of the body, e.g. `PATCH rltrainingruns/status Running`."""
    _, within, rest = call.path.partition(f"/namespaces/{namespace}/")
    if not within or call.watch:
        return None
    resource, _, name = rest.partition("/")
    subresource = name.partition("/")[2]
    return " ".join(filter(None, (call.method, "/".join(filter(None, (resource, subresource))), _word(call.body))))


def _word(body: bytes) -> str:
    """The phase of a status, the reason of an Event, and which ConfigMap is the history."""
    document = json.loads(body) if body else {}
    if not isinstance(document, dict):
        return ""
    if document.get("metadata", {}).get("name", "").endswith("-history"):
        return "series"
    word: str = document.get("reason") or document.get("status", {}).get("phase") or ""
    return word


@dataclass(frozen=True)
class Traps:
    """One point per namespace: the call that reaches it is held. The kill then hits all of them at once.

    An Event is not held, since they are all written one after the other: it is swallowed, which looks the same to both
    sides once the operator is dead.
    """

    points: Mapping[str, Point]
    moment: Moment
    sprung: set[str] = field(default_factory=set)
    """The namespaces whose call has come."""
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _numbers: set[int] = field(default_factory=set)

    @property
    def hooks(self) -> Hooks:
        return Hooks(before=self._before, after=self._after)

    @property
    def all_sprung(self) -> bool:
        return self.sprung == self.points.keys()

    def _before(self, call: ProxiedCall) -> Action:
        namespace = self._at_its_point(call)
        if namespace is None:
            return Pass()
        if self.moment is Moment.AFTER:
            self._numbers.add(call.number)
            return Pass()
        self.sprung.add(namespace)
        return Answer(201, b"{}") if _tells(call) else Hold()

    def _after(self, call: ProxiedCall, _: Answer) -> Action:
        if call.number not in self._numbers:
            return Pass()
        self.sprung.add(_namespace(call))
        return Pass() if _tells(call) else Hold()

    def _at_its_point(self, call: ProxiedCall) -> str | None:
        namespace = _namespace(call)
        point = self.points.get(namespace)
        kind = kind_of(call, namespace)
        if point is None or kind is None:
            return None
        self._seen[namespace, kind] += 1
        return namespace if Point(kind, self._seen[namespace, kind]) == point else None


def _tells(call: ProxiedCall) -> bool:
    return call.path.startswith("/apis/events.k8s.io/")


def _namespace(call: ProxiedCall) -> str:
    return call.path.partition("/namespaces/")[2].partition("/")[0]


class Stab(NamedTuple):
    """Where one operator is killed: in a life of that name, at that point, at that moment."""

    life: str
    point: Point
    moment: Moment

    def __str__(self) -> str:
        return f"{self.life}, {self.point}"


def stabs(life: str, points: Sequence[Point]) -> list[Stab]:
    """All points."""
    return [Stab(life, point, moment) for moment in Moment for point in points]


def sample(stabs: Iterable[Stab], seed: str, share: float) -> list[Stab]:
    """About that share of them, and at least one of each kind of call, in any life and at any moment.

    Each is drawn independently: one more call in a life does not change the others.
    """
    lots = {stab: random.Random(f"{seed}: {stab}, {stab.moment}").random() for stab in stabs}
    of_kind: defaultdict[str, list[Stab]] = defaultdict(list)
    for stab in lots:
        of_kind[stab.point.kind].append(stab)
    needed = {min(one_kind, key=lots.__getitem__) for one_kind in of_kind.values()}
    return [stab for stab, lot in lots.items() if lot < share or stab in needed]


def objects(points: Sequence[Point]) -> Sequence[Point]:
    """Calls that create and delete objects. Events are left out: they are written in the background."""
    return [point for point in points if point.kind.startswith(("POST", "DELETE")) and " events" not in point.kind]


def in_groups(stabs: Sequence[Stab], size: int) -> Iterable[Sequence[Stab]]:
    return (stabs[at : at + size] for at in range(0, len(stabs), size))
