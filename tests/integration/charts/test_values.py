"""The charts without a cluster: refused values, and the same objects as `kubectl apply` installs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from tests.integration.charts.helm import OPERATOR_CHART, RUNTIMES_CHART, Document, Helm, HelmError, flags, of_kind
from tests.integration.cluster.control_plane import ROOT
from typer.testing import CliRunner

from rl_operator.cli.commands.tools import app as tools
from rl_operator.documents.parse import load_documents
from rl_operator.documents.shipped import bundled_runtime_text, bundled_runtimes
from rl_operator.documents.yaml_text import read_yaml
from rl_operator.operator_settings import OperatorSettings

REFUSED = [
    (OPERATOR_CHART, "replica", 2, "'replica' not allowed"),
    (OPERATOR_CHART, "replicas", "2", "at '/replicas': got string, want integer"),
    (OPERATOR_CHART, "replicas", 3, "at '/replicas': maximum: got 3, want 2"),
    (OPERATOR_CHART, "image.tags", "1", "at '/image': additional properties 'tags' not allowed"),
    (OPERATOR_CHART, "image.tag", 1.1, "at '/image/tag': got number, want string"),
    (OPERATOR_CHART, "image.digest", "sha256:12", "at '/image/digest'"),
    (OPERATOR_CHART, "image.pullPolicy", "Sometimes", "at '/image/pullPolicy': value must be one of"),
    (OPERATOR_CHART, "imagePullSecrets", ["mine"], "at '/imagePullSecrets/0': got string, want object"),
    (OPERATOR_CHART, "scope.namespaces", ["a", "b"], "at '/scope/namespaces': maxItems: got 2, want 1"),
    (OPERATOR_CHART, "scope.namespaces", ["A_b"], "at '/scope/namespaces/0'"),
    (OPERATOR_CHART, "crds.keep", "yes", "at '/crds/keep': got string, want boolean"),
    (OPERATOR_CHART, "authenticatedReaders.groups", [], "at '/authenticatedReaders/groups': minItems: got 0, want 1"),
    (OPERATOR_CHART, "settings.pollSecond", 10, "at '/settings': additional properties 'pollSecond' not allowed"),
    (OPERATOR_CHART, "settings.pollSeconds", 0, "at '/settings/pollSeconds'"),
    (OPERATOR_CHART, "settings.workers", "ten", "at '/settings/workers': got string, want integer"),
    (OPERATOR_CHART, "settings.namespace", "a", "at '/settings': additional properties 'namespace' not allowed"),
    (OPERATOR_CHART, "resources.limits.memory", "1GB", "at '/resources/limits/memory'"),
    (OPERATOR_CHART, "resources.limit.memory", "1Gi", "at '/resources': additional properties 'limit' not allowed"),
    (OPERATOR_CHART, "wandb.secretName", "My_Key", "at '/wandb/secretName'"),
    (OPERATOR_CHART, "podSecurityContext.runAsUser", 0, "'podSecurityContext' not allowed"),
    (OPERATOR_CHART, "metrics.serviceMonitor.interval", "often", "at '/metrics/serviceMonitor/interval'"),
    (OPERATOR_CHART, "metrics.serviceMonitor.labels.a", 1, "at '/metrics/serviceMonitor/labels/a'"),
    (OPERATOR_CHART, "metrics", {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}},
     "at '/metrics/service/enabled': value must be true"),
    (OPERATOR_CHART, "networkPolicy.runs.from", [{"pods": {}}], "at '/networkPolicy/runs/from/0'"),
    (OPERATOR_CHART, "networkPolicy.toolsFrom", [{"pods": {}}], "at '/networkPolicy/toolsFrom/0'"),
    (OPERATOR_CHART, "tinkerService.persistence.size", "much", "at '/tinkerService/persistence/size'"),
    (OPERATOR_CHART, "tools.service.port", 0, "at '/tools/service/port': minimum: got 0, want 1"),
    (OPERATOR_CHART, "tools.service.type", "Ingress", "at '/tools/service/type': value must be one of"),
    (OPERATOR_CHART, "tools.allowedHosts", ["https://a"], "at '/tools/allowedHosts/0'"),
    (OPERATOR_CHART, "tools.ui", "yes", "at '/tools/ui': got string, want boolean"),
    (OPERATOR_CHART, "nodeSelector.gpu", True, "at '/nodeSelector/gpu': got boolean, want string"),
    (RUNTIMES_CHART, "runtimes", {}, "'runtimes' not allowed"),
    (RUNTIMES_CHART, "environmentImage.repository", "V", "at '/environmentImage/repository'"),
    (RUNTIMES_CHART, "image", "tinker-atropos:dev", "at '/image': got string, want object"),
    (RUNTIMES_CHART, "tiny.specs", {}, "at '/tiny': additional properties 'specs' not allowed"),
    (RUNTIMES_CHART, "test.steps", 0, "at '/test/steps': minimum: got 0, want 1"),
]  # fmt: skip

CHOSEN_BY_THE_CHART = {
    "kubeconfig", "context", "namespace", "operator_namespace", "lease_name", "identity",
    "probe_host", "probe_port", "metrics_host", "metrics_port", "ops_peers",
}  # fmt: skip
JSON_TYPES = {int: {"integer"}, float: {"number"}, str: {"string", None}}
"""None: an enum, which needs no type."""


@pytest.mark.parametrize("chart", [OPERATOR_CHART, RUNTIMES_CHART], ids=lambda chart: chart.name)
def test_lint_finds_nothing(rendering_helm: Helm, chart: Path) -> None:
    rendering_helm("lint", "--strict", chart)


@pytest.mark.parametrize(("chart", "path", "value", "said"), REFUSED, ids=lambda each: getattr(each, "name", None))
def test_a_wrong_value_is_named(rendering_helm: Helm, chart: Path, path: str, value: Any, said: str) -> None:
    with pytest.raises(HelmError) as refusal:
        rendering_helm.rendered(chart, {path: value})
    assert said in str(refusal.value)


def test_every_setting_of_the_operator_can_be_set() -> None:
    schema = json.loads((OPERATOR_CHART / "values.schema.json").read_text(encoding="utf-8"))
    offered = schema["properties"]["settings"]["properties"]
    hints = {name: hint for name, hint in get_type_hints(OperatorSettings).items() if name not in CHOSEN_BY_THE_CHART}
    assert {snake(name) for name in offered} == set(hints)
    for name, property_ in offered.items():
        choices = get_args(hints[snake(name)])
        assert property_.get("type") in JSON_TYPES[str if choices else hints[snake(name)]]
        assert tuple(property_.get("enum", ())) == choices


def test_settings_arrive_as_the_operator_reads_them(rendering_helm: Helm) -> None:
    values = {"settings": {"workers": 1_000_000, "pollSeconds": 0.25, "logLevel": "debug"}, "scope.namespaces": ["a"]}
    settings = OperatorSettings.from_command_line(container_of(rendering_helm, "rl-operator", values)["args"], {})
    assert (settings.workers, settings.poll_seconds, settings.log_level) == (1_000_000, 0.25, "debug")
    assert (settings.namespace, settings.lease_name) == ("a", "rl-operator")
    assert settings.named_peers() == OperatorSettings().named_peers(), "the chart and the operator name the same"


def test_prometheus_keeps_a_way_in(rendering_helm: Helm) -> None:
    peers = [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
        {"ipBlock": {"cidr": "10.0.0.0/24"}},
    ]
    args = container_of(rendering_helm, "rl-operator", {"networkPolicy": {"runs": {"from": peers}}})["args"]
    assert OperatorSettings.from_command_line(args, {}).named_peers() == peers


def pod_of(documents: list[Document], deployment: str) -> Document:
    spec: Document = of_kind(documents, "Deployment", deployment)["spec"]["template"]["spec"]
    return spec


def container_of(helm: Helm, deployment: str, values: dict[str, Any]) -> Document:
    (container,) = pod_of(helm.rendered(OPERATOR_CHART, values), deployment)["containers"]
    found: Document = container
    return found


def notes(helm: Helm, values: dict[str, Any]) -> str:
    """What a person reads after the installation."""
    said = helm("install", "rl-operator", OPERATOR_CHART, "--dry-run=client", *flags(values))
    return said[said.index("NOTES:") :]


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@pytest.mark.parametrize("path", ["argocd/apps", "flux/platform"])
@pytest.mark.parametrize("chart", [OPERATOR_CHART, RUNTIMES_CHART], ids=lambda chart: chart.name)
def test_values_of_the_gitops_examples_are_accepted(rendering_helm: Helm, path: str, chart: Path) -> None:
    documents = example(f"gitops/{path}/{chart.name}")
    spec = next(each for each in documents if each["kind"] in ("Application", "HelmRelease"))["spec"]
    rendering_helm.rendered(chart, spec["values"] if "values" in spec else spec["source"]["helm"]["valuesObject"])


# --- the same as by kubectl ------------------------------------------------------------------------------------------
def example(name: str) -> list[Document]:
    return list(yaml.safe_load_all((ROOT / "examples" / f"{name}.yaml").read_text(encoding="utf-8")))


def rights(documents: list[Document]) -> dict[tuple[str, str], Document]:
    """Everything about who may do what, by kind and name."""
    found = {}
    for document in documents:
        if document["apiVersion"].startswith("rbac.authorization.k8s.io/"):
            metadata = document.pop("metadata")
            labels = {name: value for name, value in metadata.get("labels", {}).items() if "aggregate-to" in name}
            document.pop("apiVersion")
            found[document.pop("kind"), metadata["name"]] = document | {
                "namespace": metadata.get("namespace"),
                "labels": labels,
            }
    return found


def test_every_right_matches_the_example(rendering_helm: Helm) -> None:
    """The operator's, those of people and agents, and who has them."""
    text = rendering_helm.template(OPERATOR_CHART, {}, namespace="rl-operator")
    rendered = rights([each for each in yaml.safe_load_all(text) if each])
    assert {("ClusterRole", "rl-operator-edit"), ("ClusterRoleBinding", "rl-operator-runtime-reader")} <= set(rendered)
    assert rights(example("operator")) == rendered


