"""Every route, over real HTTP: what clients of atroposlib 0.4.0 rely on, and the extensions."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from rl_contract.status_metrics import EvaluatedFigure
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.trajectories.api_client import MetricsRecord
from tinker_atropos.trajectory_api import api_routes
from tinker_atropos.trajectory_api.api_routes import ROUTES, trajectory_app

# Before a trainer has registered.


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/", None, {"message": "trajectory API (atroposlib 0.4.0 protocol)"}),
        ("/wandb_info", None, {"group": None, "project": None}),
        ("/info", None, {"batch_size": -1, "max_token_len": -1}),
        ("/status", None, {"current_step": 0, "queue_size": 0}),
        ("/batch", None, {"batch": None, "message": "no trainer has registered; POST /register first"}),
        ("/rl/metrics", None, {"records": [], "last": 0}),
    ],
)
async def test_get_before_registration(api, path, body, expected) -> None:
    assert await api.get(path, body) == expected


async def test_an_environment_waits_until_the_trainer_asks_for_its_first_batch(api) -> None:
    waiting = {"status": "wait for trainer to start"}
    assert await api.post("/register-env", build.env_registration()) == waiting
    answer = await api.post("/register", build.trainer_registration())
    assert isinstance(answer["uuid"], int)
    assert await api.post("/register-env", build.env_registration()) == waiting
    await api.get("/batch")
    assert await api.post("/register-env", build.env_registration()) == {
        "status": "success",
        "env_id": 0,
        "wandb_name": "sort_0",
        "checkpoint_dir": "/checkpoints",
        "starting_step": 0,
        "checkpoint_interval": 5,
        "num_steps": 10,
    }


async def test_an_attempt_that_begins_with_all_steps_trained_takes_its_environment(api) -> None:
    """It asks for no batch, and waits for the environment's evaluation of the final weights."""
    await api.post("/register", build.trainer_registration(starting_step=10))
    assert (await api.post("/register-env", build.env_registration()))["status"] == "wait for trainer to start"
    await api.post("/rl/progress", {"steps_trained": 10, "training_done": True})
    answer = await api.post("/register-env", build.env_registration())
    assert (answer["status"], answer["starting_step"]) == ("success", 11)  # past the last step


async def test_groups_sent_before_registration_are_kept(api) -> None:
    assert await api.post("/scored_data", build.group(first_token=1)) == {"status": "received"}
    await api.post("/scored_data", build.group(first_token=2))
    await api.post("/register", build.trainer_registration())
    batch = (await api.get("/batch"))["batch"]
    assert [group["tokens"][0][0] for group in batch] == [1, 2]


# Registration and status.


async def test_the_registered_trainers_values_are_returned(api) -> None:
    await api.begin(wandb_group="g1", wandb_project="p1", batch_size=6, max_token_len=99)
    assert await api.get("/wandb_info") == {"group": "g1", "project": "p1"}
    assert await api.get("/info") == {"batch_size": 6, "max_token_len": 99}


