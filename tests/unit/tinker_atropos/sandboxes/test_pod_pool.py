"""Leases ahead, from servers as pods run them."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, eventually, shell
from tests.unit.tinker_atropos.sandboxes.pod_servers import OWNER, PodProcess

from tinker_atropos.sandboxes.pod_pool import PodSandbox, PodSandboxes, SandboxAddress, connected
from tinker_atropos.sandboxes.sandbox import SandboxLostError
from tinker_atropos.sandboxes.sandbox_server.lease_port import prepare

StartPod = Callable[..., PodProcess]


class Service:
    """Each connection leads to the next of these addresses, as a Service's leads to any. An error is raised instead."""

    def __init__(self, *pods: PodProcess) -> None:
        self.addresses: list[tuple[str, int]] = [pod.address for pod in pods]
        self.error: OSError | None = None
        self.asked = 0

    def __call__(self) -> socket.socket:
        self.asked += 1
        if self.error is not None:
            raise self.error
        if not self.addresses:
            raise ConnectionRefusedError("nobody is there")
        return connected(*self.addresses[self.asked % len(self.addresses)])


@pytest.fixture
def pod_pool_of() -> Iterator[Callable[..., PodSandboxes]]:
    pools: list[PodSandboxes] = []

    def making(service: Service, share: int, lease_seconds: float = SECONDS) -> PodSandboxes:
        names: dict[str, Any] = {"run_name": "sorting", "connect": service, "lease_seconds": lease_seconds}
        pools.append(PodSandboxes("sandboxes.of-the-run", 8090, OWNER, share, **names))
        return pools[-1]

    yield making
    for pool in pools:
        pool.close()


def ready(pool: PodSandboxes, count: int) -> None:
    eventually(f"{count} leased ahead", lambda: len(pool._waiting) == count)


def test_sandboxes_are_leased_ahead_up_to_the_share(pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]) -> None:
    pods = [pod() for _ in range(3)]
    pool = pod_pool_of(Service(*pods), 2)
    ready(pool, 2)
    sandbox = pool.lease()
    assert shell(sandbox, "echo on").output == "on\n"
    assert (len(pool._waiting), len(pool._held)) == (1, 2)
    held = {each.folder for each in pool._held}
    (left,) = [each for each in pods if str(each.folder) not in held]
    assert shell(left.leased(), "echo on").output == "on\n"


def test_one_that_is_killed_while_warm_is_replaced(pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]) -> None:
    """Once there is another one, which is not there at once."""
    first, service = pod(), Service()
    service.addresses = [first.address]
    pool = pod_pool_of(service, 1)
    ready(pool, 1)
    first.process.kill()
    ready(pool, 0)
    second = pod()
    service.addresses = [first.address, second.address]
    ready(pool, 1)
    assert shell(pool.lease(), "pwd").output == f"{second.folder}\n"


def test_one_that_is_closed_makes_room(pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]) -> None:
    first, second = pod(), pod()
    service = Service(first, second)
    pool = pod_pool_of(service, 1)
    sandboxes = []
    for _ in range(2):
        sandboxes.append(pool.lease())
        sandboxes[-1].close()
    assert {sandbox.folder for sandbox in sandboxes} == {str(first.folder), str(second.folder)}
    assert (first.exit_code(), second.exit_code()) == (0, 0)


