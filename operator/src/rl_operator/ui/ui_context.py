"""What every page needs: which user a request comes from and which runs that user sees, and the templates."""

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from sys import intern
from typing import Final, Protocol, TypeVar
from urllib.parse import urlencode

import anyio
import anyio.to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from rl_operator import __version__
from rl_operator.operator_errors import ForbiddenError
from rl_operator.targets.runs.run_text import flags_for
from rl_operator.targets.target import Target
from rl_operator.ui.live_runs import LiveRuns, OpenStreams, Versions
from rl_operator.ui.preparations import Preparations
from rl_operator.ui.run_curves import CurveCache
from rl_operator.ui.run_rows import RowCache, spark_points

Answer_co = TypeVar("Answer_co", covariant=True)
Answer = TypeVar("Answer")

_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([a-z0-9-]+):.*")


class OfNamespace(Protocol[Answer_co]):
    """A question about the runs of a namespace; None: of all."""

    def __call__(self, namespace: str | None, /) -> Answer_co: ...


@dataclass(frozen=True)
class Visitor:
    """What is read and done, is read and done with the rights of `target`.

    `live_of` follows the runs of a namespace (None: all that are visible). `namespace`: no other one is shown; None:
    all. `caller`: as the target knows them, where there are several. `can_log_out`: they logged in here.
    `variables`: of their own environment, with which their backend is asked; None: this server is not theirs alone.
    """

    target: Target
    live_of: Callable[[str | None], LiveRuns]
    namespace: str | None = None
    may_change: bool = True
    caller: str = ""
    can_log_out: bool = False
    variables: Mapping[str, str] | None = None

    def visible(self, ask: OfNamespace[Answer], namespace: str | None) -> tuple[Answer, str]:
        """As `of_visible`, for what is shown. Raises OperatorErrors."""
        return of_visible(ask, self._shown(namespace), self.target)

    def live(self, namespace: str | None) -> LiveRuns:
        return self.live_of(self._shown(namespace))

    def check_namespace(self, namespace: str) -> None:
        """Raises ForbiddenError for one that is not shown."""
        if self.namespace not in (None, namespace):
            raise ForbiddenError(f"this page shows the namespace {self.namespace} alone, not {namespace[:100]}")

    def _shown(self, namespace: str | None) -> str | None:
        if namespace:
            self.check_namespace(namespace)
        return namespace or self.namespace


def of_visible(ask: OfNamespace[Answer], namespace: str | None, target: Target) -> tuple[Answer, str]:
    """The answer for a namespace; None: for all or, for callers who may not list those, for the target's usual one or
    else that of their service account, which is then named. Blocks.
    """
    try:
        return ask(namespace), ""
    except ForbiddenError:
        if namespace is not None:
            raise
    try:
        return ask(target.namespace), target.namespace
    except ForbiddenError:
        own = _SERVICE_ACCOUNT.fullmatch(target.caller)
        if own is None:
            raise
        return ask(own[1]), own[1]


class VisibleVersions:
    """What LiveRuns polls: of a namespace, or of all that are visible. `opened` yields the target for one poll.

    Many callers see the same runs: the names and versions of a thousand take 0.3 MiB, and are in memory once.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Target]], namespace: str | None) -> None:
        self._opened = opened
        self._namespace = namespace

    def __call__(self) -> Versions:
        with self._opened() as target:
            found, only = of_visible(target.run_versions, self._namespace, target)
            found = {(intern(place), intern(name)): intern(version) for (place, name), version in found.items()}
        self._namespace = self._namespace or only or None  # not refused again each second
        return found


HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
STATIC_PATH: Final = "/static/"
SAFE_METHODS: Final = ("GET", "HEAD")
SPARK_WIDTH, SPARK_HEIGHT = 80, 20
MOST_READERS: Final = 2
"""One page is made while the next step is fetched."""


@dataclass(frozen=True)
class UiContext:
    """`visitor_of` says whose request it is. `root` is the path below which the page is served: empty, or `/ui`."""

    visitor_of: Callable[[Request], Visitor]
    templates: Environment
    root: str = ""
    curves: CurveCache = field(default_factory=CurveCache)
    rows: RowCache = field(default_factory=RowCache)
    streams: OpenStreams = field(default_factory=OpenStreams)
    preparations: Preparations = field(default_factory=Preparations)
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_READERS, "rollouts"))
    """Of steps with rollouts: each holds its files until its page is made. Threads of their own, because what a thread
    has freed is used again by that thread only.
    """

    page_maker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "rollouts"))
    """One thread: making their pages is computing, so that several take as long, with 15 MiB each, and 100 MiB of a
    step of 2 million tokens.
    """

    downloads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MOST_READERS))
    """Each holds a step's files for as long as its receiver takes."""

    def page(self, request: Request, template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
        """A whole page, or a part of one for a script: that is the template's choice."""
        visitor = self.visitor_of(request)
        target, namespace = visitor.target, _namespace(request)
        own = {
            "label": target.label,
            "flags": flags_for(target, namespace) if namespace else target.flags,
            "may_change": visitor.may_change,
            "caller": visitor.caller,
            "can_log_out": visitor.can_log_out,
            # what a page's changes are about: one namespace, if its address names one
            "live": f"{self.root}/live" + (f"?{urlencode({'namespace': namespace})}" if namespace else ""),
        }
        return self._rendered(template, {**own, **values}, status)

    def page_of_nobody(self, template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
        """Before it is known whose request it is."""
        nobody = {"label": "", "flags": "", "may_change": False, "caller": "", "can_log_out": False, "live": ""}
        return self._rendered(template, {**nobody, **values}, status)

    def notice(self, sentence: str, status: int) -> HTMLResponse:
        return self.page_of_nobody("error.html", {"title": "Not shown", "sentence": sentence}, status)

    def _rendered(self, template: str, values: Mapping[str, object], status: int) -> HTMLResponse:
        shared = {"root": self.root, "version": __version__, "choose_namespace": False, "of_run": {}}
        return HTMLResponse(self.templates.get_template(template).render({**shared, **values}), status)


def make_templates() -> Environment:
    """Everything that goes into a page is escaped; a name that is not given is an error."""
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["spark"] = partial(spark_points, width=SPARK_WIDTH, height=SPARK_HEIGHT)
    return templates


def context_of(request: Request) -> UiContext:
    context: UiContext = request.app.state.ui
    return context


def visitor_of(request: Request) -> Visitor:
    """Raises ForbiddenError if the address names a namespace that is not shown."""
    visitor = context_of(request).visitor_of(request)
    for namespace in _namespaces(request):
        visitor.check_namespace(namespace)
    return visitor


def run_key(request: Request) -> tuple[str, str]:
    """Namespace and name in the path of a run's page."""
    return request.path_params["namespace"], request.path_params["name"]


def _namespace(request: Request) -> str:
    """The namespace that the page is about; empty: about all."""
    return request.path_params.get("namespace") or request.query_params.get("namespace", "")


def _namespaces(request: Request) -> Iterator[str]:
    """In the path, and in the query as `namespace=NAMESPACE` and `run=NAMESPACE/NAME`."""
    query = request.query_params
    runs = (run.partition("/") for run in query.getlist("run"))
    for each in (request.path_params.get("namespace"), *query.getlist("namespace"), *(a for a, cut, _ in runs if cut)):
        if each:
            yield each


async def asked(call: Callable[..., Answer], *arguments: object, **named: object) -> Answer:
    """A target's answer: its calls block, so they are made in a thread."""
    return await anyio.to_thread.run_sync(partial(call, *arguments, **named))