async def test_status_env_takes_its_json_body_with_get(api) -> None:
    env_id = await api.begin()
    await api.post("/scored_data", build.group())
    assert await api.get("/status-env", {"env_id": env_id}) == {
        "current_step": 0,
        "queue_size": 1,
        "unallocated_fraction": 1.0,
        "self_queue_size": 1,
        "max_group_size": 2,
        "env_weight": 1.0,
        "room": None,
    }


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "named"),
    [
        ("GET", "/status-env", {"env_id": 5}, 404, "env_id 5"),
        ("GET", "/status-env", {}, 422, "env_id"),
        ("POST", "/register", {}, 422, "wandb_group"),
        ("POST", "/register-env", {"max_token_length": 1, "group_size": 0}, 422, "group_size"),
        ("POST", "/scored_data", {"tokens": [[1]], "masks": [[1]]}, 422, "scores"),
        ("POST", "/rl/progress", {"steps_trained": -1}, 422, "steps_trained"),
        ("POST", "/rl/metrics", {"metrics": {"a": "x"}, "source": "s"}, 422, "metrics.a"),
        ("PUT", "/rl/lease/trainer", {"state": "asleep"}, 422, "state"),
        ("PUT", "/rl/lease/cook", {"state": "working"}, 404, ""),
        ("PUT", "/rl/lease/environment", {"state": "working", "id": "a/b"}, 422, "id"),
        ("PUT", "/rl/lease/environment", {"state": "working", "id": "x" * 65}, 422, "id"),
        ("PUT", "/rl/lease/environment", {"state": "working", "index": -1}, 422, "index"),
        ("PUT", "/rl/lease/environment", {"state": "working", "index": 256}, 422, "less than 256"),
        ("POST", "/rl/metrics", {"metrics": {}, "source": "s", "environment": 256}, 422, "less than 256"),
        ("POST", "/register-env", {"max_token_length": 1, "group_size": 1, "index": 256}, 422, "less than 256"),
        (
            "POST",
            "/register-env",
            {"max_token_length": 1, "group_size": 1, "desired_name": "x" * 129},
            422,
            "desired_name",
        ),
        ("POST", "/rl/metrics", {"metrics": {"x" * 129: 1}, "source": "s"}, 422, "metrics"),
        ("POST", "/rl/metrics", {"metrics": dict.fromkeys(map(str, range(1001)), 1), "source": "s"}, 422, "metrics"),
        ("POST", "/rl/metrics", {"metrics": {}, "source": "x" * 2**16}, 413, "the limit is 65536"),
        ("POST", "/register-env", {"desired_name": "x" * 2**20}, 413, "the limit is 1048576"),
        ("GET", "/batch?wait=soon", None, 422, "wait"),
        ("GET", "/batch?wait=-1", None, 422, "wait"),
        ("GET", "/batch?step=-1", None, 422, "step is '-1'; it must be an integer"),
        ("GET", "/batch?step=one", None, 422, "step"),
        ("GET", "/batch?step=9999999999", None, 422, "step"),
        ("POST", "/rl/progress", {"steps_trained": 2**63}, 422, "steps_trained"),
        ("POST", "/rl/drop", {"ids": [1]}, 422, "reason"),
        ("POST", "/rl/drop", {"ids": ["x"], "reason": "stale"}, 422, "ids[0]"),
        ("POST", "/rl/progress", {"steps_trained": 1, "totals": {"sampled": 2**63}}, 422, "totals.sampled"),
        ("GET", "/rl/metrics?after=inf", None, 422, "after"),
        ("GET", "/rl/metrics?after=1e300", None, 422, "after"),
        ("GET", "/rl/items/state", None, 422, "step is missing"),
        ("POST", "/rl/items", {"id": "", "count": 1}, 422, "id"),
        ("POST", "/rl/items", {"id": "a", "count": 1025}, 422, "count"),
        ("POST", "/rl/items", {"id": "a", "count": 1, "epoch_size": 0}, 422, "epoch_size"),
        ("POST", "/rl/items", {"id": "a", "count": 1, "ended": [{"position": 0, "reason": "x"}]}, 422, "'equal'"),
        ("POST", "/register", build.trainer_registration(items="{}"), 422, "items is '{}', which is not a position"),
        ("GET", "/reset_data", None, 404, ""),
        ("DELETE", "/register", None, 405, ""),
    ],
)
async def test_bad_requests_name_the_mistake(api, *, method, path, body, status, named) -> None:
    await api.begin()
    answer = await api.http.request(method, path, json=body)
    assert (answer.status_code, named in answer.text) == (status, True), answer.text


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_token_len", 2**63), ("save_checkpoint_interval", -(2**64)), ("starting_step", 1.5), ("max_staleness", -1),
     ("vocabulary", 0)],
)  # fmt: skip
async def test_a_registration_with_impossible_numbers_is_refused(api, field, value) -> None:
    answer = await api.http.post("/register", json=build.trainer_registration(**{field: value}))
    assert (answer.status_code, field in answer.text) == (422, True), answer.text
    assert (await api.get("/info"))["batch_size"] == -1, "nobody has registered"


@pytest.mark.parametrize(("field", "value"), [("max_token_length", 10**400), ("weight", 1e308), ("group_size", 2**63)])
async def test_an_environment_of_impossible_size_affects_no_other_status(api, field, value) -> None:
    env_id = await api.begin()
    answer = await api.http.post("/register-env", json=build.env_registration(**{field: value}))
    assert (answer.status_code, field in answer.text) == (422, True), answer.text
    assert (await api.get("/status-env", {"env_id": env_id}))["env_weight"] == 1.0


