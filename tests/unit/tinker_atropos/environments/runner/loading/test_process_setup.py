import logging
import socket
import sys

import pytest
from transformers import AutoTokenizer

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.environments.runner.loading.process_setup import (
    RepeatFilter,
    bypass_proxies,
    torch_hidden,
)

URLS = ["http://127.0.0.1:8000", "http://api.run.svc:8000"]


def test_proxies_are_bypassed_for_the_runs_own_addresses():
    env_vars = {"NO_PROXY": "intern.example", "HTTP_PROXY": "http://proxy:3128"}
    bypass_proxies(URLS, env_vars)
    assert env_vars["NO_PROXY"] == "intern.example,localhost,127.0.0.1,api.run.svc"
    assert env_vars["no_proxy"] == "localhost,127.0.0.1,api.run.svc"
    assert env_vars.keys() == {"NO_PROXY", "no_proxy", "HTTP_PROXY"}  # the environment's data may be on the Hub


def test_a_tokenizer_folder_is_loaded_without_the_hub(monkeypatch):
    """So nothing needs to be offline for it."""
    looked_up = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_args, **_options: looked_up.append(host))
    tokenizer = AutoTokenizer.from_pretrained(resolve_tokenizer("bundled"))
    assert tokenizer.decode(tokenizer.encode("sort 4 1", add_special_tokens=False)) == "sort 4 1"
    assert looked_up == []


def record(message, line=1):
    return logging.LogRecord("x", logging.WARNING, "/lib/x.py", line, message, None, None)


def test_same_message_from_the_same_line_is_logged_once():
    repeat_filter = RepeatFilter()
    said = [repeat_filter.filter(each) for each in (record("a"), record("a"), record("b"), record("a", line=2))]
    assert said == [True, False, True, True]


@pytest.mark.parametrize(
    ("source", "hidden"), [("x = 1", True), ("import torch", False), ("import transformers", False)]
)
def test_torch_is_hidden_from_files_that_do_not_mention_it(tmp_path, source, hidden):
    file = tmp_path / "mine.py"
    file.write_text(source)
    loaded = sys.modules.pop("torch", None)
    try:
        with torch_hidden(unless_mentioned_in=file):
            assert ("torch" in sys.modules) is hidden
        assert "torch" not in sys.modules
    finally:
        if loaded is not None:
            sys.modules["torch"] = loaded
