"""Examples for the pages of the kinds, one per use. A test reads each of them and checks the runs."""

from dataclasses import dataclass
from typing import Final

from rl_operator.api.names import ENVIRONMENT_KIND, RUN_KIND, RUNTIME_KIND


@dataclass(frozen=True)
class Example:
    title: str
    text: str


def _run(name: str, spec: str) -> str:
    return f"apiVersion: rl-operator.dev/v1alpha1\nkind: RLTrainingRun\nmetadata: {{name: {name}}}\nspec:\n{spec}"


_PLAIN = _run("sorting", "  environment: sort_digits\n  runtime: tiny\n  config: {total_steps: 40, group_size: 8}\n")
_WANDB = _run(
    "sorting-tracked",
    """\
  environment: sort_digits
  runtime: tiny
  wandb: {project: rl, group: sorting, tags: [smoke], notes: "A first try."}
""",
)
_DRAFT = _run(
    "sorting-draft",
    """\
  environment: sort_digits
  runtime: tiny
  suspend: true                 # checked, not started; `rlctl resume sorting-draft` starts it
""",
)
_CHILD = _run(
    "sorting-more",
    """\
  environment: sort_digits
  runtime: tiny
  startFrom: {run: sorting}     # a new run at step 0, with that run's last weights
  trainer: {learning_rate: 5e-4}
""",
)
_DEADLINES = _run(
    "sorting-bounded",
    """\
  environment: sort_digits
  runtime: tiny
  backoffLimit: 1               # one more attempt after an application failure
  startDeadlineSeconds: 600     # per attempt, until the first group was accepted
  progressDeadlineSeconds: null # no limit
  activeDeadlineSeconds: 86400  # a day in all; where the runtime has prices, budget: {amount: 20, currency: USD}
""",
)
_OWN_RUN = _run("mine", "  environment: own/mine\n  runtime: tiny\n  environmentReplicas: 2\n")

_LAB = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLRuntime
metadata: {name: lab}
spec:
  image: tinker-atropos:dev
  backend:
    keySecret: {name: tinker, key: TINKER_API_KEY}   # in each run's namespace
    prices: {prefill: 0.13, sample: 0.40, train: 0.40}   # of a million tokens, in USD: runs show what they cost
  locked:                                            # the same for every run
    env: {tokenizer_name: Qwen/Qwen3-8B, max_token_length: 8192}
    trainer: {lora_rank: 32}
  bounds:                                            # a run may choose within
    env: {total_steps: {min: 1, max: 2500}}
    trainer: {learning_rate: {max: 1e-3}}
  defaults:                                          # where a run says nothing
    env: {group_size: 16, batch_size: 128}
  limits: {activeDeadlineSeconds: 604800, environmentReplicas: 8}
  namespaceSelector:
    matchLabels: {team: research}
"""
_JUDGED = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLRuntime
metadata: {name: judged}
spec:
  image: tinker-atropos:dev
  backend:
    keySecret: {name: tinker, key: TINKER_API_KEY}
  secretEnvironment:                                 # what environments may get, by name
  - {name: judge, key: JUDGE_API_KEY}
  environmentEgress:                                 # where environments of one's own may connect to
  - {cidr: 203.0.113.0/24, ports: [443]}
"""

_TASKSETS = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLRuntime
metadata: {name: tasksets}
spec:
  image: tinker-atropos:dev                          # of api and trainer
  environmentImage: environment-verifiers:dev        # of the environment; it is read for what it holds
  backend:
    keySecret: {name: tinker, key: TINKER_API_KEY}
  locked:
    env: {tokenizer_name: Qwen/Qwen3-8B, taskset: {split: train}}   # nested, as in a run
  bounds:
    env: {taskset.num_examples: {max: 10000}}        # a range goes by the field's name
"""

_KEPT = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLRuntime
metadata: {name: kept}
spec:
  image: tinker-atropos:dev
  backend:
    keySecret: {name: tinker, key: TINKER_API_KEY}
  rollouts:
    objectStore:                                     # or persistentVolumeClaim: {claimName: rollouts}
      url: s3://team-rl/rollouts
      endpoint: https://minio.storage.svc:9000       # none: Amazon's
      secretName: rollouts-store                     # AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
      certificateAuthority: {configMap: {name: lab-ca}}   # its key ca.crt; none: those that the image trusts
"""

_SOURCE = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLEnvironment
metadata: {name: mine}
spec:
  source:
    configMap: {name: mine, entry: my_env.py}        # kubectl create configmap mine --from-file=my_env.py
"""
_IMAGE = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLEnvironment
metadata: {name: packed}
spec:
  image:
    reference: registry.example.com/my-env:1.2       # tinker-atropos, and the environment beside it
    entry: /opt/env/my_env.py                        # or a name that the image's catalog lists, like verifiers/ID
  resources:
    limits: {memory: 2Gi, ephemeral-storage: 1Gi}
  secretEnvironment:
  - {name: judge, key: JUDGE_API_KEY}                # must be on the runtime's list
"""

_OPENENV = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLEnvironment
metadata: {name: echo}
spec:
  openenv:
    image: registry.example.com/echo-env:1.0         # any OpenEnv server, as its author built it
    maxSessions: 32                                  # as many as the server allows
    resources:
      limits: {memory: 1Gi}
"""
_OPENENV_URL = """\
apiVersion: rl-operator.dev/v1alpha1
kind: RLEnvironment
metadata: {name: elsewhere}
spec:
  openenv:
    url: http://echo-env.games.svc:8000              # the port of its Service and of its pods
"""

EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    RUN_KIND: (
        Example("A run", _PLAIN),
        Example("With metrics on Weights & Biases", _WANDB),
        Example("A draft", _DRAFT),
        Example("From another run's weights", _CHILD),
        Example("With limits of its own", _DEADLINES),
        Example("With an environment of one's own, twice", _OWN_RUN),
    ),
    RUNTIME_KIND: (
        Example("What a platform locks, bounds and sets", _LAB),
        Example("With a key and a way out for environments", _JUDGED),
        Example("With environments from another image", _TASKSETS),
        Example("That keeps rollouts in a bucket", _KEPT),
    ),
    ENVIRONMENT_KIND: (
        Example("Files in a ConfigMap", _SOURCE),
        Example("An image", _IMAGE),
        Example("An OpenEnv server, as an image", _OPENENV),
        Example("An OpenEnv server that runs elsewhere", _OPENENV_URL),
    ),
}
