"""`rlctl ui` as a process: its address, its pages, and its end."""

import re
import signal

import httpx
from tests.integration.local.conftest import Rlctl
from tests.unit.rl_operator.targets.fakes import run_manifest

END_SECONDS = 60


def test_the_page_is_served_to_who_has_its_address(rlctl: Rlctl) -> None:
    rlctl.store.create(run_manifest("sorting", phase="Failed", message="The <b>trainer</b> failed."))
    with rlctl.start("ui", "--local", "--no-browser") as server:
        try:
            assert server.stdout is not None
            printed = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\S*", printed)
            assert found, printed
            address, base = found[0], found[0].partition("/?")[0]
            assert httpx.get(f"{base}/runs", timeout=60).status_code == 401
            with httpx.Client(timeout=60, follow_redirects=True) as browser:
                browser.get(address)
                runs = browser.get(f"{base}/runs")
                page = browser.get(f"{base}/runs/default/sorting")
            assert "The &lt;b&gt;trainer&lt;/b&gt; failed." in runs.text
            assert (page.status_code, "<b>trainer" in page.text) == (200, False)
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(END_SECONDS) in (0, 130)
        assert server.stderr is not None
        assert "Traceback" not in server.stderr.read()