async def test_no_header_admits_a_browser_of_another_origin(api) -> None:
    answer = await api.http.get("/", headers={"origin": "http://elsewhere.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_environments_without_a_name_get_one(api) -> None:
    await api.begin()
    answer = await api.post("/register-env", build.env_registration(desired_name=None))
    assert answer["wandb_name"] == "environment_0"


async def test_simultaneous_registrations_get_different_numbers(api) -> None:
    await api.begin()
    answers = await asyncio.gather(*(api.post("/register-env", build.env_registration()) for _ in range(4)))
    assert sorted(answer["env_id"] for answer in answers) == [1, 2, 3, 4]
    assert sorted(answer["wandb_name"] for answer in answers) == ["sort_1", "sort_2", "sort_3", "sort_4"]


async def test_the_last_environment_can_disconnect_and_still_ask(api) -> None:
    env_id = await api.begin()
    assert await api.post("/disconnect-env", {"env_id": env_id}) == {"status": "success"}
    assert (await api.get("/status-env", {"env_id": env_id}))["env_weight"] == 1.0
    assert await api.post("/disconnect-env", {"env_id": 9}) == {
        "status": "failure",
        "error": "env_id 9 is not registered",
    }


# Groups.


async def test_a_group_is_returned_as_it_was_sent(api) -> None:
    await api.begin(batch_size=2)
    sent = build.group(
        messages=[[{"role": "user", "content": "größer"}], []],
        overrides=[{"set_advantage_to_zero": True}, {}],
        generation_params={"temperature": 1.0},
        ref_logprobs=None,
        field_of_a_later_version=[1],
    )
    await api.post("/scored_data", sent)
    assert (await api.get("/batch"))["batch"] == [sent]


async def test_gzip_bodies(api) -> None:
    await api.begin(batch_size=2)
    sent = build.group()
    body = gzip.compress(json.dumps(sent).encode())
    answer = await api.http.post("/scored_data", content=body, headers={"content-encoding": "gzip"})
    assert answer.json() == {"status": "received"}
    assert await api.get("/latest_example") == sent
    assert (await api.get("/batch"))["batch"] == [sent]


async def test_latest_example(api) -> None:
    assert (await api.get("/latest_example"))["tokens"] == []
    await api.begin()
    for number in (1, 2):
        await api.post("/scored_data", build.group(first_token=number))
    await api.get("/batch")
    await api.post("/rl/progress", {"steps_trained": 1})
    assert (await api.get("/latest_example"))["tokens"][0][0] == 2


async def test_odd_sizes_wait_until_they_sum_to_the_group_size(api) -> None:
    await api.post("/register", build.trainer_registration())
    await api.get("/batch")
    await api.post("/register-env", build.env_registration(group_size=4))
    assert await api.post("/scored_data", build.group(size=3, first_token=1)) == {
        "status": "buffered",
        "buffer_size": 3,
    }
    assert (await api.get("/batch"))["batch"] is None
    assert await api.post("/scored_data", build.group(size=1, first_token=2)) == {
        "status": "buffered",
        "buffer_size": 0,
    }
    assert [len(group["tokens"]) for group in (await api.get("/batch"))["batch"]] == [3, 1]


async def test_a_list_of_groups(api) -> None:
    await api.begin()
    groups = [build.group(first_token=1), build.group(size=1), build.group(first_token=2)]
    assert await api.post("/scored_data_list", groups) == {
        "status": "received",
        "groups_processed": 3,
        "buffered": 1,
        "last_buffer_size": 1,
    }
    assert [group["tokens"][0][0] for group in (await api.get("/batch"))["batch"]] == [1, 2]


async def test_good_groups_of_a_list_survive_bad_ones(api) -> None:
    await api.begin()
    answer = await api.post("/scored_data_list", [build.group(scores=[1.0]), build.group(), build.group()])
    assert answer == {
        "status": "received",
        "groups_processed": 2,
        "refused": ["scores has 1 entries for 2 sequences of tokens"],
    }
    books = await api.books()
    assert (books["groups"]["refused"], books["rollouts"]["refused"]) == ({"scores": 1}, {"scores": 2})
    assert len((await api.get("/batch"))["batch"]) == 2


async def test_an_empty_list_is_accepted(api) -> None:
    assert await api.post("/scored_data_list", []) == {"status": "received", "groups_processed": 0}


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"tokens": []}, "tokens", "tokens: List should have at least 1 item"),
        ({"tokens": [[1, -2, 3], [1, 2, 3]]}, "tokens", "tokens[0][1]: Input should be greater than or equal to 0"),
        ({"tokens": [[], []]}, "tokens", "tokens[0] is empty"),
        ({"tokens": [[7, 5, 6], [7, 5, 99]]}, "masks", "masks[1][2] is 6; allowed are -100 (not trained) and the"),
        ({"tokens": "none"}, "tokens", "tokens: Input should be a valid array"),
        ({"masks": [[1, 2, 3]]}, "masks", "masks has 1 entries for 2 sequences"),
        ({"masks": [[1, 5, 6], [1]]}, "masks", "masks[1] has 1 positions, tokens[1] has 3"),
        ({"scores": [0.0, float("nan")]}, "scores", "scores[1]: Input should be a finite number (given: nan)"),
        ({"scores": ["high", 1]}, "scores", "scores[0]: Input should be a valid number"),
        ({"inference_logprobs": [[1.0, float("-inf"), 0]] * 2}, "inference_logprobs", "(given: -inf)"),
        ({"inference_logprobs": [[1.0]] * 2}, "inference_logprobs", "inference_logprobs[0] has 1 positions"),
        ({"env_id": "first"}, "env_id", "env_id: Input should be a valid integer"),
    ],
)
async def test_a_bad_group_is_refused_by_name_and_counted(api, changes, reason, message) -> None:
    await api.begin()
    body = json.dumps(build.group(**changes))  # the standard encoder writes NaN, as BaseEnv does
    answer = await api.http.post("/scored_data", content=body)
    assert (answer.status_code, message in answer.json()["detail"]) == (422, True), answer.text
    in_a_list = await api.http.post("/scored_data_list", content=f"[{body}]")
    assert in_a_list.json() == answer.json()
    assert (await api.books())["groups"]["refused"] == {reason: 2}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "1", "é"]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(["rollouts", "a"]), children),
    max_leaves=6,
)
FIELDS = ["tokens", "masks", "scores", "advantages", "ref_logprobs", "inference_logprobs", "overrides", "env_id"]
FIELDS += ["group_overrides", "generation_params", "distill_token_ids", "distill_logprobs", "messages", "images"]


