"""What a grader can do in a rollout's sandbox. Names and answers are those of hermes-agent's `ToolContext`.

`ToolContext.terminal()` is synchronous by its definition, and is called in `async def compute_reward`. Ten seconds of
pytest there would stop all other rollouts for ten seconds. So such a coroutine is driven in a greenlet: a synchronous
call in it hands its future to the event loop, as `await` would. It is how SQLAlchemy serves synchronous code.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

import greenlet

from tinker_atropos.environments.agents import sandbox_tools
from tinker_atropos.environments.agents.sandbox_tools import MAX_FILE_BYTES, SANDBOX_TOOLS
from tinker_atropos.environments.agents.tool import Json
from tinker_atropos.environments.agents.toolbox import installed
from tinker_atropos.sandboxes.sandbox import Sandbox, SandboxError

P = ParamSpec("P")
T = TypeVar("T")
GRADER_SECONDS: Final = 180
MOST_BYTES: Final = 64 * MAX_FILE_BYTES
"""Of a file that is downloaded."""


class Bridged(Generic[T]):
    """Await it in place of the coroutine, and `run_blocking` below it waits without blocking."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        driver = _Driver(_drive)
        step = driver.switch(self._coroutine)
        while not driver.dead:
            try:
                value = yield step
            except BaseException as error:  # noqa: BLE001 -- such as a cancellation: it is the coroutine's
                step = driver.throw(error)
            else:
                step = driver.switch(value)
        return step  # type: ignore[no-any-return]  # a dead driver's last value is the coroutine's result


class _Driver(greenlet.greenlet):
    """A greenlet in the context of the one that made it."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__(run)
        self.gr_context = greenlet.getcurrent().gr_context


def _drive(awaitable: Any) -> Any:
    """The awaitable's result; what it yields goes to the event loop, by way of the parent."""
    steps = awaitable.__await__()
    resume, argument = steps.send, None
    while True:
        try:
            step = resume(argument)
        except StopIteration as stop:
            return stop.value
        parent = greenlet.getcurrent().parent
        assert parent is not None, "a driver has a parent"
        try:
            resume, argument = steps.send, parent.switch(step)
        except BaseException as error:  # noqa: BLE001 -- as above
            resume, argument = steps.throw, error


def run_blocking(executor: Executor, function: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks: in a thread, while the event loop goes on, if a `Bridged` is above; else here."""
    if not isinstance(greenlet.getcurrent(), _Driver):
        return function(*args)
    future = asyncio.get_running_loop().run_in_executor(executor, function, *args)
    result: T = _drive(future)
    return result


class ToolContext:
    """The tools of the rollout `task_id`. Synchronous; under `compute_reward` and `evaluate` it does not block other
    rollouts.
    """

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id

    def terminal(self, command: str, timeout: float = GRADER_SECONDS) -> Json:
        """`exit_code` (124: it took too long), `output`, and `error`, which is None if it ended by itself."""
        return self._in_sandbox(sandbox_tools.terminal, command, timeout)

    def read_file(self, path: str) -> Json:
        """`content`, or `error`."""
        return self._in_sandbox(sandbox_tools.read_file, path)

    def write_file(self, path: str, content: str) -> Json:
        """`success`, or `error`."""
        return self._in_sandbox(sandbox_tools.write_file, path, content)

    def search(self, query: str, path: str = ".") -> Json:
        """`matches`, or `error`. The query is a regular expression."""
        return self._in_sandbox(sandbox_tools.search_files, query, path)

    def upload_file(self, local_path: str, remote_path: str) -> Json:
        """`exit_code` 0, or -1 and why in `output`. Any content."""
        try:
            content = Path(local_path).read_bytes()
            self._in_sandbox(lambda sandbox: sandbox.write_file(remote_path, content))
        except (OSError, SandboxError) as error:
            return {"exit_code": -1, "output": str(error)}
        return {"exit_code": 0, "output": ""}

    def upload_dir(self, local_dir: str, remote_dir: str) -> list[Json]:
        """A result for each file."""
        root = Path(local_dir)
        if not root.is_dir():
            return [{"exit_code": -1, "output": f"{local_dir} is not a folder"}]
        files = sorted(each for each in root.rglob("*") if each.is_file())
        return [self.upload_file(str(file), f"{remote_dir}/{file.relative_to(root)}") for file in files]

    def download_file(self, remote_path: str, local_path: str) -> Json:
        """`success` and `bytes`, or `success` False and `error`."""
        try:
            content = self._in_sandbox(lambda sandbox: sandbox.read_file(remote_path, MOST_BYTES))
            Path(local_path).parent.mkdir(parents=True, exist_ok=True)
            Path(local_path).write_bytes(content)
        except (OSError, SandboxError) as error:
            return {"success": False, "error": str(error)}
        return {"success": True, "bytes": len(content)}

    def call_tool(self, tool_name: str, arguments: Mapping[str, Any]) -> str:
        """JSON, as an agent would see it. Raises KeyError for a tool that is not one of a sandbox."""
        function = {tool.name: tool.function for tool in SANDBOX_TOOLS}[tool_name]
        return json.dumps(self._in_sandbox(lambda sandbox: function(sandbox, **arguments)))

    def cleanup(self) -> None:
        """End the sandbox. The environment does so, too; more than once is fine."""
        run_blocking(self._executor, installed().release, self.task_id)

    @property
    def _executor(self) -> ThreadPoolExecutor:
        return installed().executor

    def _in_sandbox(self, function: Callable[Concatenate[Sandbox, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        toolbox = installed()
        return run_blocking(self._executor, lambda: function(toolbox.sandbox(self.task_id), *args, **kwargs))
