"""Whole lives of a run as tables: what a user and a kubelet do, each as soon as the cluster is in a certain state.

Nothing in them waits for time: the same table continues after any kill, and ends in the same state.
"""

import difflib
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.runs import ALL_PODS, ALL_RUNS, TOTAL_STEPS, RunsNamespace
from tests.integration.cluster.test_environments import GOOD
from tests.integration.cluster.trainer import trainer_status
from tests.integration.cluster.written_environments import OwnEnvironments

from rl_operator.api.names import MANAGED_BY_LABEL

TICK_SECONDS = 0.05

FIGURES = {"phase": "training", "step": 2, "totalSteps": TOTAL_STEPS, "metrics": {"rolloutReward": 0.5}}
SERIES = ({"step": 1, "rolloutReward": 0.25}, {"step": 2, "rolloutReward": 0.5})
_addresses = (f"127.254.{number // 250}.{number % 250 + 1}" for number in itertools.count())

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Scene:
    """One run's namespace at a moment."""

    runs: RunsNamespace
    run: Document | None
    pods: Sequence[Document]
    address: str | None = None
    """Where the run's trainer serves its figures; None: it has none."""
    asked: Sequence[str] = ()
    """What the operator asked that trainer for, so far."""

    @property
    def status(self) -> Document:
        return self.run["status"] if self.run else {}

    @property
    def phase(self) -> str | None:
        return self.status.get("phase")

    @property
    def attempt(self) -> int | None:
        return self.status.get("attempt")

    @property
    def pod(self) -> Document | None:
        """The current attempt's."""
        return next((pod for pod in self.pods if pod["metadata"]["name"] == self.status.get("podName")), None)

    @property
    def pod_name(self) -> str:
        name: str = self.status["podName"]
        return name

    @property
    def environment(self) -> str | None:
        """The name of the first environment pod."""
        return next((name for pod in self.pods if "-env-" in (name := pod["metadata"]["name"])), None)

    @property
    def held(self) -> bool:
        return any(pod["metadata"].get("finalizers") for pod in self.pods)


Condition = Callable[[Scene], bool]
Act = Callable[[Scene], None]


@dataclass(frozen=True)
class Step:
    when: Condition
    act: Act


# --- when ---------------------------------------------------------------------------------------------------------
def created(attempt: int) -> Condition:
    return lambda scene: scene.attempt == attempt and scene.pod is not None


def runs_as(attempt: int) -> Condition:
    return lambda scene: (scene.phase, scene.attempt) == ("Running", attempt)


def heard(scene: Scene) -> bool:
    """The metrics are in the status, and the history has arrived: they are not requested at the same time."""
    read = "/history" in scene.asked and "/status" in scene.asked[scene.asked.index("/history") :]
    return scene.phase == "Running" and scene.status.get("progress", {}).get("step") == FIGURES["step"] and read


def tended(scene: Scene) -> bool:
    return scene.environment is not None


def over_as(phase: str) -> Condition:
    return lambda scene: scene.phase == phase and not scene.held


def asked_to_end(scene: Scene) -> bool:
    return scene.pod is not None and "deletionTimestamp" in scene.pod["metadata"]


def all_gone(scene: Scene) -> bool:
    return scene.run is None and not scene.pods and scene.runs.empty()


# --- what ---------------------------------------------------------------------------------------------------------
def begin(scene: Scene) -> None:
    """Bound, and working at once: what the operator writes about the moments in between would depend on chance."""
    scene.runs.kubelet.bind(scene.pod_name)
    scene.runs.kubelet.work(scene.pod_name, address=scene.address)


def begin_environment(scene: Scene) -> None:
    assert scene.environment
    scene.runs.kubelet.bind(scene.environment)
    scene.runs.kubelet.work(scene.environment)


