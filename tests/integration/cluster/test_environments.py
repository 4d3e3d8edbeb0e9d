"""RLEnvironments: read without being run, checked with file and line, checked again until they are correct."""

from tests.integration.cluster.node import LogNode
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.readers import IMAGE_ID, Readers, field, printed
from tests.integration.cluster.runs import RunsNamespace, install_runtime
from tests.integration.cluster.written_environments import OwnEnvironments

GOOD = '''"""Counting."""
from atroposlib.envs.base import BaseEnv, BaseEnvConfig


class CountConfig(BaseEnvConfig):
    tokenizer_name: str = "bundled"
    total_steps: int = 4
    group_size: int = 4
    batch_size: int = 8
    max_token_length: int = 64
    upto: int = 9


class Counting(BaseEnv):
    """Count to a number."""

    name = "counting"
    env_config_cls = CountConfig
'''
BROKEN = "import os\n\nclass Counting(:\n"
TWO = GOOD + "\n\nclass Other(BaseEnv):\n    name = 'other'\n    env_config_cls = CountConfig\n"


def test_broken_code_is_named_with_file_and_line_and_fixed(runs: RunsNamespace, own: OwnEnvironments) -> None:
    own.write("broken", env=BROKEN)
    own.write("two", env=TWO)
    for name in ("broken", "two", "missing"):
        own.apply(name)
    _, message = own.until("broken", "Stalled", "SyntaxError")
    assert "env.py, line 3" in message
    _, message = own.until("two", "Stalled", "SeveralEnvironments")
    assert "Counting" in message
    assert "Other" in message
    _, message = own.until("missing", "Stalled", "SourceNotFound")
    assert f"ConfigMap {runs.namespace}/missing does not exist" in message
    runs.apply(environment="own/broken", config={})
    refusal = runs.until_phase("Pending")["refusals"][0]
    assert refusal["code"] == "EnvironmentNotReady"
    assert "env.py, line 3" in refusal["hint"]

    versions = own.versions()
    stays("nothing is written while nothing changes", lambda: own.versions() == versions)

    for name in ("broken", "two", "missing"):
        own.write(name, env=GOOD)
    for name in ("broken", "two", "missing"):
        status, _ = own.until(name, "Ready", "EnvironmentFound")
        assert (status["className"], status["entry"]) == ("Counting", "env.py")
        assert status["description"] == "Count to a number."
        fields = {found["name"]: found for found in status["fields"]}
        assert fields["upto"]["default"] == 9
        assert [condition["type"] for condition in status["conditions"]] == ["Ready"]
    runs.until_pod()


def test_an_image_is_read_in_its_environments_namespace(
    runs: RunsNamespace, own: OwnEnvironments, node: LogNode
) -> None:
    readers, image = Readers(runs.admin, runs.namespace, node), f"registry.test/{runs.namespace}:own"
    own.apply("maze", image={"reference": image, "entry": "maze"})
    own.until("maze", "Reconciling", "Discovering")
    pod = readers.until_there(image)["metadata"]
    assert pod["ownerReferences"][0]["name"] == "maze"
    [policy] = runs.admin.items(f"/apis/networking.k8s.io/v1/namespaces/{runs.namespace}/networkpolicies")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["labels"].items(), (
        "anybody's code has no network"
    )
    readers.end(pod["name"], printed("maze", "other", fields=[field("walls", "int", 2)]))
    status, _ = own.until("maze", "Ready", "EnvironmentFound")
    assert (status["className"], status["entry"], status["imageID"]) == ("Maze", "maze", IMAGE_ID)
    assert "walls" in {found["name"] for found in status["fields"]}
    readers.until_gone(image)

    # A change that does not affect the code does not cause another reading.
    generation = own.edit("maze", resources={"limits": {"memory": "1Gi"}})
    wait_for("the status speaks of the new spec", lambda: own.status("maze")["observedGeneration"] == generation)
    assert own.status("maze")["className"] == "Maze"
    assert not readers.of_image(image)


def test_an_image_without_that_environment_lists_the_ones_it_has(
    runs: RunsNamespace, own: OwnEnvironments, node: LogNode
) -> None:
    readers, image = Readers(runs.admin, runs.namespace, node), f"registry.test/{runs.namespace}:own"
    own.apply("maze", image={"reference": image, "entry": "maze"})
    readers.end(readers.until_there(image)["metadata"]["name"], printed("labyrinth"))
    _, message = own.until("maze", "Stalled", "NoEnvironment")
    assert "labyrinth" in message


def test_an_image_that_may_not_be_read_here_says_why(runs: RunsNamespace, own: OwnEnvironments) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}, "status": {"hard": {"pods": "0"}}}
    path = f"/api/v1/namespaces/{runs.namespace}/resourcequotas"
    runs.admin.post(path, quota)
    runs.admin.patch(f"{path}/none/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    own.apply("maze", image={"reference": "registry.test/own:1", "entry": "maze"})
    _, message = own.until("maze", "Reconciling", "DiscoveryFailed")
    assert "exceeded quota: none" in message


def test_impossible_resources_are_named_and_fixed(runs: RunsNamespace, own: OwnEnvironments) -> None:
    own.write("greedy", env=GOOD)
    own.apply("greedy", source={"configMap": {"name": "greedy"}}, resources={"limits": {"memory": 0}})
    _, message = own.until("greedy", "Stalled", "InvalidResources")
    assert message.startswith("spec.resources.limits.memory is 0: ")
    runs.apply(environment="own/greedy", config={})
    assert runs.until_phase("Pending")["refusals"][0]["code"] == "EnvironmentNotReady"
    own.edit("greedy", resources=None)
    own.until("greedy", "Ready", "EnvironmentFound")
    runs.until_pod()


def test_a_namespaces_labels_let_its_runs_start(runs: RunsNamespace) -> None:
    runtime = f"labeled-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=runtime, namespaceSelector={"matchLabels": {"rl": "yes"}})
    runs.apply(runtime=runtime)

    def codes() -> list[str]:  # for a moment the operator may not know the runtime yet
        return [refusal["code"] for refusal in runs.status().get("refusals", [])]

    wait_for("it is refused for its namespace", lambda: codes() == ["NamespaceNotAllowed"])
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}", {"metadata": {"labels": {"rl": "yes"}}})
    runs.succeed(runs.until_pod())
