"""The gateway's page in a real browser, in front of a real API server: two people of different rights."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect
from tests.integration.browser.watched_tabs import Look, WatchedTabs, everyone_can_use, in_looks
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.tools.page_server import CHANGES, VIEWS, bound_token, made_team, page_server

pytestmark = pytest.mark.apiserver

REFUSED = r"the console says: Failed to load resource: the server responded with a status of (401|403) .*"
"""Chromium's word for an answer that a test wants."""

NOTICED_MILLISECONDS = 90_000
"""The API server remembers for 10 s that a token was right."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class PageOfCluster:
    """`changes` and `views` are namespaces with a suspended run `of-NAMESPACE`, and one person each who may do that."""

    address: str
    plane: ControlPlane
    tokens: dict[str, str]
    changes: str = "browser-changes"
    views: str = "browser-views"

    def log_in(self, tabs: WatchedTabs, token: str, path: str = "/ui", **options: bool) -> Page:
        page = tabs.context(self.address, **options).new_page()
        page.goto(f"{self.address}{path}")
        page.get_by_label("Kubernetes token").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url: "/login" not in url)
        return page

    def run_path(self, namespace: str) -> str:
        return f"/ui/runs/{namespace}/of-{namespace}"


@pytest.fixture(scope="module")
def cluster_page(
    control_plane: ControlPlane, operator_process: OperatorProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageOfCluster]:
    with page_server(control_plane, tmp_path_factory.mktemp("page"), "default") as address:
        found = PageOfCluster(address, control_plane, {})
        for namespace, verbs in ((found.changes, CHANGES), (found.views, VIEWS)):
            found.tokens[namespace] = made_team(control_plane.admin, namespace, verbs)
        yield found


def refusals(tabs: WatchedTabs) -> int:
    """Answers of 401 and 403, which are all that went wrong until now."""
    found = tabs.take_faults()
    assert all(re.fullmatch(REFUSED, each) for each in found), found
    return len(found)


def test_logging_in_by_keyboard(cluster_page: PageOfCluster, tabs: WatchedTabs) -> None:
    context = tabs.context(cluster_page.address)
    page = context.new_page()
    page.goto(f"{cluster_page.address}/ui/runs?phase=Stopped")
    for word in ("Skip to content", "RL runs"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text(word)
    page.keyboard.press("Tab")
    page.keyboard.type("wrong-token-of-a-stranger")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not know the token")
    assert (refusals(tabs), context.cookies()) == (1, [])

    token = page.get_by_label("Kubernetes token")
    assert token.get_attribute("type") == "password"
    token.focus()
    page.keyboard.type(cluster_page.tokens[cluster_page.changes])
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Log in")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/runs?phase=Stopped")
    [cookie] = context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (True, "Strict", "/ui")
    assert page.evaluate("document.cookie") == ""
    assert cluster_page.tokens[cluster_page.changes] not in page.content()


def test_each_person_sees_their_own_runs_only(cluster_page: PageOfCluster, tabs: WatchedTabs) -> None:
    both = (cluster_page.changes, cluster_page.views)
    for own, other in (both, both[::-1]):
        page = cluster_page.log_in(tabs, cluster_page.tokens[own])
        expect(page.locator("main")).to_contain_text(f"You may not list the runs of all namespaces: these are of {own}")
        expect(page.locator("tbody a")).to_have_text([f"of-{own}"])
        expect(page.locator("header")).to_contain_text(f"system:serviceaccount:{own}:viewer")
        for path in (cluster_page.run_path(other), f"/ui/runs?namespace={other}"):
            page.goto(f"{cluster_page.address}{path}")
            expect(page.locator("h1")).to_have_text("Not shown")
            expect(page.locator("main")).to_contain_text(f'User "system:serviceaccount:{own}:viewer" cannot')
            assert "sort_digits" not in page.content()
        page.get_by_label("Namespace").fill(own)
        page.keyboard.press("Enter")
        expect(page.locator("tbody a")).to_have_text([f"of-{own}"])
    assert refusals(tabs) == 4


def test_whoever_may_only_look_is_told_so(cluster_page: PageOfCluster, tabs: WatchedTabs) -> None:
    namespace = cluster_page.views
    page = cluster_page.log_in(tabs, cluster_page.tokens[namespace], cluster_page.run_path(namespace))
    page.get_by_role("button", name="Start").click()
    expect(page.locator("h1")).to_have_text("Not done")
    expect(page.locator("main")).to_contain_text('cannot patch resource "rltrainingruns"')
    run = RunsNamespace(cluster_page.plane, namespace).find(f"of-{namespace}")
    assert (refusals(tabs), run and run["spec"]["suspend"]) == (1, True)
    page.get_by_role("link", name="The run", exact=True).click()
    expect(page.locator("h1")).to_have_text(f"of-{namespace}")


def test_whoever_may_starts_a_run_and_sees_it_live(cluster_page: PageOfCluster, tabs: WatchedTabs) -> None:
    namespace, name = cluster_page.changes, f"started-{next(_numbers)}"
    runs = RunsNamespace(cluster_page.plane, namespace)
    runs.apply(name, suspend=True)
    page = cluster_page.log_in(tabs, cluster_page.tokens[namespace], f"/ui/runs/{namespace}/{name}")
    watched = tabs.contexts[0].new_page()
    watched.goto(f"{cluster_page.address}/ui/runs?namespace={namespace}")
    watched.evaluate("window.loadedOnce = true")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.evaluate("window.loadedOnce = true")
    shown = (page.locator("main"), watched.locator("tr", has_text=name))
    for each in shown:
        expect(each).to_contain_text("Waiting for the kubelet")
    runs.kubelet.start(runs.until_pod(name=name))
    for each in shown:
        expect(each).to_contain_text("Waiting for trainer, environment")
        assert each.page.evaluate("window.loadedOnce"), "it was not loaded again"
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("main")).to_contain_text("Stopping")
    stopped = runs.find(name)
    assert stopped
    assert stopped["spec"]["suspend"]


def test_logging_out_in_one_tab_ends_the_others(cluster_page: PageOfCluster, tabs: WatchedTabs) -> None:
    namespace = cluster_page.views
    page = cluster_page.log_in(tabs, cluster_page.tokens[namespace])
    other = tabs.contexts[0].new_page()
    other.goto(page.url)
    other.wait_for_function("document.body.dataset.live")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Kubernetes token")).to_be_visible()
    assert tabs.contexts[0].cookies() == []

    RunsNamespace(cluster_page.plane, namespace).edit(f"of-{namespace}", config={"total_steps": 7})
    expect(other.locator("#live")).to_have_text("not live: Log in first.")
    assert refusals(tabs) == 1
    other.reload()
    expect(other.get_by_label("Kubernetes token")).to_be_visible()


@pytest.mark.nightly("operator/src/rl_operator/ui")
def test_a_token_that_is_revoked_ends_the_page_with_a_sentence(cluster_page: PageOfCluster, tabs: WatchedTabs) -> None:
    admin, namespace = cluster_page.plane.admin, cluster_page.views
    token, secret = bound_token(admin, namespace)
    page = cluster_page.log_in(tabs, token, f"/ui/runs?namespace={namespace}")
    with page.expect_request("**/ui/runs?*part=rows*"):
        pass  # the stream is open
    admin.delete(secret)
    expect(page.locator("#live")).to_have_text(
        re.compile(r"not live: .*does not know the token.*"), timeout=NOTICED_MILLISECONDS
    )
    page.reload()
    expect(page.locator("main .sentence").first).to_contain_text("does not know the token")
    assert refusals(tabs) == 1


@in_looks
def test_everyone_can_use_it(cluster_page: PageOfCluster, tabs: WatchedTabs, looks: list[Look]) -> None:
    namespace = cluster_page.views
    page = tabs.context(cluster_page.address, bypass_csp=True).new_page()
    page.goto(f"{cluster_page.address}/ui/login")
    everyone_can_use(page, looks)
    token = cluster_page.tokens[namespace]
    page = cluster_page.log_in(tabs, token, cluster_page.run_path(namespace), bypass_csp=True)
    for path in ("", f"?namespace={namespace}", "?namespace=default", f"/{namespace}/of-{namespace}"):
        page.goto(f"{cluster_page.address}/ui/runs{path}")
        everyone_can_use(page, looks)
    refusals(tabs)