def end(outcome: str, code: int, attempt: int, steps: int) -> Act:
    words = result(outcome, steps=steps, total=TOTAL_STEPS, attempt=attempt)
    phase = "Failed" if code else "Succeeded"
    return lambda scene: scene.runs.kubelet.end(scene.pod_name, phase, trainer=End(code, words))


def suspend(scene: Scene) -> None:
    scene.runs.edit(suspend=True)


def resume(scene: Scene) -> None:
    scene.runs.kubelet.remove(scene.pod_name)
    scene.runs.edit(suspend=False)


def delete(scene: Scene) -> None:
    scene.runs.delete()
    scene.runs.kubelet.collect_garbage()


def rest(_: Scene) -> None:
    """Nothing more follows."""


# --- lives --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Script:
    steps: tuple[Step, ...]
    last_words: str = ""
    """The reason of the Event that tells of the end; empty: none does."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    serves: bool = False
    """Whether its trainer serves figures and a series."""
    own_environment: bool = False
    """Whether the namespace has the RLEnvironment that the spec names."""


def _attempt(number: int, outcome: str, code: int, steps: int) -> tuple[Step, ...]:
    return Step(created(number), begin), Step(runs_as(number), end(outcome, code, number, steps))


SCRIPTS: Mapping[str, Script] = {
    "success": Script(
        (
            Step(created(1), begin),
            Step(heard, end("succeeded", 0, 1, TOTAL_STEPS)),
            Step(over_as("Succeeded"), rest),
        ),
        "Succeeded",
        serves=True,
    ),
    "failure": Script(
        (*_attempt(1, "running", 1, 1), *_attempt(2, "running", 1, 2), Step(over_as("Failed"), rest)),
        "TrainerFailed",
        {"backoffLimit": 1},
    ),
    "suspend and resume": Script(
        (
            Step(created(1), begin),
            Step(runs_as(1), suspend),
            Step(asked_to_end, end("stopped", 0, 1, 2)),
            Step(over_as("Stopped"), resume),
            *_attempt(2, "succeeded", 0, TOTAL_STEPS),
            Step(over_as("Succeeded"), rest),
        ),
        "Succeeded",
    ),
    "deletion": Script(
        (Step(created(1), begin), Step(runs_as(1), delete), Step(all_gone, rest)),
    ),
}

OWN_ENVIRONMENT = "success with an own environment"

SAMPLED_SCRIPTS: Mapping[str, Script] = {
    OWN_ENVIRONMENT: Script(
        (
            Step(created(1), begin),
            Step(tended, begin_environment),
            Step(heard, end("succeeded", 0, 1, TOTAL_STEPS)),
            Step(over_as("Succeeded"), rest),
        ),
        "Succeeded",
        {"environment": "own/counting"},
        serves=True,
        own_environment=True,
    ),
}
"""Longer lives, of which some calls stand for all."""

ALL_SCRIPTS: Mapping[str, Script] = {**SCRIPTS, **SAMPLED_SCRIPTS}


@dataclass(frozen=True)
class Outcome:
    """What must be the same after any kill: the last status, and everything ever created, by resource.

    Only the history may be missing: a killed operator may not have read it again before the end. It is never created
    twice.
    """

    status: Document
    made: Mapping[str, int]
    made_twice: Sequence[tuple[str, str]]

    def differences(self, other: "Outcome") -> str:
        """The lines that differ, as `diff` shows them."""
        mine, theirs = (json.dumps(asdict(one), indent=1, sort_keys=True).splitlines() for one in (self, other))
        return "\n".join(line for line in difflib.ndiff(mine, theirs) if line[0] in "+-")


class Life:
    """One life in a namespace of its own."""

    def __init__(self, runs: RunsNamespace, name: str) -> None:
        self.runs = runs
        self.name = name
        self.over_at: float | None = None
        self.address: str | None = None
        self.asked: Sequence[str] = ()
        self._servers = ExitStack()
        script = ALL_SCRIPTS[name]
        self._left = list(script.steps)
        self._last_words = script.last_words
        if script.serves:
            self.address = next(_addresses)
            self.asked = self._servers.enter_context(trainer_status(runs, self.address, FIGURES, SERIES))
        if script.own_environment:
            own = OwnEnvironments(runs.admin, runs.namespace)
            own.write("counting", env=GOOD)
            own.apply("counting")
        self._uid: str = runs.apply(**script.spec)["metadata"]["uid"]

    @property
    def over(self) -> bool:
        return self.over_at is not None

    def __str__(self) -> str:
        events = sorted(self._events())
        return f"{self.name} in {self.runs.namespace}, {len(self._left)} steps left: {self.runs.status()}, {events}"

    def close(self) -> None:
        self._servers.close()

    def hush(self) -> None:
        """From now on it counts as finished even without an Event."""
        self._last_words = ""

    def go_on(self, scene: Scene) -> None:
        """Do the next step if it is time for it."""
        if self._left:
            if self._left[0].when(scene):
                self._left.pop(0).act(scene)
        elif not self.over and (not self._last_words or self._last_words in self._events()):
            self.over_at = time.monotonic()

    def outcome(self) -> Outcome:
        creations = [write for write in self.runs.writes() if write.verb == "create"]
        # A call whose client died may have succeeded and be logged with another code than 201.
        tried = {(write.resource, write.name) for write in creations}
        taken = Counter((write.resource, write.name) for write in creations if write.code == 201)
        return Outcome(
            status=_without_names_and_times(self.runs.status(), self._uid),
            made=dict(Counter(resource for resource, name in tried if not name.endswith("-history"))),
            made_twice=[name for name, times in taken.items() if times > 1],
        )

    def _events(self) -> set[str]:
        """The reasons of the Events about it."""
        events = self.runs.admin.items(f"/apis/events.k8s.io/v1/namespaces/{self.runs.namespace}/events")
        return {event["reason"] for event in events}


def _without_names_and_times(status: Document, uid: str) -> Document:
    """A status as another run with the same life would have it."""
    # A run reconciled before its environment existed was briefly refused, which leaves an empty list.
    certain = {key: value for key, value in status.items() if key != "historyName" and (key, value) != ("refusals", [])}
    if environments := status.get("environments"):  # they end with the run: what was ready last depends on chance
        certain["environments"] = {key: value for key, value in environments.items() if key != "ready"}
    config_hash = status.get("configHash", "none")
    text = json.dumps(certain).replace(uid[:5], "UID").replace(config_hash, "HASH").replace(config_hash[:8], "HASH")
    plain: Document = json.loads(re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text))
    return plain


def play(
    admin: AdminClient,
    lives: Sequence[Life],
    *,
    until: Callable[[], bool],
    frozen: Callable[[Life], bool] = lambda _: False,
    seconds: float = 60.0,
) -> None:
    """Let the lives continue in parallel until the condition holds: two lists per tick, whatever their number."""
    deadline = time.monotonic() + seconds
    while not until():
        going = [life for life in lives if not frozen(life)]
        assert time.monotonic() < deadline, f"not over within {seconds:.0f} s:\n" + "\n".join(
            str(life) for life in going if not life.over
        )
        runs = {run["metadata"]["namespace"]: run for run in admin.items(ALL_RUNS)}
        pods = admin.items(ALL_PODS, labelSelector=MANAGED_BY_LABEL)
        for life in going:
            own = [pod for pod in pods if pod["metadata"]["namespace"] == life.runs.namespace]
            life.go_on(Scene(life.runs, runs.get(life.runs.namespace), own, life.address, life.asked))
        time.sleep(TICK_SECONDS)


def sweep_away(admin: AdminClient, lives: Sequence[Life]) -> None:
    """Leave no finished run behind: each would be listed again in every later tick."""
    for life in lives:
        life.close()
        if life.runs.find():
            life.runs.delete()
        life.runs.kubelet.collect_garbage()