def test_readers_are_the_groups_that_are_named(rendering_helm: Helm) -> None:
    values = {"authenticatedReaders.groups": ["rl:users", "rl-agents"]}
    found = rights(rendering_helm.rendered(OPERATOR_CHART, values))
    for kind, name in (("RoleBinding", "catalog-reader"), ("ClusterRoleBinding", "runtime-reader")):
        subjects = found[kind, f"rl-operator-{name}"]["subjects"]
        assert [(each["kind"], each["name"]) for each in subjects] == [("Group", "rl:users"), ("Group", "rl-agents")]


def test_in_one_namespace_only_runtimes_are_read_from_the_whole_cluster(rendering_helm: Helm) -> None:
    rendered = rendering_helm.rendered(OPERATOR_CHART, {"scope.namespaces": ["team"]})
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}
    everywhere = of_kind(example("operator"), "ClusterRole", "rl-operator")["rules"]
    assert of_kind(rendered, "ClusterRole", "rl-operator")["rules"] == [r for r in everywhere if r != namespaces]
    role = of_kind(rendered, "Role", "rl-operator-runs")
    assert role["metadata"]["namespace"] == "team"
    runs = of_kind(example("operator"), "ClusterRole", "rl-operator-runs")["rules"]
    assert role["rules"] == [{**namespaces, "verbs": ["get"]}, *runs]


