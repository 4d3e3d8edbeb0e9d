"""Tabs of a real browser, and everything that a page may not do in one."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
HOW_TO_GET = "needs chromium on PATH: apt-get install chromium"
ARGUMENTS = ("--disable-gpu", "--disable-quic", "--disable-sync", "--no-sandbox")

WAIT_MILLISECONDS = 90_000
"""Ends a hang only."""

DESKTOP, PHONE = 1280, 390
"""Widths in pixels."""

INSIDE = ("data:", "blob:")
LEFT = "net::ERR_ABORTED"
"""What becomes of a request when its page is left, and of a navigation that becomes a download."""


def browser_program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@dataclass
class WatchedTabs:
    """Contexts of one browser, each with cookies of its own. `faults`: what no page may do, in order."""

    browser: Browser
    faults: list[str] = field(default_factory=list)
    streams: list[Request] = field(default_factory=list)
    """Requests of EventSources."""
    contexts: list[BrowserContext] = field(default_factory=list)

    def context(self, origin: str, *, dark: bool = False, width: int = DESKTOP, **options: Any) -> BrowserContext:
        """For pages of one origin, `http://HOST:PORT`; options are Playwright's."""
        context = self.browser.new_context(
            color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}, **options
        )
        context.set_default_timeout(WAIT_MILLISECONDS)
        context.on("request", lambda request: self._sent(request, origin))
        context.on("requestfailed", self._failed)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.faults.append(f"a script raised {error.error}"))
        context.on("dialog", self._asked)
        self.contexts.append(context)
        return context

    def close(self) -> None:
        """Leave all pages."""
        while self.contexts:
            self.contexts.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def streams_of(self, page: Page) -> int:
        """EventSources that its documents have opened."""
        return sum(request.frame.page == page for request in self.streams)

    def take_faults(self) -> list[str]:
        """What the page did until now, where a test wants it."""
        found, self.faults = self.faults, []
        return found

    def _sent(self, request: Request, origin: str) -> None:
        if not request.url.startswith((f"{origin}/", *INSIDE)):
            self.faults.append(f"a request left the page's origin {origin}: {request.url}")
        if request.resource_type == "eventsource":
            self.streams.append(request)

    def _failed(self, request: Request) -> None:
        if request.failure != LEFT:
            self.faults.append(f"{request.method} {request.url} failed: {request.failure}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"the console says: {message.text} ({message.location.get('url')})")

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"a dialog opened: {dialog.message}")
        dialog.dismiss()


def violations(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """What axe-core finds, by all its rules or by some; a line for each element. The context needs `bypass_csp`."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("(options) => axe.run(document, options).then((results) => results.violations)", options)
    return [f"{each['id']} ({each['help']}): {node['html'][:200]}" for each in found for node in each["nodes"]]


def overflow(page: Page) -> int:
    """Pixels by which the page is wider than its window: it scrolls sideways."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider


def injected(page: Page) -> list[str]:
    """Elements that none of our templates has: text of a rollout that became markup."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((each) =>
            each.matches("script:not([src]), img, iframe, object, embed, video, style, base")
            || [...each.attributes].some(({ name }) => name.startsWith("on"))
        ).map((each) => each.outerHTML.slice(0, 200))"""
    )
    return found


@dataclass(frozen=True)
class Look:
    scheme: Literal["light", "dark"]
    width: int
    rules: Sequence[str] = ()
    """All of them, unless these."""


OF_COLORS = ("color-contrast", "link-in-text-block")
"""The rules that may find in the dark what they did not find in the light."""
LOOKS = (Look("light", DESKTOP), Look("light", PHONE), Look("dark", DESKTOP, OF_COLORS), Look("dark", PHONE, OF_COLORS))

in_looks = pytest.mark.parametrize(
    "looks",
    [
        pytest.param(LOOKS[:1], id="light"),
        pytest.param(LOOKS[1:], id="all others", marks=pytest.mark.nightly("operator/src/rl_operator/ui")),
    ],
)


def everyone_can_use(page: Page, looks: Sequence[Look]) -> None:
    """axe-core finds nothing, and a phone does not scroll sideways."""
    for look in looks:
        page.emulate_media(color_scheme=look.scheme)
        page.set_viewport_size({"width": look.width, "height": 900})
        found = violations(page, look.rules)
        assert not found, f"{page.url}, {look}: {found}"
    page.set_viewport_size({"width": PHONE, "height": 900})
    assert overflow(page) == 0, page.url
