"""The parts of Kubernetes' objects that are written or read here, as in the API reference of v1.36 (core/v1, batch/v1,
coordination.k8s.io/v1, networking.k8s.io/v1): a key that is not there, or a value of another type, fails in mypy.

The package `kubernetes` has a class for each of them, without types for what is in it; what goes over the wire, and
what a ConfigMap freezes, are dicts. Fields may be missing, as in the API.
"""

from typing import Any, Literal, TypedDict

Resources = dict[str, dict[str, str | int]]
"""`requests` and `limits`, by resource."""


class OwnerReference(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool
    blockOwnerDeletion: bool


class ManifestMetadata(TypedDict, total=False):
    name: str
    generateName: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: list[str]
    ownerReferences: list[OwnerReference]
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int


class KubernetesObject(TypedDict, total=False):
    """What all kinds have."""

    apiVersion: str
    kind: str
    metadata: ManifestMetadata


class ConfigMapObject(KubernetesObject, total=False):
    immutable: bool
    data: dict[str, str]
    binaryData: dict[str, str]


# --- containers ---------------------------------------------------------------------------------------------------


class KeySelector(TypedDict, total=False):
    """One key of a Secret."""

    name: str
    key: str
    optional: bool


class ValueSource(TypedDict, total=False):
    secretKeyRef: KeySelector


class EnvVar(TypedDict, total=False):
    name: str
    value: str
    valueFrom: ValueSource


class VolumeMount(TypedDict, total=False):
    name: str
    mountPath: str
    subPath: str
    readOnly: bool


class HttpGet(TypedDict):
    path: str
    port: int | str


class ContainerProbe(TypedDict, total=False):
    exec: dict[str, list[str]]
    httpGet: HttpGet
    periodSeconds: int
    timeoutSeconds: int
    failureThreshold: int


class ContainerSecurity(TypedDict, total=False):
    allowPrivilegeEscalation: bool
    capabilities: dict[str, list[str]]
    readOnlyRootFilesystem: bool


class ContainerPort(TypedDict, total=False):
    name: str
    containerPort: int


class Container(TypedDict, total=False):
    name: str
    image: str
    imagePullPolicy: str
    command: list[str]
    args: list[str]
    workingDir: str
    env: list[EnvVar]
    ports: list[ContainerPort]
    restartPolicy: str
    startupProbe: ContainerProbe
    readinessProbe: ContainerProbe
    resources: Resources
    securityContext: ContainerSecurity
    terminationMessagePath: str
    terminationMessagePolicy: str
    volumeMounts: list[VolumeMount]


# --- pods ---------------------------------------------------------------------------------------------------------


class KeyToPath(TypedDict):
    key: str
    path: str


class ConfigMapVolume(TypedDict, total=False):
    name: str
    items: list[KeyToPath]
    optional: bool


class SecretVolume(TypedDict, total=False):
    secretName: str
    items: list[KeyToPath]
    optional: bool


class EmptyDir(TypedDict, total=False):
    sizeLimit: str | int


class Volume(TypedDict, total=False):
    name: str
    configMap: ConfigMapVolume
    secret: SecretVolume
    emptyDir: EmptyDir
    persistentVolumeClaim: dict[str, str]


class PodSecurity(TypedDict, total=False):
    runAsNonRoot: bool
    runAsUser: int
    runAsGroup: int
    fsGroup: int
    fsGroupChangePolicy: str
    seccompProfile: dict[str, str]


class HostAlias(TypedDict):
    ip: str
    hostnames: list[str]


class NamedReference(TypedDict):
    name: str


class PodSpec(TypedDict, total=False):
    schedulingGates: list[NamedReference]
    restartPolicy: str
    activeDeadlineSeconds: int
    automountServiceAccountToken: bool
    enableServiceLinks: bool
    terminationGracePeriodSeconds: int
    hostname: str
    hostAliases: list[HostAlias]
    dnsPolicy: str
    dnsConfig: dict[str, list[str]]
    securityContext: PodSecurity
    initContainers: list[Container]
    containers: list[Container]
    volumes: list[Volume]
    imagePullSecrets: list[NamedReference]
    nodeName: str
    nodeSelector: dict[str, str]
    priorityClassName: str
    runtimeClassName: str
    tolerations: list[dict[str, object]]


class WaitingState(TypedDict, total=False):
    reason: str
    message: str


class RunningState(TypedDict, total=False):
    startedAt: str


class TerminatedState(TypedDict, total=False):
    exitCode: int
    reason: str
    message: str
    startedAt: str
    finishedAt: str


class ContainerStateObject(TypedDict, total=False):
    """One of them."""

    waiting: WaitingState
    running: RunningState
    terminated: TerminatedState


class ContainerStatusObject(TypedDict, total=False):
    name: str
    image: str
    imageID: str
    ready: bool
    started: bool
    restartCount: int
    state: ContainerStateObject
    lastState: ContainerStateObject


class ObjectCondition(TypedDict, total=False):
    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str


class PodStatus(TypedDict, total=False):
    phase: str
    reason: str
    message: str
    startTime: str
    hostIP: str
    podIP: str
    podIPs: list[dict[str, str]]
    conditions: list[ObjectCondition]
    initContainerStatuses: list[ContainerStatusObject]
    containerStatuses: list[ContainerStatusObject]


class PodObject(KubernetesObject, total=False):
    spec: PodSpec
    status: PodStatus


class PodTemplate(TypedDict, total=False):
    metadata: ManifestMetadata
    spec: PodSpec


class JobSpec(TypedDict, total=False):
    backoffLimit: int
    activeDeadlineSeconds: int
    ttlSecondsAfterFinished: int
    template: PodTemplate


class JobObject(KubernetesObject, total=False):
    spec: JobSpec
    status: dict[str, list[ObjectCondition]]


# --- network ------------------------------------------------------------------------------------------------------


class SelectorRequirement(TypedDict, total=False):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str]


