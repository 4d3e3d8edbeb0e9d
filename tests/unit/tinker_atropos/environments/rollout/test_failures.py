from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from pydantic import BaseModel, SecretStr, ValidationError
from tenacity import AsyncRetrying, RetryError, stop_after_attempt

from tinker_atropos.environments.rollout.failures import MAX_MESSAGE, describe, environment_failed, missing_data

HERE = Path(__file__)


def raised(error):
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def line_of(error):
    return error.__traceback__.tb_lineno


def test_class_message_and_location():
    error = raised(ValueError("no data\nsecond line"))
    assert describe(error, HERE) == f"ValueError: no data (test_failures.py, line {line_of(error)}, in raised)"


class ServerSettings(BaseModel):
    server_type: Literal["openai", "sglang"]
    timeout: int = 1
    api_key: SecretStr = SecretStr("x")
    retries: int = 0


def rejected(**values):
    """As an author's code raises it: a class of settings made from values that do not fit."""
    with pytest.raises(ValidationError) as caught:
        ServerSettings(**values)
    return caught.value


FAULTS = {"server_type": "vllm", "timeout": "soon", "api_key": 17, "retries": None}
CASES = {
    "a missing field": (rejected(), "ValidationError: ServerSettings: server_type: Field required ("),
    "several fields": (
        rejected(**FAULTS),
        (
            "ValidationError: ServerSettings: server_type: Input should be 'openai' or 'sglang'; timeout: Input should "
            "be a valid integer, unable to parse string as an integer; api_key: Input should be a valid string; and 1 "
            "more ("
        ),
    ),
    "no message": (LookupError(), "LookupError ("),
    "a long message": (ValueError("x" * 1000), f"ValueError: {'x' * MAX_MESSAGE} ("),
    "sys.exit": (SystemExit(0), "it called sys.exit(0) ("),
}


@pytest.mark.parametrize(("error", "start"), CASES.values(), ids=CASES)
def test_description_of(error, start):
    assert describe(raised(error), HERE).startswith(start)


def test_location_is_in_the_environments_file_even_if_a_library_raised():
    with pytest.raises(OSError, match="nowhere") as caught:
        Path("/nowhere/at/all").read_text()
    assert "(test_failures.py, line" in describe(caught.value, HERE)
    assert "(pathlib.py, line" in describe(caught.value, Path("/elsewhere.py"))


def test_syntax_error_is_located_where_it_is():
    with pytest.raises(SyntaxError) as caught:
        compile("x = (", "/somewhere/mine.py", "exec")
    assert describe(caught.value, HERE) == "SyntaxError: '(' was never closed (mine.py, line 1)"


async def test_the_cause_behind_retries_is_described():
    async def fail():
        raise KeyError("reward")

    with pytest.raises(RetryError) as caught:
        await AsyncRetrying(stop=stop_after_attempt(2))(fail)
    assert describe(caught.value, HERE).startswith("KeyError: 'reward' (test_failures.py, line")


def test_sentence_names_the_phase():
    error = environment_failed("while setting up", raised(ValueError("no data")), HERE)
    assert str(error).startswith("the environment failed while setting up: ValueError: no data (")
    assert error.exit_code == 1


def test_location_may_be_in_a_module_next_to_the_file(tmp_path):
    entry, sibling = tmp_path / "my_env.py", tmp_path / "grading.py"
    installed = tmp_path / ".venv" / "lib" / "site-packages" / "library.py"
    installed.parent.mkdir(parents=True)
    for path, source in ((sibling, "def grade():\n    library()"), (installed, "def library():\n    raise OSError")):
        path.write_text(source)
    names = {}
    for path in (installed, sibling):
        exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(OSError) as caught:  # noqa: PT011 -- its place is what matters
        names["grade"]()
    assert describe(caught.value, entry) == "OSError (grading.py, line 2, in grade)"


def raised_in(module: str, error: str) -> BaseException:
    """As a library raises it: in its own modules, which decide what it is about."""
    made = ModuleType(module)
    exec(f"def load():\n    raise {error}", made.__dict__)
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- any error
        made.load()
    return caught.value


CAUSED = ValueError("the rows cannot be made")
CAUSED.__cause__ = raised_in("huggingface_hub.file_download", "OSError('offline')")
MISSING = {
    "a dataset of a hub": (
        raised_in("datasets.load", "ConnectionError('no route to the hub')"),
        ("mine loads data from a hub", "(ConnectionError: no route to the hub)", "HF_HOME", "HF_DATASETS_OFFLINE=1"),
    ),
    "word lists": (
        raised_in("nltk.data", "LookupError('\\n***\\n  Resource words not found.')"),
        ("mine needs word lists", "(LookupError: Resource words not found.)", "NLTK_DATA"),
    ),
    "what it was raised from": (CAUSED, ("(OSError: offline)",)),
    "no error about data": (raised_in("datasets.load", "ValueError('no')"), ()),
    "an error of its own": (raised_in("my_taskset", "OSError('no')"), ()),
}


@pytest.mark.parametrize(("error", "words"), MISSING.values(), ids=MISSING)
def test_data_that_is_not_here_is_told_with_the_way_out(error, words):
    sentence = missing_data("mine", error)
    assert (sentence is None) == (not words)
    assert all(each in sentence for each in words)
