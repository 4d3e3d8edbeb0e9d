"""Names that clusters, scripts and dashboards rely on. Changing one is a new API version."""

from typing import Final

GROUP: Final = "rl-operator.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "rl-operator.dev/v1alpha1"

RUN_KIND: Final = "RLTrainingRun"
RUN_PLURAL: Final = "rltrainingruns"
RUNTIME_KIND: Final = "RLRuntime"
RUNTIME_PLURAL: Final = "rlruntimes"
ENVIRONMENT_KIND: Final = "RLEnvironment"
ENVIRONMENT_PLURAL: Final = "rlenvironments"

OWN_PREFIX: Final = "own/"
"""`spec.environment: own/NAME` names an RLEnvironment of the run's namespace."""

HARNESS_PREFIX: Final = "harness/"
"""`spec.environment: harness/NAME` runs a command of the run's author, `config.command`."""

RUN_LABEL = f"{GROUP}/run"
RUN_UID_LABEL = f"{GROUP}/run-uid"
ATTEMPT_LABEL = f"{GROUP}/attempt"
SLOT_LABEL = f"{GROUP}/slot"
INCARNATION_LABEL = f"{GROUP}/incarnation"
DISCOVERY_LABEL = f"{GROUP}/discovery"
"""On a pod that reads an image: key of what is read. Equal keys mean the same reading."""

DISCOVERY_ATTEMPT_LABEL = f"{GROUP}/discovery-attempt"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "rl-operator"

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server gives every namespace."""

REDISCOVER_ANNOTATION = f"{GROUP}/rediscover"
"""On an RLRuntime or RLEnvironment: a changed value causes its image to be read again."""

RUNTIME_ANNOTATION: Final = f"{GROUP}/runtime"
"""On a run's own pod: the RLRuntime at which it holds a slot, also once its run is gone."""

STARTED_AS_ANNOTATION = f"{GROUP}/started-as"
"""On a run that was started: its name and uid. If the uid differs, it was restored from a backup."""

DRAFTED_BY_LABEL: Final = f"{GROUP}/drafted-by"
"""On a run that a tool drafted: a hash of the caller. Each caller has its own latest draft."""

DRAFTED_AT_ANNOTATION: Final = f"{GROUP}/drafted-at"
"""Next to it: when, to the microsecond."""

TRIAL_LABEL: Final = f"{GROUP}/trial"
"""On a Job that tries an environment with a provider's models, and on its pod: the run whose config it has."""

TRIAL_ANNOTATION: Final = f"{GROUP}/trial"
"""Next to it: what is tried, as JSON."""

ROLLOUTS_LABEL: Final = f"{GROUP}/rollouts-of"
"""On a Job that serves the rollouts of a run that has ended, and on its pod: the run's uid."""

EXPERIMENT_LABEL: Final = f"{GROUP}/experiment"
"""On the runs of an experiment, and on the ConfigMap that keeps their table: its name."""

SWEPT_ANNOTATION: Final = f"{GROUP}/swept"
"""On a run of a sweep: the values that it has from the grid, as JSON by path below `spec`."""

LAST_APPLIED_ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Where kubectl keeps what it applied: the object once more."""

QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Kueue's label, copied from a run to its pod: Kueue gates the pod until there is room."""

SLOT_GATE: Final = f"{GROUP}/slot"
"""The scheduling gate of a pod at a runtime with slots: removed when nothing else keeps the pod from starting, and its
run holds one.
"""

POD_FINALIZER = f"{GROUP}/result"
"""Keeps a pod until its result is in the run's status."""

TRAINING_COMPONENT: Final = "training"
ENVIRONMENT_COMPONENT: Final = "environment"
SANDBOX_COMPONENT: Final = "sandbox"
"""Components of a run: its own pod, the pods of environments that run separately, and those of sandboxes."""

API_CONTAINER: Final = "api"
TRAINER_CONTAINER: Final = "trainer"
ENVIRONMENT_CONTAINER: Final = "environment"
CONTAINERS: Final = (API_CONTAINER, TRAINER_CONTAINER, ENVIRONMENT_CONTAINER)
SANDBOX_CONTAINER: Final = "sandbox"
OPENENV_CONTAINER: Final = "openenv"
"""Beside an environment in its own pod: the OpenEnv server that it plays against, which is not ours."""

OUR_CONTAINERS: Final = frozenset({*CONTAINERS, SANDBOX_CONTAINER, OPENENV_CONTAINER})
"""Whoever admits pods may put others into them, like a proxy."""

OPENENV_ENVIRONMENT: Final = "openenv"
"""The environment of our image that plays against an OpenEnv server."""

OBJECT_NAME_PATTERN: Final = "[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
"""A valid name of a Kubernetes object: as a part of a path, it cannot lead elsewhere."""

MAX_RUN_NAME_LENGTH = 52
RUN_NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""DNS-1035: the name becomes part of pod, ConfigMap and Service names."""

REQUIREMENTS_FILE: Final = "requirements.txt"
"""Beside the file of an environment: what it needs. Local mode installs it, a cluster does not."""

DEFAULT_RUNTIME = "default"

BUDGET_REACHED: Final = "BudgetReached"
"""The reason of a run that stopped because another step would have cost more than spec.budget."""