def test_no_secrets_and_no_wildcards(rendering_helm: Helm) -> None:
    documents = rendering_helm.rendered(OPERATOR_CHART, {"tools.enabled": True}) + rendering_helm.rendered(
        RUNTIMES_CHART, {}
    )
    rules = [rule for document in documents for rule in document.get("rules", ())]
    assert len(rules) > 10
    for rule in rules:
        assert "secrets" not in rule["resources"]
        assert not any("*" in word for field in ("apiGroups", "resources", "verbs") for word in rule[field])


def test_the_gateways_arguments(rendering_helm: Helm) -> None:
    values = {
        "tools": {"enabled": True, "readOnly": True, "ui": True, "allowedHosts": ["rl.example.com"]},
        "scope.namespaces": ["a"],
    }
    container = container_of(rendering_helm, "rl-operator-tools", values)
    said = CliRunner().invoke(tools, [*container["command"][2:], *container["args"], "--help"])
    assert container["command"] == ["rlctl", "tools", "serve"]
    assert said.exit_code == 0, said.output
    assert container["args"][2:] == ["--read-only", "--ui", "--namespace=a", "--allow-host=rl.example.com"]


@pytest.mark.parametrize(
    ("path", "namespace", "asked"),
    [("tools.namespace", "", True), ("tools.namespace", "a", False), ("scope.namespaces", ["a"], False)],
)
def test_the_notes_say_when_a_namespace_is_required(
    rendering_helm: Helm, path: str, namespace: Any, asked: bool
) -> None:
    said = notes(rendering_helm, {"tools.enabled": True, path: namespace})
    assert "service/rl-operator-tools 8080:8080" in said
    assert ("-H 'X-RL-Namespace: NAMESPACE' \\\n" in said) is asked


@pytest.mark.parametrize("ui", [True, False])
def test_the_notes_say_where_the_page_is(rendering_helm: Helm, ui: bool) -> None:
    said = notes(rendering_helm, {"tools.enabled": True, "tools.ui": ui})
    assert ("http://127.0.0.1:8080/ui" in said) is ui