@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_whatever_an_environment_sends_is_stored_or_refused_and_counted(api, changes) -> None:
    before = (await api.books())["groups"]
    answer = await api.http.post("/scored_data", content=json.dumps(build.group() | changes))
    after = (await api.books())["groups"]
    if answer.status_code == 200:
        counted = after["received"] + after["duplicates"] - before["received"] - before["duplicates"]
    else:
        assert answer.status_code == 422, answer.text
        counted = sum(after["refused"].values()) - sum(before["refused"].values())
        assert set(after["refused"]) <= set(FIELDS)
        assert answer.json()["detail"].startswith(tuple(FIELDS))
    assert counted == 1


async def test_a_group_larger_than_a_batch_is_refused(api) -> None:
    await api.begin(batch_size=4)
    answer = await api.http.post("/scored_data", json=build.group(size=5))
    assert answer.status_code == 422
    assert answer.json()["detail"] == "tokens has 5 rollouts; a batch holds 4 (batch_size)"


async def test_numbers_that_are_not_json_do_not_spoil_a_batch(api) -> None:
    await api.begin(batch_size=2)
    body = json.dumps(build.group(generation_params={"top_p": float("inf")}, messages=["NaN is a word"]))
    assert (await api.http.post("/scored_data", content=body)).status_code == 200
    (group,) = (await api.get("/batch"))["batch"]
    assert group["generation_params"] == {"top_p": None}
    assert group["messages"] == ["NaN is a word"]


async def test_ids_unknown_to_the_model_are_refused(api) -> None:
    await api.begin(vocabulary=8)
    assert (await api.post("/scored_data", build.group(first_token=7)))["status"] == "received"
    answer = await api.http.post("/scored_data", json=build.group(first_token=8))
    assert answer.status_code == 422
    assert answer.json()["detail"] == "tokens[0][0] is 8; the model knows the ids 0 to 7"
    assert (await api.books())["rollouts"]["refused"] == {"tokens": 2}


