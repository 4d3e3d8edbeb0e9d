"""The page of rollouts: everything is shown, and nothing of it is more than text."""

import json

import pytest

from tinker_atropos.environments.agents.rollout_page import rollout_page, write_page

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
CALL = {"function": {"name": "terminal", "arguments": '{"command": "ls\\ncat <a"}'}}
MESSAGES = [
    {"role": "user", "content": HOSTILE},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "terminal", "content": "a.txt"},
    {"role": '"><script>', "content": "x"},
]


def test_what_it_shows():
    page = rollout_page("groups", [{"scores": [1.0, 0.25], "messages": [MESSAGES, MESSAGES[:1]]}])
    assert "1 group, 2 rollouts, mean reward 0.625, 1 tool call,\n0 went wrong" in page
    assert '<pre class="call"><strong>terminal</strong>\ncommand:\nls\ncat &lt;a</pre>' in page
    assert "assistant, turn 1" in page
    assert "tool terminal" in page
    assert "default-src 'none'" in page


def test_nothing_in_it_is_executed():
    page = rollout_page(HOSTILE, [{"scores": [0.0], "messages": [MESSAGES]}])
    assert "<script" not in page
    assert "<img" not in page
    assert 'class="message other"' in page


def test_characters_that_would_change_others_are_named():
    page = rollout_page(
        "groups", [{"scores": [0], "messages": [[{"role": "user", "content": "a\x1b[31m\u202eb\tc\n"}]]}]
    )
    assert "<pre>a&lt;U+001B&gt;[31m&lt;U+202E&gt;b\tc\n</pre>" in page


def test_only_what_tools_say_is_taken_apart():
    messages = [{"role": role, "content": '{"a": "b\\nc"}'} for role in ("assistant", "tool")]
    page = rollout_page("groups", [{"scores": [0], "messages": [messages]}])
    assert "<pre>{&#34;a&#34;: &#34;b\\nc&#34;}</pre>" in page
    assert "<pre>a:\nb\nc</pre>" in page


@pytest.mark.parametrize(
    ("role", "content", "is_error"),
    [
        ("tool", "Error: there is no tool 'x'", True),
        ("tool", '{"error": "a.txt does not exist"}', True),
        ("tool", '{"output": "", "exit_code": 1, "error": null}', True),
        ("tool", '{"output": "Error: x", "exit_code": 0, "error": null}', False),
        ("tool", "3", False),
        ("tool", "[" * 100_000, False),
        ("user", "Error: a call could not be read: no JSON", True),
        ("user", "Error: what does this mean?", False),
        ("assistant", '{"error": "it is"}', False),
        ("user", [{"type": "text", "text": "Error: x"}], False),
    ],
)
def test_what_went_wrong_is_marked(role, content, is_error):
    page = rollout_page("groups", [{"scores": [0.5], "messages": [[{"role": role, "content": content}]]}])
    assert (f'class="message {role} error"' in page) is is_error
    assert ("<b>1 went wrong</b>" in page) is is_error


def test_it_shows_objects_as_they_were_written():
    messages = [{"role": "tool", "content": '{"a": ["é"]}'}, {"role": ["user"], "content": {"b": "ü"}}]
    page = rollout_page("groups", [{"scores": [0], "messages": [messages]}])
    assert "<pre>a: [&#34;é&#34;]</pre>" in page
    assert "<pre>{&#34;b&#34;: &#34;ü&#34;}</pre>" in page
    assert 'class="message other"' in page


def test_a_rollout_of_several_sequences_is_one():
    group = {
        "scores": [1.0, 1.0, 0.0],
        "messages": [MESSAGES, MESSAGES, MESSAGES],
        "masks": [[-100, 5], [-100, -100, 6, 7], [-100, 8]],
        "group_overrides": {"group_size": 3, "rollouts": [0, 0, 1]},
    }
    page = rollout_page("groups", [group])
    assert "2 rollouts, mean reward 0.500" in page
    assert page.count("3 sampled tokens<") == page.count("1 sampled token<") == 1


def test_a_file_of_groups(tmp_path):
    groups = tmp_path / "groups.jsonl"
    groups.write_text("\n".join([json.dumps({"scores": [0.5]}), "", json.dumps({"scores": [0.5, 1]})]))
    page = write_page(groups)
    assert page == tmp_path / "groups.html"
    assert "2 groups, 3 rollouts" in page.read_text()
    groups.write_text("")
    assert "0 groups, 0 rollouts" in write_page(groups).read_text()
