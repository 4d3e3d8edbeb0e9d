import json
import logging
import subprocess
import sys

import pytest

from rl_operator.__main__ import JsonLines


def test_a_line_is_one_json_object_with_the_traceback_inside() -> None:
    try:
        int("oops")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "a %s", ("b\nc",), sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    parsed = json.loads(line)
    assert (parsed["level"], parsed["logger"], parsed["message"]) == ("error", "x", "a b\nc")
    assert "ValueError: invalid literal" in parsed["traceback"]


@pytest.mark.process
def test_frameworks_are_quiet_and_our_code_is_not() -> None:
    code = (
        "import logging; from rl_operator.__main__ import configure_logging;"
        "configure_logging('text', 'info');"
        "logging.getLogger('kopf').info('noise'); logging.getLogger('rl_operator').info('signal')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stderr
    assert "signal" in said
    assert "noise" not in said
