import logging
import socket

from transformers import AutoTokenizer

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.environments.runner.loading.process_setup import RepeatFilter, bypass_proxies

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
