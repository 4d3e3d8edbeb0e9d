"""The process: what it refuses to start with, how it ends, and what outlives it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import tinker
from tests.unit.tinker_service.sdk_clients import WAIT, datum, new_model, train
from tinker import types
from tinker.lib.retryable_exception import RetryableException

PROGRAM = str(Path(sys.executable).with_name("tinker-service"))


def refused(folder: Path, *options: str, key: str = "tml-test") -> tuple[int, str]:
    """Exit code and last line of a service that must not start."""
    done = subprocess.run(
        [PROGRAM, "--data", str(folder / "data"), "--port", "0", *options],
        env={"TINKER_API_KEY": key},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()[-1]


@pytest.mark.process
def test_a_key_is_required(tmp_path: Path) -> None:
    code, message = refused(tmp_path, key="")
    assert (code, message[:60]) == (2, "error: the service needs a key that starts with 'tml-', and ")
    assert "TINKER_API_KEY is not set" in message
    (tmp_path / "key").write_text("secret\n")
    code, message = refused(tmp_path, "--key-file", str(tmp_path / "key"))
    assert code == 2
    assert "secret" not in message
    assert refused(tmp_path, "--key-file", "/no/such/file") == (
        2,
        "error: cannot read --key-file /no/such/file: No such file or directory",
    )


@pytest.mark.process
def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    code, message = refused(tmp_path, "--model", str(tmp_path))
    assert code == 2
    assert f"{tmp_path} holds no config.json; give 'bundled' or a model folder" in message


def test_a_port_in_use_is_named(tmp_path: Path, tinker_service) -> None:
    port = tinker_service.url.rpartition(":")[2]
    code, message = refused(tmp_path, "--port", port)
    assert code == 1
    assert f"port {port} on 127.0.0.1 is in use" in message
    assert "--port" in message


def step(model: tinker.TrainingClient) -> np.ndarray:
    """One step on a fixed sequence; the logprobs before it."""
    return train(model, [datum([5, 6, 7], target_tokens=[6, 7, 8], weights=[1.0] * 3)])[0]


def test_a_client_continues_after_the_service_was_killed(tmp_path: Path, start_tinker_service) -> None:
    """SIGKILL between two steps: the client learns what to do, and continues from the last state bit for bit."""
    with start_tinker_service(tmp_path) as service:
        client = tinker.ServiceClient(base_url=service.url, api_key=service.key)
        model = new_model(client)
        step(model)
        state = model.save_state("state").result(WAIT).path
        weights = model.save_weights_for_sampler("weights").result(WAIT).path
        sampler = model.save_weights_and_get_sampling_client().result(WAIT)
        expected = [step(model) for _ in range(2)]
        long = datum([5] * 512, target_tokens=[6] * 512)
        under_way = model.forward_backward([long] * 256, "cross_entropy")
        wait_for_metric(service.url, 'requests_total{operation="forward_backward",status="200"} 4.0')
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(60)
    half_written = tmp_path / "data" / model.model_id / "weights" / ".other.tmp"
    half_written.mkdir()

    with start_tinker_service(tmp_path, "--port", service.url.rpartition(":")[2]):
        assert not half_written.exists()
        with pytest.raises(RetryableException, match="Promise expired/broken"):
            under_way.result(WAIT)
        with pytest.raises(tinker.NotFoundError, match="was restarted; create a training client from its last saved"):
            step(model)
        prompt = types.ModelInput.from_ints([5, 6, 7, 8])
        with pytest.raises(tinker.NotFoundError, match="was restarted; create a new sampling client"):
            sampler.compute_logprobs(prompt).result(WAIT)
        resumed = client.create_training_client_from_state_with_optimizer(state).result(WAIT)
        np.testing.assert_array_equal([step(resumed) for _ in range(2)], expected)
        saved = client.create_sampling_client(model_path=weights).result(WAIT)
        np.testing.assert_allclose(saved.compute_logprobs(prompt).result(WAIT)[1:], expected[0], atol=1e-5)
        client.close("success").result(WAIT)


def wait_for_metric(url: str, text: str) -> None:
    deadline = time.monotonic() + WAIT
    while text not in httpx.get(f"{url}/metrics", timeout=60).text:
        assert time.monotonic() < deadline, f"/metrics never showed {text!r}"
        time.sleep(0.05)


def test_a_full_quota_is_reported_to_the_user_and_training_continues(tmp_path: Path, start_tinker_service) -> None:
    with start_tinker_service(tmp_path, "--max-disk", "0.002") as service:
        client = tinker.ServiceClient(base_url=service.url, api_key=service.key)
        model = new_model(client, rank=16)
        step(model)
        with pytest.raises(tinker.RequestFailedError, match="that --max-disk allows: delete checkpoints"):
            model.save_state("too-large").result(WAIT)
        assert len(step(model)) == 3
        assert "tinker_service_checkpoint_bytes" in httpx.get(f"{service.url}/metrics", timeout=60).text
        client.close("success").result(WAIT)


def test_it_ends_cleanly_on_sigterm(tmp_path: Path, start_tinker_service) -> None:
    with start_tinker_service(tmp_path) as service:
        started = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
        assert time.monotonic() - started < 20


def test_it_ends_by_itself_when_idle(tmp_path: Path, start_tinker_service) -> None:
    """Health probes do not count as requests."""
    with start_tinker_service(tmp_path, "--idle-exit", "1") as service:
        deadline = time.monotonic() + WAIT
        while service.process.poll() is None:
            assert time.monotonic() < deadline, "the idle service did not end"
            try:
                httpx.get(f"{service.url}/api/v1/healthz", timeout=60)
            except httpx.TransportError:
                service.process.wait(WAIT)
            time.sleep(0.1)
        assert service.process.returncode == 0


def test_memory_for_sampling_is_a_setting(tmp_path: Path, start_tinker_service) -> None:
    with start_tinker_service(tmp_path, "--memory", "0.002") as service:
        client = tinker.ServiceClient(base_url=service.url, api_key=service.key)
        sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
        samples = sampler.sample(types.ModelInput.from_ints([5] * 20), 20, types.SamplingParams(max_tokens=30, stop=[]))
        assert [len(sample.tokens) for sample in samples.result(WAIT).sequences] == [30] * 20
        too_long = sampler.sample(types.ModelInput.from_ints([5] * 500), 1, types.SamplingParams(max_tokens=5, stop=[]))
        with pytest.raises(tinker.RequestFailedError, match=r"does not fit into the 2\.05 MiB .* a larger --memory"):
            too_long.result(WAIT)