def test_the_gateway_has_no_rights(rendering_helm: Helm) -> None:
    documents = rendering_helm.rendered(OPERATOR_CHART, {"tools.enabled": True})
    account = of_kind(documents, "ServiceAccount", "rl-operator-tools")["metadata"]["name"]
    assert pod_of(documents, "rl-operator-tools")["serviceAccountName"] == account
    subjects = [subject["name"] for document in documents for subject in document.get("subjects", ())]
    assert subjects
    assert account not in subjects


@pytest.mark.parametrize("kept", [True, False])
def test_checkpoints_are_on_a_claim_or_the_notes_warn(rendering_helm: Helm, kept: bool) -> None:
    values = {"tinkerService.enabled": True} | ({} if kept else {"tinkerService.persistence.enabled": False})
    documents = rendering_helm.rendered(OPERATOR_CHART, values)
    [volume] = [each for each in pod_of(documents, "tinker-service")["volumes"] if each["name"] == "checkpoints"]
    assert ("persistentVolumeClaim" in volume) is kept
    assert ("PersistentVolumeClaim" in [document["kind"] for document in documents]) is kept
    assert ("CheckpointLost" in notes(rendering_helm, values)) is not kept


@pytest.mark.parametrize(("file", "name"), [("operator", "rl-operator"), ("tinker-service", "tinker-service")])
def test_pods_match_the_example(rendering_helm: Helm, file: str, name: str) -> None:
    """Except for the operator's name for its Lease, and its W&B key, which a value names."""
    values = {"tinkerService.enabled": True, "wandb.secretName": "rl-operator-wandb"}
    pods = [pod_of(each, name) for each in (rendering_helm.rendered(OPERATOR_CHART, values), example(file))]
    for pod in pods:
        pod.pop("topologySpreadConstraints", None)
        if pod["containers"][0].get("args", [""])[0] == "--lease-name=rl-operator":
            del pod["containers"][0]["args"]
        pod["containers"][0].setdefault("imagePullPolicy", "IfNotPresent")
    assert pods[0] == pods[1]


def probes(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    for document in documents:
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            kinds = ("startupProbe", "readinessProbe", "livenessProbe")
            yield from ((f"{container['name']}: {kind}", container[kind]) for kind in kinds if kind in container)


def test_no_probe_takes_a_busy_node_for_a_failure(rendering_helm: Helm) -> None:
    """Kubernetes' default is one second."""
    charts = rendering_helm.rendered(OPERATOR_CHART, {"tinkerService.enabled": True, "tools.enabled": True})
    found = [*probes(charts), *probes(example("operator")), *probes(example("tinker-service"))]
    assert len(found) == 8 + 3 + 2
    assert {where: probe.get("timeoutSeconds") for where, probe in found} == dict.fromkeys(dict(found), 5)


@pytest.mark.parametrize("name", bundled_runtimes())
def test_runtimes_are_the_shipped_ones(rendering_helm: Helm, name: str) -> None:
    rendered = of_kind(read_yaml(rendering_helm.template(RUNTIMES_CHART, {})), "RLRuntime", name)
    assert rendered["spec"] == load_documents(bundled_runtime_text(name))[0]["spec"]


@pytest.mark.parametrize("name", bundled_runtimes())
def test_environments_may_come_from_another_image(rendering_helm: Helm, name: str) -> None:
    rendered = rendering_helm.rendered(
        RUNTIMES_CHART, {"environmentImage": {"repository": "r.example/v", "tag": "1.2"}}
    )
    spec = of_kind(rendered, "RLRuntime", name)["spec"]
    assert (spec["image"], spec["environmentImage"]) == ("tinker-atropos:dev", "r.example/v:1.2")


def test_a_runtimes_spec_is_merged_into_the_shipped_one(rendering_helm: Helm) -> None:
    locked = {"env": {"total_steps": None, "max_token_length": 4096}}
    values = {"default.spec": {"locked": locked, "limits": {"maxActiveRuns": 3}}, "image.repository": "r.example/t"}
    spec = of_kind(rendering_helm.rendered(RUNTIMES_CHART, values), "RLRuntime", "default")["spec"]
    assert spec["image"] == "r.example/t:dev"
    assert spec["limits"] == {"maxActiveRuns": 3}
    assert spec["locked"]["env"]["max_token_length"] == 4096
    assert "total_steps" not in spec["locked"]["env"]
    assert spec["locked"]["env"]["worker_timeout"] == 3600
