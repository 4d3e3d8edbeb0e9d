"""Rollouts are read through the API server's proxy, with the reader's rights, from a pod's server that really answers.

The API server connects to a pod's address itself; it refuses loopback, so the server listens at the machine's own.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.control_plane import ADMIN_TOKEN, GUEST, GUEST_TOKEN, RIGHTS, ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime
from tests.ports import free_port

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.documents.parse import parse_run
from rl_operator.operator_errors import ForbiddenError, GoneError, RefusedError
from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing
from rl_operator.targets.cluster_rollouts import PodRollouts
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.target_loop import LoopThread

NAME, CONTENT = "000001-1.jsonl.zst", bytes(range(256)) * 1000
FILES = (RolloutFile(NAME, len(CONTENT)),)


@pytest.fixture(scope="module")
def machine_address() -> str:
    """Of this machine; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("needs an address besides loopback: the API server connects to no pod there")
        found: str = probe.getsockname()[0]
        return found


class PodServer:
    """`tinker-atropos rollouts`, where the pods are that the tests make up."""

    def __init__(self, folder: Path, address: str) -> None:
        self.port = free_port()
        self.address = address
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, container: dict[str, Any]) -> None:
        """As that container: with its token."""
        self.stop()
        [token] = [each["value"] for each in container["env"] if each["name"] == "RL_OPS_TOKEN"]
        env_vars = {"RL_ROLLOUTS_DIR": str(self._folder), "RL_OPS_HOST": self.address, "RL_OPS_PORT": str(self.port)}
        program = Path(sys.executable).with_name("tinker-atropos")
        self._process = subprocess.Popen([program, "rollouts"], env=env_vars | {"RL_OPS_TOKEN": token})
        wait_for("the server listens", lambda: _listens(self.address, self.port))

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            assert self._process.wait(60) == 0


@pytest.fixture
def pod_server(process: None, tmp_path: Path, machine_address: str) -> Iterator[PodServer]:
    (tmp_path / NAME).write_bytes(CONTENT)
    server = PodServer(tmp_path, machine_address)
    yield server
    server.stop()


def _listens(address: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, port)) == 0


Reader = Callable[[], PodRollouts]


@pytest.fixture
def reading(
    control_plane: ControlPlane, runs: RunsNamespace, pod_server: PodServer
) -> Iterator[Callable[[str], Reader]]:
    """How the user of a token opens the rollouts of run `sorting`."""
    loop, clients = LoopThread(), list[ClusterClient]()

    def as_user(token: str) -> Reader:
        client = loop.wait(ClusterClient.connect(str(control_plane.kubeconfig(token))))
        clients.append(client)
        target = ClusterTarget(loop, client, label="", flags="", namespace=runs.namespace, note=print)

        run = parse_run(runs.find() or {})

        def read() -> PodRollouts:
            source = target.rollouts(run)
            assert isinstance(source, PodRollouts)
            return replace(source, port=pod_server.port)

        return read

    yield as_user
    for client in clients:
        loop.wait(client.__aexit__())
    loop.close()


@pytest.fixture
def start_serving_run(runs: RunsNamespace, machine_address: str, pod_server: PodServer) -> Callable[..., str]:
    """Starts a run, whose trainer serves at the machine's address; gives its pod."""

    def call(**runtime: Any) -> str:
        name = f"rollouts-{runs.namespace}"
        install_runtime(runs.admin, "tiny", name, **runtime)
        runs.apply(runtime=name)
        pod = runs.until_pod()
        [trainer] = [each for each in (runs.kubelet.pod(pod) or {})["spec"]["containers"] if each["name"] == "trainer"]
        pod_server.start(trainer)
        runs.kubelet.start(pod)
        runs.kubelet.work(pod, machine_address)
        return pod

    return call


def end(runs: RunsNamespace, pod: str) -> None:
    message = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, message))
    runs.until_phase("Succeeded")