async def test_rollouts_of_several_sequences_count_once(api) -> None:
    await api.begin(batch_size=4)
    long = build.group(size=3, first_token=1, scores=[0.0, 0.0, 1.0], group_overrides={"rollouts": [0, 0, 1]})
    await api.post("/scored_data", long)
    await api.post("/scored_data", build.group(size=2, first_token=2))
    assert [len(group["tokens"]) for group in (await api.get("/batch?step=0"))["batch"]] == [3, 2]
    books = await api.books()
    assert (books["rollouts"]["delivered"], books["groups"]["delivered"]) == (4, 2)


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (b"[" + b" " * 2000 + b"]", {}, 413, "size"),
        (gzip.compress(b"[" + b" " * 2000 + b"]", mtime=0), {"content-encoding": "gzip"}, 413, "size"),
        (b"not gzip", {"content-encoding": "gzip"}, 400, "gzip"),
        (b"{", {}, 400, "json"),
        (b"[]", {}, 422, "json"),
    ],
)
async def test_unreadable_bodies_are_refused_and_counted(start_api, *, body, headers, status, reason) -> None:
    async with start_api(max_body_bytes=1000) as api:
        answer = await api.http.post("/scored_data", content=body, headers=headers)
        assert answer.status_code == status
    async with start_api() as api:
        books = await api.books()
        assert (books["groups"]["refused"], books["rollouts"]["refused"]) == ({reason: 1}, {reason: 0})


async def test_a_client_that_is_still_sending_learns_why_its_body_is_refused(start_api) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    async with start_api(max_body_bytes=1000) as api:
        answer = await api.http.post("/scored_data", content=endless())
        assert (answer.status_code, "the limit is 1000" in answer.text) == (413, True)


# Repeats: a lost answer makes a client send again.


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k1"}])
@pytest.mark.parametrize("compresslevel", [1, 9])
async def test_a_repeated_post_is_answered_like_the_first(api, headers, compresslevel) -> None:
    await api.begin()
    body = json.dumps([build.group(first_token=1), build.group(size=1), build.group(first_token=1)]).encode()
    gzipped = headers | {"content-encoding": "gzip"}
    first = await api.http.post("/scored_data_list", content=body, headers=headers)
    again = await api.http.post("/scored_data_list", content=gzip.compress(body, compresslevel), headers=gzipped)
    assert (first.status_code, again.json()) == (200, first.json())
    books = await api.books()
    assert (books["groups"]["received"], books["groups"]["duplicates"]) == (3, 3)
    assert books["groups"]["queued"] == 2, "equal groups within one POST are two groups"


async def test_equal_groups_with_different_keys_are_two(api) -> None:
    await api.begin()
    for key in ("k1", "k2", "k1"):
        answer = await api.http.post("/scored_data", json=build.group(), headers={"idempotency-key": key})
        assert answer.json() == {"status": "received"}
    books = await api.books()
    assert (books["groups"]["received"], books["groups"]["duplicates"]) == (2, 1)


async def test_a_repeat_is_recognized_after_a_restart(start_api) -> None:
    for _ in range(2):
        async with start_api() as api:
            await api.post("/scored_data", build.group())
            assert (await api.books())["groups"]["received"] == 1


# Waiting for a batch.


async def test_a_waiting_trainer_gets_the_batch_when_it_is_full(api) -> None:
    await api.begin()
    waiting = asyncio.create_task(api.get("/batch?wait=20"))
    await api.post("/scored_data", build.group(first_token=1))
    assert not waiting.done()
    await api.post("/scored_data", build.group(first_token=2))
    async with asyncio.timeout(60):
        assert len((await waiting)["batch"]) == 2


async def test_a_wait_ends_without_a_batch(api) -> None:
    await api.begin()
    async with asyncio.timeout(60):
        assert await api.get("/batch?wait=0.05") == {"batch": None}


async def test_a_batch_is_not_given_to_a_client_that_left(api) -> None:
    await api.begin()
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as leaving:
        with pytest.raises(httpx.ReadTimeout):
            await leaving.get("/batch?wait=20", timeout=0.2)
    await api.post("/scored_data_list", [build.group(), build.group()])
    assert len((await api.get("/batch?wait=5"))["batch"]) == 2


async def test_one_batch_goes_to_one_of_two_waiting_clients(api) -> None:
    await api.begin()
    waiting = [asyncio.create_task(api.get("/batch?wait=0.5")) for _ in range(2)]
    await api.post("/scored_data_list", [build.group(), build.group()])
    batches = [(await task)["batch"] for task in waiting]
    assert sorted(batch is None for batch in batches) == [False, True]


# Batches by step.


