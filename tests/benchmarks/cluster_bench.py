"""apply -> first group accepted on a real kubelet with warm images, split by container.

Needs what the e2e tests need (KUBECONFIG, images, the project installed as in the README, a namespace with the Tinker
service: --namespace). Prints a table; the goal is 25 s in all.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

RUN = "bench-start"
SELECTOR = f"rl-operator.dev/run={RUN}"
GOAL_SECONDS = 25


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    program = shutil.which("kubectl") or sys.exit("kubectl is not on PATH")
    return subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def remove(namespace: str) -> None:
    """Delete the run and wait until its pod is gone: the next run must not see it."""
    kubectl("-n", namespace, "delete", "rlrun", RUN, "--ignore-not-found", "--wait")
    kubectl("-n", namespace, "wait", "--for=delete", "pod", "-l", SELECTOR, "--timeout=90s")


def pod_states(namespace: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """The run's pod each time it changes, with the moment at which the change was seen."""
    program = shutil.which("kubectl") or "kubectl"
    command = [program, "-n", namespace, "get", "pods", "-l", SELECTOR, "-w", "-o", "json", "--output-watch-events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        decoder, text = json.JSONDecoder(), ""
        try:
            for line in watch.stdout:
                text += line
                try:
                    event, end = decoder.raw_decode(text.lstrip())
                except ValueError:
                    continue
                text = text.lstrip()[end:]
                if "containerStatuses" in event["object"].get("status", {}) or event["type"] == "ADDED":
                    yield time.monotonic(), event["object"]
        finally:
            watch.terminate()


def milestones(pod: dict[str, Any]) -> Iterator[str]:
    """What has been reached, by container."""
    yield "pod created"
    status = pod.get("status", {})
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        if "running" in container["state"]:
            yield f"{container['name']} started"
        if container.get("ready"):
            yield f"{container['name']} ready"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", default="default")
    namespace = parser.parse_args().namespace
    if not os.environ.get("KUBECONFIG"):
        print("skipped: apply -> first group needs KUBECONFIG and what the e2e tests need")
        return
    manifest = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": RUN, "namespace": namespace},
        "spec": {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": 3}},
    }
    remove(namespace)
    states = pod_states(namespace)
    begin = time.monotonic()
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    reached: dict[str, float] = {}
    for moment, pod in states:
        for name in milestones(pod):
            reached.setdefault(name, moment - begin)
        if "environment ready" in reached:
            break
    states.close()  # type: ignore[attr-defined]  # a generator
    previous = 0.0
    print(f"{'apply -> ...':<24}{'at s':>8}{'took s':>8}")
    for name, seconds in sorted(reached.items(), key=lambda item: item[1]):
        print(f"{name:<24}{seconds:>8.2f}{seconds - previous:>8.2f}")
        previous = seconds
    print(f"first group accepted: {reached['environment ready']:.1f} s (goal <= {GOAL_SECONDS} s)")
    remove(namespace)


if __name__ == "__main__":
    main()