def test_addresses_that_lead_nowhere_hold_nobody_up(pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]) -> None:
    """Closed ports, one where nobody answers, another run's, and one that is leased already."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = closed.getsockname()
    leased, stranger, good = pod(), pod(owner="uid-of-another"), pod()
    leased.leased()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = Service(leased, stranger)
        service.addresses += [refused, silent.getsockname(), good.address]
        pool = pod_pool_of(service, 2)
        assert pool.lease().folder == str(good.folder)
        eventually("said why", lambda: pool._last_error)


def test_a_lease_that_waits_for_too_long_says_what_to_look_at(
    pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]
) -> None:
    served, service = pod(), Service()
    service.addresses = [served.address]
    pool = pod_pool_of(service, 4, lease_seconds=0.1)
    ready(pool, 1)
    pool.lease()
    with pytest.raises(SandboxLostError) as lost:
        pool.lease()
    assert str(lost.value) == (
        "no sandbox was free for 0.1 s: this environment has 1 of at most 4 in use. spec.sandbox.size says how many "
        "there are; see: kubectl get pods -l rl-operator.dev/run=sorting,app.kubernetes.io/component=sandbox"
    )


def test_a_name_that_is_not_there_yet_is_looked_up_again(
    pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]
) -> None:
    service = Service(pod())
    service.error = socket.gaierror(-2, "Name or service not known")
    pool = pod_pool_of(service, 1, lease_seconds=0.01)
    eventually("a try", lambda: service.asked)
    with pytest.raises(SandboxLostError, match=r"the last fault: sandboxes\.of-the-run: .* not known"):
        pool.lease()
    service.error = None
    ready(pool, 1)


def test_one_that_is_no_longer_wanted_is_not_waited_for(pod_pool_of: Callable[..., PodSandboxes]) -> None:
    pool, is_wanted = pod_pool_of(Service(), 1), threading.Event()
    is_wanted.set()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.lease, is_wanted.is_set)
        is_wanted.clear()
        with pytest.raises(SandboxLostError, match="until the rollout was over"):
            waiting.result(SECONDS)


def test_closing_ends_all_leased_or_not(pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]) -> None:
    pods = [pod(), pod()]
    pool = pod_pool_of(Service(*pods), 3)
    ready(pool, 2)
    pool.lease(), pool.lease()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.lease)
        pool.close()
        with pytest.raises(SandboxLostError, match="the environment has ended"):
            waiting.result(SECONDS)
    assert [each.exit_code() for each in pods] == [0, 0]
    with pytest.raises(SandboxLostError, match="the environment has ended"):
        pool.lease()


def test_one_that_stands_still_is_given_up(
    pod: StartPod, pod_pool_of: Callable[..., PodSandboxes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts a connection, as far as the kernel is concerned, and answers nothing."""
    monkeypatch.setattr("tinker_atropos.sandboxes.pod_pool.LEASE_ANSWER_SECONDS", 0.1)
    still, good, service = pod(), pod(), Service()
    still.told(b"\n")
    still.process.send_signal(signal.SIGSTOP)
    service.addresses = [still.address]
    pool = pod_pool_of(service, 1)
    eventually("given up", lambda: "timed out" in pool._last_error)
    service.addresses = [still.address, good.address]
    assert pool.lease().folder == str(good.folder)
    still.process.send_signal(signal.SIGCONT)


def test_one_that_was_not_used_is_leased_again(pod: StartPod, pod_pool_of: Callable[..., PodSandboxes]) -> None:
    pool = pod_pool_of(Service(pod()), 1)
    sandbox = pool.lease()
    pool.give_back(sandbox)
    assert pool.lease() is sandbox
    sandbox.close()
    pool.give_back(sandbox)
    eventually("not among those that wait", lambda: not pool._waiting)


def test_its_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again after a failure, but not after one of a pod that does not listen yet."""
    asked = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: asked.append(1) or [(0, 0, 0, "", ("10.0.0.9", 80))])
    errors: list[OSError] = [ConnectionRefusedError(), TimeoutError(), ConnectionRefusedError()]

    def failing(*_: Any) -> socket.socket:
        raise errors.pop(0)

    monkeypatch.setattr("tinker_atropos.sandboxes.pod_pool.connected", failing)
    service = SandboxAddress("sandboxes.of-the-run", 80)
    for count in (1, 1, 2):
        with pytest.raises(OSError):  # noqa: PT011 -- whichever it is
            service.connected()
        assert len(asked) == count


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 400 Bad Request\r\n", b"[]\n", b"1\n", b'{"id": 1, "result": {}}\n', b"x" * 100_000, b"\xff\n"],
    ids=["nothing", "HTTP", "a list", "a number", "no lease", "too much", "no UTF-8"],
)
def test_another_program_is_no_sandbox(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(answer)
    theirs.shutdown(socket.SHUT_WR)
    with theirs, pytest.raises(SandboxLostError, match="it cannot be leased"):
        PodSandbox(ours, OWNER)
    assert ours.fileno() == -1


def test_the_connection_is_watched() -> None:
    """By the kernel: tests cannot lose a node."""
    with socket.create_server(("127.0.0.1", 0)) as server, connected(*server.getsockname()) as stream:
        prepare(stream)
        options = ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        asked = [stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in options]
        assert asked == [1, 10, 5, 3, 30_000]
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert stream.gettimeout() is None


def test_its_end_is_told_once(pod: Callable[..., PodProcess]) -> None:
    served, ends = pod(), []
    sandbox = PodSandbox(connected(*served.address), OWNER, lambda _: ends.append(threading.current_thread().name))
    assert shell(sandbox, "echo on").output == "on\n"
    served.process.kill()
    eventually("lost", lambda: ends)
    assert sandbox.is_lost
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxLostError, match="the sandbox is gone"):
        shell(sandbox, "true", SECONDS)
    assert len(ends) == 1