async def test_a_step_is_given_the_same_batch_until_a_checkpoint_covers_it(api) -> None:
    await api.begin()
    await api.post("/scored_data_list", [build.group(first_token=number) for number in range(4)])
    first = await api.get("/batch?step=0")
    assert (first["ids"], first["step"]) == ([1, 2], 0)
    assert [group["tokens"][0][0] for group in first["batch"]] == [0, 1]
    assert (await api.get("/batch?wait=5&step=1"))["ids"] == [3, 4]
    await api.post("/rl/progress", {"steps_trained": 2})
    assert await api.get("/batch?step=0") == first, "a replay"
    assert (await api.books())["groups"]["trained"] == 4
    await api.post("/rl/progress", {"steps_trained": 2, "checkpoint_step": 1})
    answer = await api.http.get("/batch?step=0")
    assert answer.status_code == 409
    assert "step is 0, but a checkpoint covers the batches before step 1" in answer.json()["detail"]
    assert (await api.get("/batch?step=1"))["ids"] == [3, 4]
    assert await api.get("/batch?step=2") == {"batch": None, "ids": [], "step": 2}


async def test_a_client_that_accepts_ndjson_gets_one_group_per_line(api) -> None:
    ndjson = {"accept": "application/x-ndjson, application/json"}
    await api.begin(batch_size=4)
    assert (await api.http.get("/batch?step=0", headers=ndjson)).json() == {"batch": None}
    groups = [build.group(first_token=1), build.group(first_token=2)]
    before = time.time()
    await api.post("/scored_data", groups[0])
    spread = json.dumps(groups[1], indent=1)  # with line breaks, as it may be sent
    await api.http.post("/scored_data", content=spread, headers={"content-type": "application/json"})
    answer = await api.http.get("/batch?step=0", headers=ndjson)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    head, *lines = map(json.loads, answer.text.splitlines())
    received_at = head.pop("received_at")
    assert head == {"ids": [1, 2], "step": 0}
    assert before <= received_at[0] <= received_at[1] <= time.time()
    assert lines == (await api.get("/batch?step=0"))["batch"]


async def test_the_trainers_totals_are_returned(api) -> None:
    assert (await api.get("/rl/books"))["totals"] is None
    await api.post("/rl/progress", {"steps_trained": 1, "totals": {"sampled_rollouts": 8}})
    await api.post("/rl/progress", {"steps_trained": 2})
    assert (await api.get("/rl/books"))["totals"] == {"sampled_rollouts": 8}


# A second registration: a restarted trainer.


@pytest.mark.parametrize(
    ("state", "silence", "seen"), [("failed", 0, "absent"), ("done", 0, "absent"), ("working", 16, "absent")]
)
async def test_a_restarted_trainer_forgets_how_the_last_environment_ended(start_api, *, state, silence, seen) -> None:
    async with start_api() as api:
        await api.lease("environment", state)
        await api.post("/register", build.trainer_registration())
        assert (await api.lease("trainer", "starting"))["peer"]["state"] == state, "the first registration"
        api.clock.now += silence
        await api.post("/register", build.trainer_registration())
        assert (await api.lease("trainer", "starting"))["peer"]["state"] == seen
    async with start_api() as api:
        assert (await api.lease("trainer", "starting"))["peer"]["state"] == seen


# Leases, progress, metrics.


async def test_each_side_sees_the_other(api) -> None:
    first = await api.lease("trainer", "starting")
    assert first == {
        "self": {"state": "starting", "reason": None},
        "peer": {"state": "absent", "reason": None},
        "no_space": None,
        "run_over": False,
        "current_step": 0,
        "total_steps": None,
        "evaluated_step": None,
        "environment_state": None,
    }
    await api.begin(num_steps=10)
    answer = await api.lease("environment", "failed", "the reward raised ValueError")
    assert (answer["peer"]["state"], answer["total_steps"]) == ("starting", 10)
    answer = await api.lease("trainer", "working")
    assert answer["peer"] == {"state": "failed", "reason": "the reward raised ValueError"}
    assert answer["run_over"] is False, "the trainer decides what an environment's death means"


async def test_what_an_environment_warns_of_stands_until_its_next_heartbeat(api) -> None:
    report = {"state": "working", "warnings": ["the grader pays for nothing", "x" * 2_000], "ttl_seconds": 15}
    await api.http.put("/rl/lease/environment", json=report)
    warnings = (await api.lease("trainer", "working"))["peer"]["warnings"]
    assert (warnings[0], len(warnings[1])) == ("the grader pays for nothing", 1_000)
    await api.lease("environment", "working")
    assert "warnings" not in (await api.lease("trainer", "working"))["peer"]
    too_many = await api.http.put("/rl/lease/environment", json=report | {"warnings": ["x"] * 9})
    assert too_many.status_code == 422


