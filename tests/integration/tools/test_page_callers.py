"""The page in front of a real API server: two teams, each with its own rights, and what those do not allow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.integration.cluster.admin import RUNS, AdminClient
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.tools.page_server import CHANGES, NOTHING, VIEWS, bound_token, made_team, page_server

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def page_address(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with page_server(control_plane, tmp_path_factory.mktemp("page"), "page-usual") as address:
        yield address


@pytest.fixture(scope="module")
def tokens(control_plane: ControlPlane) -> dict[str, str]:
    """By team: `page-a` may change its runs, `page-b` may only look, `page-c` not even that."""
    teams = {"page-a": CHANGES, "page-b": VIEWS, "page-c": NOTHING, "page-usual": VIEWS}
    return {team: made_team(control_plane.admin, team, verbs) for team, verbs in teams.items()}


@contextmanager
def logged_in(address: str, token: str) -> Iterator[httpx.Client]:
    sent = {"Accept": "text/html", "Origin": address}
    with httpx.Client(base_url=address, timeout=60, headers=sent) as browser:
        answer = browser.post("/ui/login?next=/ui/runs?namespace=x", data={"token": token})
        assert (answer.status_code, answer.headers.get("location")) == (303, "/ui/runs?namespace=x"), answer.text
        yield browser


@pytest.mark.parametrize(("team", "other"), [("page-a", "page-b"), ("page-b", "page-a")])
def test_each_team_sees_only_its_own_runs(page_address: str, tokens: dict[str, str], team: str, other: str) -> None:
    with logged_in(page_address, tokens[team]) as browser:
        own = browser.get("/ui/runs", params={"namespace": team})
        assert (own.status_code, f'href="/ui/runs/{team}/of-{team}"' in own.text) == (200, True)
        assert f"system:serviceaccount:{team}:viewer" in own.text
        assert browser.get(f"/ui/runs/{team}/of-{team}").status_code == 200
        for path in (f"/ui/runs?namespace={other}", f"/ui/runs/{other}/of-{other}"):
            refused = browser.get(path)
            assert refused.status_code == 403
            assert f"User &#34;system:serviceaccount:{team}:viewer&#34; cannot" in refused.text
            assert "sort_digits" not in refused.text


def test_a_team_that_may_not_list_all_namespaces_is_told_which_one_it_sees(
    page_address: str, tokens: dict[str, str]
) -> None:
    with logged_in(page_address, tokens["page-usual"]) as browser:
        page = browser.get("/ui/runs").text
        assert "these are of <strong>page-usual</strong>" in page
        assert 'href="/ui/runs/page-usual/of-page-usual"' in page
        assert "of-page-a" not in page
    with logged_in(page_address, tokens["page-a"]) as browser:
        assert "these are of <strong>page-a</strong>" in browser.get("/ui/runs").text, "its service account's"
    with logged_in(page_address, tokens["page-c"]) as browser:
        asked = browser.get("/ui/runs")
        assert (asked.status_code, '<input name="namespace"' in asked.text) == (403, True)


def test_whoever_may_only_look_cannot_resume(
    page_address: str, tokens: dict[str, str], control_plane: ControlPlane
) -> None:
    with logged_in(page_address, tokens["page-b"]) as browser:
        refused = browser.post("/ui/runs/page-b/of-page-b/resume")
        assert (refused.status_code, "cannot patch resource" in refused.text) == (403, True)
        forged = browser.post("/ui/runs/page-b/of-page-b/resume", headers={"Origin": "https://attacker.com"})
        assert (forged.status_code, "does not come from this page" in forged.text) == (403, True)
    assert suspended(control_plane, "page-b")
    with logged_in(page_address, tokens["page-a"]) as browser:
        answer = browser.post("/ui/runs/page-a/of-page-a/resume")
        assert answer.status_code == 303, answer.text
    assert not suspended(control_plane, "page-a")


def suspended(plane: ControlPlane, team: str) -> bool:
    return bool(plane.admin.get(f"{RUNS}/of-{team}".format(namespace=team))["spec"].get("suspend"))


@pytest.mark.nightly("operator/src/rl_operator/tools")
def test_a_stream_tells_of_a_change_and_ends_with_its_token(
    page_address: str, tokens: dict[str, str], control_plane: ControlPlane
) -> None:
    admin = control_plane.admin
    token, secret = bound_token(admin, "page-a")
    with (
        logged_in(page_address, token) as browser,
        browser.stream("GET", "/ui/live?namespace=page-a", timeout=90) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == ": connected"
        with ever_changing(admin, f"{RUNS}/of-page-a".format(namespace="page-a")):
            assert next(line for line in lines if line.startswith("data:")) == 'data: [["page-a","of-page-a"]]'
        admin.delete(secret)
        assert "event: over" in list(lines)
        assert browser.get("/ui/runs?namespace=page-a").status_code in (401, 403)


@contextmanager
def ever_changing(admin: AdminClient, run: str) -> Iterator[None]:
    """Nobody can tell when a stream begins to look."""
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.wait(0.5):
            number += 1
            admin.patch(run, {"metadata": {"annotations": {"example.com/number": str(number)}}})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    ("token", "said"), [("wrong-token-of-a-stranger", "does not know the token"), ("", "not a token")]
)
def test_a_wrong_token_stays_at_the_form(page_address: str, token: str, said: str) -> None:
    with httpx.Client(base_url=page_address, timeout=60, headers={"Origin": page_address}) as browser:
        answer = browser.post("/ui/login", data={"token": token})
    assert (answer.status_code in (400, 401), said in answer.text) == (True, True)
    assert "set-cookie" not in answer.headers


def test_after_logging_out_nothing_is_shown(page_address: str, tokens: dict[str, str]) -> None:
    with logged_in(page_address, tokens["page-a"]) as browser:
        assert browser.post("/ui/logout").headers["location"] == "/ui/login"
        assert browser.get("/ui/runs?namespace=page-a").headers["location"].startswith("/ui/login?next=")
