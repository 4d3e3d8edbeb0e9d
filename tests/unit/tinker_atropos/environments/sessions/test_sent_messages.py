"""The policy's messages as programs got them."""

import pytest

from tinker_atropos.environments.sessions.sent_messages import SentMessages


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000, 5], ids=["cut off", "nested without end", "a number"])
def test_what_is_not_of_the_policy_stays_as_it_is(arguments: object) -> None:
    sent = SentMessages()
    sent.add({"role": "assistant", "content": "yes"}, "yes<|im_end|>")
    theirs = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": arguments}}]}
    assert sent.as_written([theirs]) == [theirs]