def test_a_trainer_is_read_while_it_runs(
    runs: RunsNamespace, reading: Callable[[str], Reader], start_serving_run: Callable[..., str]
) -> None:
    pod, read = start_serving_run(), reading(ADMIN_TOKEN)
    source = read()
    assert source.where == f"pod {pod}"
    assert source.listing() == RolloutListing(FILES)
    assert source.content(NAME) == CONTENT
    with pytest.raises(ForbiddenError, match="X-RL-Ops-Token"):
        replace(source, ops_token="guessed").listing()
    with pytest.raises(GoneError, match="there is no rollout file"):
        source.content("000002-1.jsonl.zst")
    end(runs, pod)
    with pytest.raises(RefusedError, match="went with its trainer"):
        read()


@pytest.fixture
def guest_may(control_plane: ControlPlane, runs: RunsNamespace) -> Iterator[Callable[..., None]]:
    """Gives the guest rights in the namespace: rules as (group, resource, verb)."""
    admin, name, number = control_plane.admin, f"rollouts-{runs.namespace}", iter(range(9))
    made: list[str] = []

    def give(*rules: tuple[str, str, str]) -> None:
        role = f"{name}-{next(number)}"
        wire = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]} for group, resource, verb in rules]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": GUEST}]
        paths = [RIGHTS[kind].format(namespace=runs.namespace) for kind in ("Role", "RoleBinding")]
        admin.post(paths[0], {"metadata": {"name": role}, "rules": wire})
        admin.post(paths[1], {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects})
        made.extend(f"{path}/{role}" for path in paths)

    yield give
    for path in made:
        admin.delete(path)


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(ForbiddenError) as caught:
        call()
    return str(caught.value)


def until_allowed(call: Callable[[], Any]) -> Any:
    """The API server learns of rights with a delay."""

    def look() -> tuple[Any] | None:
        try:
            return (call(),)
        except ForbiddenError:
            return None

    return wait_for("the guest may", look)[0]


def test_a_reader_needs_the_right_to_ask_pods(
    runs: RunsNamespace,
    reading: Callable[[str], Reader],
    start_serving_run: Callable[..., str],
    guest_may: Callable[..., None],
) -> None:
    start_serving_run()
    guest_may(("", "pods", "list"))
    source = until_allowed(reading(GUEST_TOKEN))
    with pytest.raises(ForbiddenError, match=f"the right to get pods/proxy in namespace {runs.namespace}"):
        source.listing()
    guest_may(("", "pods/proxy", "get"))
    assert until_allowed(source.listing) == RolloutListing(FILES)


def test_what_was_kept_is_read_with_a_job_of_the_readers(
    runs: RunsNamespace,
    reading: Callable[[str], Reader],
    start_serving_run: Callable[..., str],
    guest_may: Callable[..., None],
    pod_server: PodServer,
) -> None:
    """The API server takes the Job, and its pod where the pod security standard `restricted` is enforced."""
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}", enforced)
    end(runs, start_serving_run(rollouts={"persistentVolumeClaim": {"claimName": "rollouts"}}))
    guest_may(("", "pods", "list"), ("", "pods/proxy", "get"), ("", "configmaps", "get"))
    read = reading(GUEST_TOKEN)
    wait_for("the guest may not create Jobs", lambda: f"create Jobs in namespace {runs.namespace}" in refusal(read))
    guest_may(("batch", "jobs", "create"))
    with ThreadPoolExecutor(1) as readers:
        opening = readers.submit(lambda: until_allowed(read))
        play_job(runs, pod_server, opening)
        source = opening.result(60)
    assert source.listing() == RolloutListing(FILES)
    assert source.content(NAME) == CONTENT
    assert read().pod == source.pod, "it reads for others, too"


def play_job(runs: RunsNamespace, server: PodServer, opening: "Future[PodRollouts]") -> None:
    """What the Job controller and a kubelet would do."""
    jobs = f"/apis/batch/v1/namespaces/{runs.namespace}/jobs"

    def created() -> dict[str, Any] | None:
        if opening.done():
            opening.result()
        return next(iter(runs.admin.items(jobs)), None)

    job = wait_for("the Job is created", created)
    template = job["spec"]["template"]
    server.start(template["spec"]["containers"][0])
    metadata = {"name": f"{job['metadata']['name']}-x", "labels": template["metadata"]["labels"]}
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/pods", {"metadata": metadata, "spec": template["spec"]})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": server.address, "podIPs": [{"ip": server.address}], "conditions": [ready]}
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}/pods/{metadata['name']}/status", {"status": status})
