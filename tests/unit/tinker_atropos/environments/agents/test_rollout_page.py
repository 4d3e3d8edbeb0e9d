"""The page of rollouts: everything is shown, and nothing of it is more than text."""

import json

from tinker_atropos.environments.agents.rollout_page import rollout_page, write_page

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
CALL = {"function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
MESSAGES = [
    {"role": "user", "content": HOSTILE},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "terminal", "content": "a.txt"},
    {"role": '"><script>', "content": "x"},
]


def test_what_it_shows():
    page = rollout_page("groups", [{"scores": [1.0, 0.25], "messages": [MESSAGES, MESSAGES[:1]]}])
    assert "1 groups, 2 rollouts, mean reward 0.625" in page
    assert "call: terminal({&#34;command&#34;: &#34;ls&#34;})" in page
    assert "tool terminal" in page
    assert "default-src 'none'" in page


def test_nothing_in_it_is_executed():
    page = rollout_page(HOSTILE, [{"scores": [0.0], "messages": [MESSAGES]}])
    assert "<script" not in page
    assert "<img" not in page
    assert 'class="message other"' in page


def test_a_file_of_groups(tmp_path):
    groups = tmp_path / "groups.jsonl"
    groups.write_text("\n".join([json.dumps({"scores": [0.5]}), "", json.dumps({"scores": [0.5, 1]})]))
    page = write_page(groups)
    assert page == tmp_path / "groups.html"
    assert "2 groups, 3 rollouts" in page.read_text()
    groups.write_text("")
    assert "0 groups, 0 rollouts" in write_page(groups).read_text()