async def test_an_environments_state_goes_to_the_trainer_and_to_the_one_that_replaces_it(api) -> None:
    """From the checkpoint, by the trainer's registration, until an environment reports a newer one."""
    await api.post("/register", build.trainer_registration(environment_state='{"level": 1}'))
    assert (await api.lease("environment", "starting"))["environment_state"] == '{"level": 1}'
    report = {"state": "working", "environment_state": '{"level": 2}', "id": "a", "ttl_seconds": 15}
    await api.http.put("/rl/lease/environment", json=report)
    assert (await api.lease("trainer", "working"))["peer"]["environment_state"] == '{"level": 2}'
    other = await api.http.put(
        "/rl/lease/environment", json=report | {"id": "b", "index": 1, "environment_state": "{}"}
    )
    assert other.json()["environment_state"] == '{"level": 2}', "that of the evaluating environment"
    replacing = await api.http.put("/rl/lease/environment", json={"state": "starting", "id": "c", "ttl_seconds": 15})
    assert replacing.json()["environment_state"] == '{"level": 2}'
    too_long = await api.http.put("/rl/lease/environment", json=report | {"environment_state": "x" * 513})
    assert too_long.status_code == 422


async def test_items_are_dealt_followed_and_given_back_when_a_process_is_silent(api) -> None:
    """From where the checkpoint was that training continues from; its group says which item it is of."""
    assert await api.post("/rl/items", {"id": "a", "count": 2}) == {"positions": []}, "nobody knows yet where"
    at = (await api.get("/rl/items/state?step=0"))["items"]
    assert at == '{"next":0}'
    await api.begin(items='{"next":5,"trained":5}')
    assert await api.post("/rl/items", {"id": "a", "count": 2, "epoch_size": 4}) == {"positions": [5, 6]}
    told = {"environment": 0, "position": 5, "holder": "a"}
    await api.post("/scored_data", build.group(group_overrides=told))
    report = {"state": "working", "ttl_seconds": 60}
    await api.http.put("/rl/lease/environment", json=report | {"id": "a"})
    api.clock.now += 20
    assert await api.post("/rl/items", {"id": "b", "count": 1}) == {"positions": [7]}, "a still has its lease"
    api.clock.now += 41
    assert await api.post("/rl/items", {"id": "b", "count": 2, "held": [7]}) == {"positions": [6, 8]}
    await api.post("/scored_data", build.group(first_token=8, group_overrides=told | {"position": 6}))
    books = await api.get("/rl/books")
    assert books["groups"]["dropped"] == {"dealt_again": 1}
    assert books["items"] == {
        "seen": 9, "trained": 5, "dropped": {}, "under_way": 4, "again": 1, "epoch": 2, "epoch_size": 4,
    }  # fmt: skip
    assert (await api.get("/rl/items/state?step=0"))["items"].startswith('{"next":9,"open":')


@pytest.mark.parametrize(("state", "silence"), [("failed", 0.0), ("working", 15.1)])
async def test_a_gone_trainer_ends_the_run(api, state, silence) -> None:
    env_id = await api.begin(num_steps=10)
    await api.lease("trainer", state, "out of memory")
    api.clock.now += silence
    answer = await api.lease("environment", "working")
    assert answer["run_over"] is True
    assert (await api.get("/status-env", {"env_id": env_id}))["current_step"] == 11
    assert await api.get("/status") == {"current_step": 11, "queue_size": 0}


async def test_steps_count_as_trained_not_as_formed(api) -> None:
    env_id = await api.begin()
    await api.post("/scored_data_list", [build.group()] * 4)
    await api.get("/batch")
    assert (await api.get("/status-env", {"env_id": env_id}))["current_step"] == 0
    assert await api.post("/rl/progress", {"steps_trained": 1}) == {"current_step": 1}
    assert (await api.get("/status-env", {"env_id": env_id}))["current_step"] == 1


async def test_metrics_are_relayed_in_order(api) -> None:
    for step in (0, 1):
        report = {"step": step, "metrics": {"env/reward_mean": 0.5 + step}, "source": "runner"}
        assert await api.post("/rl/metrics", report) == {"seq": step + 1}
    answer = await api.get("/rl/metrics")
    assert answer["last"] == 2
    assert [record["metrics"] for record in answer["records"]] == [
        {"env/reward_mean": 0.5},
        {"env/reward_mean": 1.5},
    ]
    assert [record["seq"] for record in (await api.get("/rl/metrics?after=1"))["records"]] == [2]
    assert await api.get("/rl/metrics?after=2") == {"records": [], "last": 2}


