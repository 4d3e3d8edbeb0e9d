import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.environments.adapters.openenv.guess_server import error, observation

from tinker_atropos.environments.adapters.openenv.openenv_frames import (
    CapacityReachedError,
    Observed,
    OpenEnvServerError,
    RefusedActionError,
    read_answer,
    reset_frame,
    step_frame,
)
from tinker_atropos.environments.rollout.rollouts import TransportError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_requests():
    assert json.loads(reset_frame(3)) == {"type": "reset", "data": {"seed": 3}}
    assert json.loads(step_frame({"number": 5})) == {"type": "step", "data": {"number": 5}}


@pytest.mark.parametrize(("reward", "earned"), [(None, 0.0), (1, 1.0), (True, 1.0), (False, 0.0), (-0.5, -0.5)])
def test_rewards(reward, earned):
    observed = read_answer(observation({"hint": "x"}, reward, done=True))
    assert observed == Observed(observation={"metadata": {}, "hint": "x"}, reward=reward, done=True)
    assert observed.earned == earned


def test_fields_of_later_releases_are_left_alone():
    assert read_answer('{"type":"observation","data":{"observation":{},"metadata":{"a":1}},"id":7}').earned == 0.0


@pytest.mark.parametrize(
    ("frame", "raised", "message"),
    [
        (error("CAPACITY_REACHED", "full"), CapacityReachedError, "the server has no free session: full"),
        (error("EXECUTION_ERROR", "x" * 9999), OpenEnvServerError, f"EXECUTION_ERROR: {'x' * 200}$"),
        (error("VALIDATION_ERROR", "bad"), RefusedActionError, "^bad[.]$"),
        (error("VALIDATION_ERROR", errors=[{"loc": [], "msg": "no"}, 5]), RefusedActionError, "^the action: no[.]$"),
        (
            error("VALIDATION_ERROR", errors=[{"loc": ["a", 0], "msg": "is no"}, {"loc": "b"}]),
            RefusedActionError,
            "^a.0: is no; the action: None[.]$",
        ),
    ],
)
def test_errors(frame, raised, message):
    with pytest.raises(raised, match=message):
        read_answer(frame)


@given(st.binary(max_size=60) | st.text(max_size=60) | JSON.map(json.dumps))
def test_any_frame_is_an_answer_or_an_error_of_the_transport(frame):
    with pytest.raises(TransportError, match="a frame that is not an answer"):
        read_answer(frame)


@given(st.sampled_from(["observation", "error"]), JSON)
def test_any_content_of_a_frame_is_understood_or_refused(kind, content):
    try:
        observed = read_answer(json.dumps({"type": kind, "data": content}))
    except (TransportError, RefusedActionError, CapacityReachedError, OpenEnvServerError):
        return
    assert isinstance(observed.earned, float)
