"""The pages that the gateway serves at /ui, and whose request it is."""

import hashlib
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from starlette.types import Receive, Scope, Send

from rl_operator.targets.target import Target
from rl_operator.tools.serving.page.page_login import ROOT, SentToken
from rl_operator.tools.serving.sessions import Sessions
from rl_operator.ui.live_runs import LiveRuns, Polls
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import UiContext, make_templates
from rl_operator.ui.visitor import VisibleVersions, Visitor


class Pages:
    """The application: the visitor comes with the request's scope. `pinned`: only the context's namespace is shown."""

    def __init__(self, sessions: Sessions, *, pinned: bool, may_change: bool) -> None:
        self.may_change = may_change
        self.context = UiContext(lambda request: request.scope["visitor"], make_templates(), ROOT)
        self._sessions = sessions
        self._pinned = pinned
        self._polls = Polls()
        self._live: weakref.WeakValueDictionary[tuple[str, str | None], LiveRuns] = weakref.WeakValueDictionary()
        self._app = ui_app(self.context)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As a mounted application sees it."""
        path = scope["path"] if scope["path"] != ROOT else f"{ROOT}/"
        await self._app({**scope, "root_path": ROOT, "path": path}, receive, send)

    @contextmanager
    def visited_by(self, sent: SentToken) -> Iterator[Visitor]:
        """Their target is open inside the block. Raises UnauthenticatedError, TargetUnreachableError."""
        with self._sessions.context(sent.token) as context:
            namespace = context.namespace if self._pinned else None
            live_of = partial(self._live_of, sent.token)
            yield Visitor(
                context.target, live_of, namespace, self.may_change, context.target.caller, can_log_out=sent.by_cookie
            )

    def _live_of(self, token: str, namespace: str | None) -> LiveRuns:
        """Tabs of one caller share a poll. Each asks for their target again, so that it ends with their token."""
        key = key_of(token), namespace
        live = self._live.get(key) or LiveRuns(
            VisibleVersions(partial(self._opened, token), namespace), polls=self._polls
        )
        self._live[key] = live
        return live

    @contextmanager
    def _opened(self, token: str) -> Iterator[Target]:
        with self._sessions.context(token) as context:
            yield context.target


def key_of(token: str) -> str:
    """Tokens themselves are kept only where they are used."""
    return hashlib.sha256(token.encode()).hexdigest()
