"""One table holds every reason: the code uses exactly the words that the table explains."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from rl_contract.trainer_messages import PAUSES
from rl_operator.api.refusal import RefusalCode
from rl_operator.status.text.phase_table import TABLE
from rl_operator.status.text.reasons import REASONS, Meaning

SOURCE = Path("operator/src/rl_operator")
SEARCHED = (
    *sorted((SOURCE / "status").rglob("[a-z]*.py")),
    *sorted((SOURCE / "reconcile").rglob("[a-z]*.py")),
    SOURCE / "api" / "run_inputs.py",
    SOURCE / "local" / "pods" / "pod_status.py",
    SOURCE / "local" / "pods" / "kubelet.py",
)
OTHER_KINDS = {
    "kind_status.py",
    "reconcile_kinds.py",
    "image_reading.py",
    "reasons.py",
}
"""The table, and the conditions of RLRuntime and RLEnvironment, which have reasons of their own."""

CAMEL_CASE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*|OOMKilled")
KUBERNETES = {
    *{word for row in TABLE.values() for word in (row.phase, *row.conditions)},
    *("Waiting", "Terminated", "Unknown", "Error", "Completed", "Normal", "Warning"),  # states, event types
    *("Pod", "Secret", "Service", "NetworkPolicy", "ConfigMap"),  # kinds
    *("PodScheduled", "DisruptionTarget", "TerminationTarget", "PodReadyToStartContainers"),  # conditions of pods
    "ContainersReady",
    *("Initialized", "SchedulingGated"),
    *("PodInitializing", "ContainerCreating", "Always"),  # of containers that wait, and how sidecars restart
    *("StartError", "ContainerCannotRun"),
    *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CrashLoopBackOff"),
    *("CreateContainerError", "RunContainerError", "CreateContainerConfigError", "DeadlineExceeded"),
    *("ContainerStatusUnknown", "True", "False"),
    "Restart",  # a value of spec.onLostCheckpoint
}
"""Words of Kubernetes that are no reasons of ours, though they look like some."""


def words_of_code() -> Iterator[tuple[str, str]]:
    """Every string of the searched modules that has the shape of a reason, and its location."""
    for path in SEARCHED:
        if path.name in OTHER_KINDS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CAMEL_CASE.fullmatch(node.value):
                yield node.value, f"{path}:{node.lineno}"


def test_reasons_used_in_code_are_explained() -> None:
    unknown = {word: place for word, place in words_of_code() if word not in REASONS and word not in KUBERNETES}
    assert unknown == {}, "put it into status/text/reasons.py, or, if it is no reason of ours, into KUBERNETES here"


def test_explained_reasons_are_used() -> None:
    said = {word for word, _ in words_of_code()} | set(get_args(RefusalCode)) | PAUSES
    assert set(REASONS) - said - DISRUPTIONS == set()


DISRUPTIONS = {
    *("PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"),
    "TerminationByKubelet",
}
"""Kubernetes' own reasons of a DisruptionTarget, which an attempt's end repeats."""


def test_every_refusal_code_is_explained() -> None:
    assert set(get_args(RefusalCode)) <= set(REASONS)


@pytest.mark.parametrize(("reason", "meaning"), REASONS.items(), ids=REASONS)
def test_meaning_and_advice_are_sentences(reason: str, meaning: Meaning) -> None:
    assert CAMEL_CASE.fullmatch(reason)
    for text in (meaning.means, meaning.advice):
        assert text.endswith("."), text
        assert "  " not in text