class PodSelector(TypedDict, total=False):
    """Empty: everything."""

    matchLabels: dict[str, str]
    matchExpressions: list[SelectorRequirement]


AddressBlock = TypedDict("AddressBlock", {"cidr": str, "except": list[str]}, total=False)


class PolicyPeer(TypedDict, total=False):
    podSelector: PodSelector
    namespaceSelector: PodSelector
    ipBlock: AddressBlock


class NetworkPort(TypedDict, total=False):
    name: str
    protocol: Literal["TCP", "UDP"]
    port: int


PolicyRule = TypedDict(
    "PolicyRule", {"from": list[PolicyPeer], "to": list[PolicyPeer], "ports": list[NetworkPort]}, total=False
)
"""Of `ingress` or `egress`."""


class NetworkPolicySpec(TypedDict, total=False):
    podSelector: PodSelector
    policyTypes: list[Literal["Ingress", "Egress"]]
    ingress: list[PolicyRule]
    egress: list[PolicyRule]


class NetworkPolicyObject(KubernetesObject, total=False):
    spec: NetworkPolicySpec


class ServiceSpec(TypedDict, total=False):
    clusterIP: str
    publishNotReadyAddresses: bool
    selector: dict[str, str]
    ports: list[NetworkPort]


class ServiceObject(KubernetesObject, total=False):
    spec: ServiceSpec


# --- leases -------------------------------------------------------------------------------------------------------


class LeaseSpec(TypedDict, total=False):
    holderIdentity: str
    leaseDurationSeconds: int
    acquireTime: str
    renewTime: str
    leaseTransitions: int


class LeaseObject(KubernetesObject, total=False):
    spec: LeaseSpec


# --- what is only read --------------------------------------------------------------------------------------------


class EventObject(KubernetesObject, total=False):
    """Of events.k8s.io/v1."""

    type: str
    reason: str
    note: str


class DeploymentObject(KubernetesObject, total=False):
    spec: dict[str, int]
    status: dict[str, int]


class SelfSubjectReview(KubernetesObject, total=False):
    status: dict[str, dict[str, str]]


class ServerVersion(KubernetesObject, total=False):
    """What `/version` answers."""

    gitVersion: str


class ApiResources(KubernetesObject, total=False):
    """What a group's version answers."""

    resources: list[NamedReference]


class FailureStatus(TypedDict, total=False):
    """The API server's `Status` about a call that failed."""

    code: int
    message: str
    reason: str


class Manifest(ConfigMapObject, total=False):
    """An object as a person or a store has it, before a model or one of the types above says what its kind holds."""

    spec: dict[str, Any]
    status: dict[str, Any]
