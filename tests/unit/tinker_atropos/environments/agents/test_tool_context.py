"""What graders and agents do in a real sandbox: answers, refusals, and files in and out."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path

import pytest

from tinker_atropos.environments.agents import toolbox
from tinker_atropos.environments.agents.tool_context import Bridged, ToolContext, run_blocking
from tinker_atropos.environments.agents.toolbox import Toolbox
from tinker_atropos.sandboxes.local_pool import LocalSandboxes
from tinker_atropos.sandboxes.sandbox import SandboxLimits


@pytest.fixture(scope="module")
def box() -> Iterator[Toolbox]:
    box = Toolbox(lambda: LocalSandboxes(SandboxLimits(), warm=1), seconds=60, threads=2)
    toolbox.install(box)
    yield box
    box.close()
    toolbox.install(None)


@pytest.fixture(scope="module")
def ctx(box: Toolbox) -> ToolContext:
    return ToolContext("a rollout")


def tool(ctx: ToolContext, name: str, **arguments: object) -> dict:
    return json.loads(ctx.call_tool(name, arguments))


@pytest.mark.process
def test_commands(ctx: ToolContext) -> None:
    assert ctx.terminal("echo out; echo err >&2; exit 3") == {"output": "out\nerr\n", "exit_code": 3, "error": None}
    slow = ctx.terminal("echo begun; sleep 1000", timeout=0.5)
    assert (slow["exit_code"], slow["output"]) == (124, "begun\n")
    assert slow["error"] == "the command was ended after 0.5 s"


@pytest.mark.process
def test_files(ctx: ToolContext) -> None:
    assert ctx.write_file("a/b.txt", "one\ntwo\nthree\n")["success"]
    assert ctx.read_file("a/b.txt") == {"content": "one\ntwo\nthree\n", "total_lines": 3}
    assert tool(ctx, "read_file", path="a/b.txt", offset=2, limit=1)["content"] == "two\n"
    assert "error" in ctx.read_file("nothing.txt")
    assert "error" in ctx.write_file("/etc/hostname", "x")


@pytest.mark.process
def test_patches(ctx: ToolContext) -> None:
    ctx.write_file("p.txt", "x = 1\ny = 1\n")
    many = tool(ctx, "patch", path="p.txt", old_string="= 1", new_string="= 2")
    assert many["error"].startswith("old_string is 2 times in p.txt")
    none = tool(ctx, "patch", path="p.txt", old_string="z", new_string="= 2")
    assert none["error"].startswith("old_string is not in p.txt")
    assert tool(ctx, "patch", path="p.txt", old_string="x = 1", new_string="x = 2") == {"success": True, "replaced": 1}
    all_of_them = {"old_string": " = ", "new_string": "=", "replace_all": True}
    assert tool(ctx, "patch", path="p.txt", **all_of_them)["replaced"] == 2
    assert ctx.read_file("p.txt")["content"] == "x=2\ny=1\n"


@pytest.mark.process
def test_searches(ctx: ToolContext) -> None:
    ctx.write_file("s/found.py", "import os\nprint(os.sep)\n")
    assert ctx.search(r"os\.sep", "s") == {"matches": [{"path": "s/found.py", "line": 2, "content": "print(os.sep)"}]}
    assert tool(ctx, "search_files", pattern="*.py", target="files", path="s") == {"files": ["s/found.py"]}
    assert "not a regular expression" in ctx.search("(")["error"]


@pytest.mark.process
def test_files_in_and_out(ctx: ToolContext, tmp_path: Path) -> None:
    content = bytes(range(256))
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "data.bin").write_bytes(content)
    assert ctx.upload_dir(str(tmp_path / "in"), "up") == [{"exit_code": 0, "output": ""}]
    assert ctx.download_file("up/deep/data.bin", str(tmp_path / "out" / "data.bin")) == {"success": True, "bytes": 256}
    assert (tmp_path / "out" / "data.bin").read_bytes() == content
    assert ctx.upload_file(str(tmp_path / "none"), "x")["exit_code"] == -1
    assert not ctx.download_file("none", str(tmp_path / "x"))["success"]
    assert ctx.upload_dir(str(tmp_path / "none"), "x")[0]["exit_code"] == -1


@pytest.mark.process
def test_each_rollout_has_its_own_and_it_is_empty_after_cleanup(box: Toolbox) -> None:
    first, second = ToolContext("first"), ToolContext("second")
    first.write_file("mine", "x")
    assert "error" in second.read_file("mine")
    first.cleanup()
    first.cleanup()
    assert "first" not in box._leases
    assert "error" in first.read_file("mine")


SECONDS = 60
who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def four_threads():
    with ThreadPoolExecutor(4) as threads:
        yield threads


async def test_others_go_on_during_a_synchronous_call(four_threads):
    """Two graders wait for each other: neither would ever end if one held up the event loop."""
    meeting = threading.Barrier(2, timeout=SECONDS)

    async def grade(name: str) -> str:
        await asyncio.sleep(0)
        run_blocking(four_threads, meeting.wait)
        await asyncio.sleep(0)
        return name

    assert await asyncio.gather(Bridged(grade("a")), Bridged(grade("b"))) == ["a", "b"]


async def test_what_it_raises_and_returns(four_threads):
    def fail() -> None:
        raise KeyError("no")

    async def grade() -> str:
        try:
            run_blocking(four_threads, fail)
        except KeyError as error:
            return f"told {error}"
        return "nothing"

    assert await Bridged(grade()) == "told 'no'"

    async def fails() -> None:
        run_blocking(four_threads, fail)

    with pytest.raises(KeyError):
        await Bridged(fails())


async def test_its_context_is_the_callers(four_threads):
    async def grade() -> tuple[str, str]:
        before = who.get()
        run_blocking(four_threads, lambda: None)
        who.set("grader")
        return before, who.get()

    who.set("caller")
    assert await Bridged(grade()) == ("caller", "grader")
    assert who.get() == "grader"


async def test_a_cancellation_reaches_the_coroutine(four_threads):
    begun, release, ends = asyncio.Event(), threading.Event(), []

    async def grade() -> None:
        begun.set()
        try:
            run_blocking(four_threads, release.wait, SECONDS)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    task = asyncio.ensure_future(_awaited(Bridged(grade())))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert ends == ["cancelled"]


async def _awaited(bridged: Bridged[None]) -> None:
    await bridged


def test_without_a_bridge_it_is_a_plain_call(four_threads):
    assert run_blocking(four_threads, threading.get_ident) == threading.get_ident()