async def test_what_an_evaluation_says_of_its_figure_reaches_the_trainer(api) -> None:
    report = {"step": 4, "metrics": {"eval/percent_correct": 0.5}, "source": "evaluation"}
    await api.post("/rl/metrics", report | {"metric": "eval/mean_reward", "temperature": 0.7})
    await api.post("/rl/metrics", report)
    told, untold = map(MetricsRecord.model_validate, (await api.get("/rl/metrics"))["records"])
    assert told.held_out == EvaluatedFigure(metric="eval/mean_reward", value=0.5, step=4, temperature=0.7)
    assert untold.held_out == EvaluatedFigure(value=0.5, step=4)


async def test_a_client_that_leaves_mid_body_is_not_an_internal_error(api) -> None:
    """A killed environment leaves like this: half of a group counts as nothing, the next one is accepted as usual."""
    messages = [{"type": "http.request", "body": b'{"tokens": [[1,', "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/scored_data", "headers": [], "query_string": b""}
    await trajectory_app(api.service)(scope, receive, send)
    assert sent[0]["status"] == 400
    assert (await api.get("/status"))["queue_size"] == 0


TRAINERS = {
    ("POST", "/register"),
    ("GET", "/batch"),
    ("GET", "/latest_example"),
    ("PUT", "/rl/lease/trainer"),
    ("POST", "/rl/progress"),
    ("POST", "/rl/drop"),
    ("GET", "/rl/books"),
    ("GET", "/rl/items/state"),
    ("GET", "/rl/metrics"),
}


def routes() -> set[tuple[str, str]]:
    return {(method, route.path) for route in ROUTES if isinstance(route, Route) for method in route.methods or ()}


def own_address() -> str:
    """An address of this machine that is not on loopback; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no IPv4 address beside loopback")
        return str(probe.getsockname()[0])


@pytest.fixture
async def open_port(api) -> AsyncIterator[int]:
    """A second api, on all addresses."""
    async with serve(trajectory_app(api.service), bind("0.0.0.0", 0, "RL_API_URL")) as port:
        yield port


async def ask(address: str, port: int, method: str, path: str, **options) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://{address}:{port}", trust_env=False, timeout=60) as client:
        return await client.request(method, path, **options)


HELD = {("GET", "/rl/lease/environment"), ("GET", "/rl/lease/trainer")}
"""Never answered: a connection that is held."""


@pytest.mark.parametrize(("method", "path"), sorted(routes() - {("HEAD", path) for _, path in routes()} - HELD))
async def test_admitted_peers(open_port, method, path) -> None:
    near = await ask("127.0.0.1", open_port, method, path)
    far = await ask(own_address(), open_port, method, path)
    assert near.status_code != 403
    if (method, path) in TRAINERS:
        assert far.status_code == 403
        assert far.json()["detail"] == (
            f"{method} {path} is for the run's trainer, which calls it on loopback; this request came from "
            f"{own_address()}: an environment has no need of it"
        )
    else:
        assert far.status_code == near.status_code


async def test_only_the_trainer_holds_the_trainers_connection(open_port) -> None:
    assert (await ask(own_address(), open_port, "GET", "/rl/lease/trainer")).status_code == 403


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
async def test_no_header_makes_a_peer_local(open_port, header) -> None:
    answer = await ask(own_address(), open_port, "GET", "/rl/books", headers={header: "127.0.0.1"})
    assert answer.status_code == 403


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-real-ip"])
async def test_no_header_makes_a_local_peer_remote(open_port, header) -> None:
    assert (await ask("127.0.0.1", open_port, "GET", "/rl/books", headers={header: "192.0.2.7"})).status_code == 200


async def test_head_is_refused_like_get(open_port) -> None:
    assert (await ask(own_address(), open_port, "HEAD", "/rl/books")).status_code == 403


async def test_nothing_is_done_for_a_refused_peer(api, open_port) -> None:
    await api.begin()
    await api.post("/scored_data", build.group())
    for method, path in sorted(TRAINERS):
        body = {"state": "failed", "steps_trained": 9, "training_done": True, "ids": [1], "reason": "x"}
        await ask(own_address(), open_port, method, path, json=build.trainer_registration() | body)
    assert (await api.lease("environment", "working"))["run_over"] is False
    assert (await api.books())["groups"]["queued"] == 1


def test_every_route_is_in_the_table_of_reasons() -> None:
    assert [path for _, path in sorted(routes()) if f"{path}`" not in str(api_routes.__doc__)] == []
