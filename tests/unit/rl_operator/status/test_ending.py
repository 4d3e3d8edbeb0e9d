"""How an attempt ended: a table of pods as Kubernetes shows them, and what follows from each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import failed_result, make_pod, ready, result, terminated, waiting

from rl_operator.status.ending import MAX_MESSAGE, Fate, classify, clean
from rl_operator.status.observation import PodObservation

ENDINGS = {
    "success": (
        make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded"),
        "SUCCEEDED",
        "Succeeded",
    ),
    "success although the environment hung and was killed": (
        make_pod(ready(), terminated(0, result()), terminated(137), phase="Failed", deleting=True),
        "SUCCEEDED",
        "Succeeded",
    ),
    "a trainer that says succeeded with steps missing did not succeed": (
        make_pod(ready(), terminated(0, result(stepsTrained=39)), terminated(0), phase="Succeeded"),
        "INFRASTRUCTURE",
        "StoppedUnasked",
    ),
    "a trainer that says succeeded without weights did not succeed": (
        make_pod(ready(), terminated(0, result(samplerPath=None)), terminated(0), phase="Succeeded"),
        "INFRASTRUCTURE",
        "StoppedUnasked",
    ),
    "bad configuration": (
        make_pod(
            ready(), terminated(2, failed_result("config", "tinker.foo is not known")), terminated(0), phase="Failed"
        ),
        "FINAL",
        "ConfigInvalid",
    ),
    "refused key": (
        make_pod(ready(), terminated(3, failed_result("credentials", "401")), terminated(0), phase="Failed"),
        "FINAL",
        "CredentialsRefused",
    ),
    "unpaid bill": (
        make_pod(ready(), terminated(3, failed_result("billing", "402")), terminated(0), phase="Failed"),
        "FINAL",
        "BillingRefused",
    ),
    "backend gone": (
        make_pod(ready(), terminated(4, failed_result("backend", "no answer")), terminated(0), phase="Failed"),
        "INFRASTRUCTURE",
        "BackendUnreachable",
    ),
    "trainer crashed without a word": (
        make_pod(ready(), terminated(1, "Traceback"), terminated(0), phase="Failed"),
        "PROGRAMME",
        "TrainerFailed",
    ),
    "trainer out of memory": (
        make_pod(ready(), terminated(137, result(outcome="running"), "OOMKilled"), terminated(0), phase="Failed"),
        "PROGRAMME",
        "OOMKilled",
    ),
    "environment raised": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(1, "error: boom"),
            phase="Failed",
        ),
        "PROGRAMME",
        "EnvironmentFailed",
    ),
    "environment out of memory": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(137, reason="OOMKilled"),
            phase="Failed",
        ),
        "PROGRAMME",
        "OOMKilled",
    ),
    "environment left early": (
        make_pod(ready(), terminated(1, failed_result("environment", "it left")), terminated(0), phase="Failed"),
        "PROGRAMME",
        "EnvironmentLeftEarly",
    ),
    "environment with a bad config": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(2, "error: env.x"),
            phase="Failed",
        ),
        "FINAL",
        "ConfigInvalid",
    ),
    "api failed before the others started": (
        make_pod(terminated(1, "error: no space"), waiting(), waiting(), phase="Failed"),
        "PROGRAMME",
        "ApiFailed",
    ),
    "evicted, although the pod says Succeeded": (
        make_pod(
            ready(),
            terminated(0, result(outcome="stopped", stepsTrained=7)),
            terminated(0),
            phase="Succeeded",
            conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
        ),
        "INFRASTRUCTURE",
        "EvictionByEvictionAPI",
    ),
    "evicted by the kubelet": (
        make_pod(ready(), terminated(137), terminated(137), phase="Failed", reason="Evicted"),
        "INFRASTRUCTURE",
        "Evicted",
    ),
    "the pod's own deadline": (
        make_pod(ready(), terminated(137), terminated(137), phase="Failed", reason="DeadlineExceeded"),
        "FINAL",
        "ActiveDeadlineExceeded",
    ),
    "deleted by somebody": (
        make_pod(
            ready(),
            terminated(0, result(outcome="stopped", stepsTrained=7)),
            terminated(143),
            phase="Failed",
            deleting=True,
        ),
        "INFRASTRUCTURE",
        "PodDeleted",
    ),
    "failed, and its lingering pod deleted by us": (
        make_pod(
            ready(), terminated(1, failed_result("internal", "bug")), terminated(137), phase="Failed", deleting=True
        ),
        "PROGRAMME",
        "TrainerFailed",
    ),
}


@pytest.mark.parametrize(("pod", "fate", "reason"), ENDINGS.values(), ids=ENDINGS)
def test_ending(pod: PodObservation, fate: str, reason: str) -> None:
    ending = classify(pod, stop_asked=False)
    assert (ending.fate.name, ending.reason) == (fate, reason)


def test_a_stop_that_was_asked_for_is_no_failure() -> None:
    pod = make_pod(ready(), terminated(137), terminated(137), phase="Failed", deleting=True)
    assert classify(pod, stop_asked=True).fate is Fate.STOPPED


def test_the_environments_own_words_come_before_the_trainers() -> None:
    pod = make_pod(
        ready(),
        terminated(1, failed_result("environment", "the environment is gone")),
        terminated(1, "a log line\nerror: ZeroDivisionError in score\n"),
        phase="Failed",
    )
    ending = classify(pod, stop_asked=False)
    assert (ending.container, ending.exit_code) == ("environment", 1)
    assert ending.message == "ZeroDivisionError in score"


def test_secrets_are_removed() -> None:
    assert clean("key tml-abcdefgh123 refused") == "key [redacted] refused"


@given(st.text())
def test_any_message_becomes_one_short_line(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= MAX_MESSAGE
    assert "\n" not in cleaned
