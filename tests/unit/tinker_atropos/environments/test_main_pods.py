"""The environment container in a separate pod: one of several, replaced, early, and with only its source."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

POD = """
set -e
mount --make-rprivate /
mount --bind "$1" /mnt; shift
mount -t tmpfs tmpfs /var/tmp
mount -o remount,bind,ro /mnt
mount -o remount,bind,ro /
exec unshare --user --map-user=65533 --map-group=65533 env HOME=/var/tmp TMPDIR=/var/tmp "$@"
"""
"""A read-only root and source, one writable folder, and a user that no passwd file knows. The folder is not /tmp: the
checkout may be there.
"""

NAMES = """
mount --make-rprivate /
mount --bind "$1" /etc/hosts; shift
exec "$@"
"""


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    made = subprocess.run(["unshare", "-m", "mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return made.returncode == 0


in_a_namespace = pytest.mark.skipif(not can_unshare(), reason="no mount namespace can be made here (needs root)")


async def evaluated_steps(run) -> list[int]:
    return [record["step"] for record in await run.records() if record["source"] == "evaluation"]


async def test_only_the_first_of_several_environments_evaluates(run):
    run.env_section |= {"steps_per_eval": 1}
    baseline = {"step": 0, "metrics": {"eval/percent_correct": 0.5}, "source": "evaluation", "environment": 0}
    (await run.client.post("/rl/metrics", json=baseline)).raise_for_status()  # of the first one, for which it waits
    await run.served("sort_digits", RL_ENVIRONMENT_INDEX="1")
    assert await evaluated_steps(run) == [0]
    assert {record["environment"] for record in (await run.records())[1:]} == {1}
    assert "rl_purpose" not in {name for request in run.policy.requests for name in request["sampling_params"]}


async def test_a_replacement_environment_does_not_repeat_the_baseline(run):
    first = await run.start_environment("sort_digits")
    await run.register()
    await run.client.get("/batch")  # which starts the run

    async def baseline() -> bool:
        return await evaluated_steps(run) == [0]

    await run.eventually("the baseline is reported", baseline)
    first.handle.send_signal(signal.SIGKILL)
    await first.ends()
    await run.served("sort_digits")
    assert await evaluated_steps(run) == [0, 3]


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_an_address_that_never_resolves_is_waited_for_until_the_deadline(run):
    environment = await run.start_environment(
        "sort_digits", "--trainer-deadline", "2", RL_API_URL="http://rl-api.invalid:8000"
    )
    assert await environment.ends() == 1
    assert "error: the trainer did not start within 2 s: ConnectError: [Errno -" in environment.output
    assert "is RL_API_URL right, and does its pod run?" in environment.output


@in_a_namespace
async def test_names_that_resolve_later_are_waited_for(run):
    """As in a cluster: the environment's pod may exist before the DNS name of the trainer's."""
    hosts = run.folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    env_vars = {
        "RL_API_URL": run.api_url.replace("127.0.0.1", "rl-run.test"),
        "RL_INFERENCE_URL": run.inference_url.replace("127.0.0.1", "rl-run.test"),
    }
    script = ["unshare", "-m", "sh", "-c", NAMES, "sh", str(hosts)]
    environment = await run.start_environment("sort_digits", wrapper=script, **env_vars)
    await environment.says("does not answer yet: ConnectError: [Errno -")
    hosts.write_text("127.0.0.1 localhost rl-run.test\n")
    await run.train()
    assert await environment.ends() == 0, environment.output
    assert await evaluated_steps(run) == [0, 3]


def write_source(folder: Path) -> Path:
    """As a ConfigMap is mounted: links to a folder whose name begins with two dots. The entry imports its sibling."""
    files = folder / "source" / "..2026_11_21"
    files.mkdir(parents=True)
    (files / "grading.py").write_text("def grade(item, completion):\n    return float(completion[:1] < '5')\n")
    (files / "my_env.py").write_text(
        "from grading import grade\n"
        "from tinker_atropos.environments.bundled.sort_digits import SortDigits\n\n\n"
        "class MyEnv(SortDigits):\n"
        "    def score(self, item, completion):\n"
        "        return grade(item, completion)\n"
    )
    for name in ("grading.py", "my_env.py"):
        (folder / "source" / name).symlink_to(f"..2026_11_21/{name}")
    return folder / "source"


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
@in_a_namespace
async def test_source_on_a_read_only_disk_and_a_user_without_a_name(run):
    source = write_source(run.folder)
    config = source / "config.yaml"
    shutil.copy(run.write_config(), config)
    script = ["unshare", "-m", "sh", "-c", POD, "sh", str(source)]
    environment = await run.served("/mnt/my_env.py", wrapper=script, config=Path("/mnt/config.yaml"))
    assert "Traceback" not in environment.output
    assert "could not" not in environment.output.lower()


async def test_nothing_is_written_next_to_the_source(run):
    source = write_source(run.folder)
    await run.served(source / "my_env.py")
    assert files_of(source) == ["..2026_11_21/grading.py", "..2026_11_21/my_env.py", "grading.py", "my_env.py"]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
