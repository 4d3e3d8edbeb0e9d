"""Every reason that a condition, an attempt or a failure of a run can give, as data: what it means and what to do.

Reasons are stable words: users search for them, and tools compare them. docs/reference/status.md is made from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rl_contract.processes import TRAINER_PORT
from rl_operator.status.text.phase_table import Situation

_WAITING, _STARTING, _STOPPING = Situation.WAITING, Situation.STARTING, Situation.STOPPING
_FAILED, _REFUSED = Situation.FAILED, Situation.REFUSED


@dataclass(frozen=True, slots=True)
class Meaning:
    """`where`: the situations in which a condition gives the reason. The reason of an attempt's end, which `attempts[]`
    and `failure` give, is a condition's only if it ends the run.
    """

    where: tuple[Situation, ...]
    means: str
    advice: str


def _ends(means: str, advice: str) -> Meaning:
    return Meaning((_FAILED,), means, advice)


def _starts(means: str, advice: str) -> Meaning:
    return Meaning((_STARTING,), means, advice)


def _refuses(means: str, advice: str) -> Meaning:
    return Meaning((_REFUSED,), means, advice)


_BEFORE_AND_AT_START: Final[Mapping[str, Meaning]] = {
    "Accepted": Meaning(tuple(s for s in Situation if s is not _REFUSED), "The spec was checked.", "Nothing."),
    "Starting": Meaning((_WAITING,), "The run was accepted and is about to start.", "Nothing."),
    "Queued": Meaning(
        (_WAITING,),
        "As many runs of the runtime as may are active, or of its namespace there: the run waits for its place.",
        "Wait; an administrator may raise the runtime's limits.maxActiveRuns or maxActiveRunsPerNamespace, or its"
        " maxPriority, up to which spec.priority moves the run in the line.",
    ),
    "Gated": _starts(
        "The pod has a scheduling gate: Kueue, or whatever set the gate, has not admitted it yet; or Kueue has, and the"
        " run waits for a slot of its runtime.",
        "Look at the queue that the message names; the start deadline begins when the gates are gone.",
    ),
    "Restored": Meaning(
        (Situation.STOPPED,),
        "The run came back from a backup of one that was started before.",
        "It starts when it is asked to: do what the message says.",
    ),
    "Expired": Meaning(
        (), "spec.ttlSecondsAfterFinished has passed: the run is deleted. Given as an event.", "Nothing."
    ),
    "Draft": Meaning(
        (Situation.DRAFT,),
        "The run was checked and is suspended before its start.",
        "Set spec.suspend to false to start it.",
    ),
    "CatalogPending": Meaning(
        (_WAITING,),
        "The environments of the runtime's image have not been read yet.",
        "Wait; if it takes minutes, see the RLRuntime's conditions.",
    ),
    "EnvironmentPending": Meaning(
        (_WAITING, _STARTING),
        "The RLEnvironment's code has not been read yet.",
        "Wait; if it takes minutes, see the RLEnvironment's conditions.",
    ),
    "PodStarting": _starts(
        "The attempt's pod is being created, or its containers start.",
        "Nothing; the message says which containers are awaited.",
    ),
}

_TROUBLE_AT_START: Final[Mapping[str, Meaning]] = {
    "NameTaken": Meaning(
        (_WAITING, _STARTING),
        "An object that is not this run's, or one that is still being deleted, has the name of one of its children.",
        "Delete or rename that object, or create the run under another name. It is tried again every few seconds.",
    ),
    "TemplateChanged": Meaning(
        (_WAITING, _STARTING, Situation.RUNNING),
        "A ConfigMap that the run's pods are made from holds something else than what the run was started with: it was"
        " there before the run, or was exchanged. Nothing is made from it; a pod that trains goes on.",
        "Find out who wrote it, then do what the message says: delete it, and it is written again, or start a new run.",
    ),
    "CreationRefused": Meaning(
        (_WAITING, _STARTING),
        "The API server refused to create a child of the run (a quota, an admission rule, missing rights), or what it"
        " is made from is gone. At a runtime with limits.maxActiveRuns the run gives its slot back after a minute.",
        "Do what the message says. It is tried again every few seconds. spec.startDeadlineSeconds counts meanwhile.",
    ),
    "BackendSilent": _starts(
        "The trainer cannot reach its backend: its name does not resolve, the connection is refused or dropped, or TLS"
        " fails. Or it reaches something that answers with errors only, which the message quotes.",
        "Do what the message asks: start the Tinker service, correct the runtime's backend.url, or let the pod out"
        " through the namespace's NetworkPolicies. It is tried until trainer.backend_deadline_seconds have passed.",
    ),
    "TrainerUnheard": _starts(
        "The trainer runs, is not ready, and has not answered the operator: it takes long to start, or a NetworkPolicy"
        " keeps the operator from it, and perhaps it from its backend.",
        "Read its log: rlctl logs NAME -c trainer. In a namespace that denies everything, let the operator in to port"
        f" {TRAINER_PORT}, and the trainer out to DNS and its backend.",
    ),
    "Unschedulable": _starts(
        "No node takes the pod.",
        "Read the scheduler's words in the message; add nodes, or change the RLRuntime's resources, nodeSelector or"
        " tolerations and start a new run.",
    ),
    "PodNotPrepared": _starts(
        "The node has not mounted the pod's volumes or given it a network for a minute.",
        "The pod's events say which: kubectl describe pod. A ConfigMap that is named and gone must come back.",
    ),
    "SecretMissing": _starts(
        "A Secret, or a key in it, that a container takes a variable from does not exist.",
        "Create it with the command in the message; the kubelet retries on its own.",
    ),
    "ClaimMissing": _starts(
        "The PersistentVolumeClaim in which the runtime keeps rollouts does not exist in the run's namespace.",
        "Create it, and the run starts; or have spec.rollouts of the RLRuntime changed, and start a new run.",
    ),
    "ImageNotPulled": _starts(
        "An image cannot be pulled.",
        "Fix the image's name, its registry or imagePullSecrets; the kubelet retries on its own.",
    ),
    "ContainerConfigMissing": _starts(
        "A container takes variables from a ConfigMap or Secret that the kubelet cannot use.",
        "The message is the kubelet's; it retries on its own.",
    ),
    "ContainerNotCreated": _starts(
        "The node's container runtime refuses to create or start a container.",
        "Read its words in the message; the image or the RLRuntime's settings do not fit the node.",
    ),
    "ContainerCrashing": _starts(
        "A container ends again and again, and the kubelet waits before it starts it once more.",
        "The message says how it ended last; its log says more: rlctl logs, and on a cluster kubectl logs --previous.",
    ),
    "SandboxFailing": _starts(
        "None of the run's sandbox pods runs, and what they wait for does not resolve by itself.",
        "Read the message: most often the image of spec.sandbox cannot be pulled, or has no /bin/sh.",
    ),
    "EnvironmentFailing": _starts(
        "A pod of an environment that runs apart failed and is replaced.",
        "Read the environment's words in the message; fix its code and start a new run.",
    ),
}

_WHILE_IT_LIVES: Final[Mapping[str, Meaning]] = {
    "Training": Meaning(
        (Situation.RUNNING,), "The trainer counts steps.", "Nothing; the message says what it waits for."
    ),
    "BackendPaused": Meaning(
        (_STARTING, Situation.RUNNING),
        "The backend has paused the run, for want of capacity or because of a rate limit: it trains on as soon as the"
        " backend has room. No attempt is counted, and deadlines of the start and of progress do not run.",
        "Nothing; the message has the backend's words. After trainer.backend_pause_seconds the attempt ends.",
    ),
    "BackendFull": Meaning(
        (_STARTING, Situation.RUNNING),
        "The backend has no room for one more training run, and is asked again until it has. No attempt is counted,"
        " and deadlines of the start and of progress do not run.",
        "End other runs at that backend, or raise the limit that the message names. After"
        " trainer.backend_pause_seconds the attempt ends.",
    ),
    "DiskFull": Meaning(
        (_STARTING, Situation.RUNNING),
        "A disk that the run writes to is full: it goes on once there is room.",
        "Make room; the message says where.",
    ),
    "Ending": Meaning(
        (Situation.ENDING,),
        "A container of the attempt has ended; the others save, evaluate and follow.",
        "Nothing; the message says which, and how.",
    ),
    "Suspended": Meaning(
        (_STOPPING,), "spec.suspend was set: the trainer saves a checkpoint.", "Wait for the phase Stopped."
    ),
    "PodDeleting": Meaning(
        (_STOPPING,),
        "Someone else is deleting the pod (kubectl, a drain, an autoscaler): the trainer saves a checkpoint.",
        "Nothing; another attempt continues from it.",
    ),
    "EnvironmentsFailed": Meaning(
        (_STOPPING, _FAILED),
        "The environments that run apart failed too often: the attempt is ended.",
        "Read the environment's words in the message.",
    ),
    "Stopped": Meaning(
        (Situation.STOPPED,),
        "The run was stopped as asked and keeps its checkpoint.",
        "Set spec.suspend to false to continue from it.",
    ),
    "BudgetReached": Meaning(
        (Situation.STOPPED,),
        "Another step would cost more than spec.budget: the run is stopped and keeps its checkpoint.",
        "Raise spec.budget: the run continues from its checkpoint; status.cost says what is spent.",
    ),
    "Resuming": Meaning(
        (_WAITING,),
        "spec.suspend was set to false again, or spec.budget was raised: the next attempt is about to start.",
        "Nothing.",
    ),
    "BackOff": Meaning(
        (_WAITING,),
        "An attempt ended without success, and the next one starts after a pause.",
        "Nothing; status.failure says how the last attempt ended.",
    ),
    "Succeeded": Meaning(
        (Situation.SUCCEEDED,), "All steps are trained and the weights are saved.", "rlctl results, sample, export."
    ),
}

_DEADLINES: Final[Mapping[str, Meaning]] = {
    "StartDeadlineExceeded": Meaning(
        (_STOPPING, _FAILED),
        "No group was accepted within spec.startDeadlineSeconds of the pod's creation (or admission).",
        "The message names what it waited for: fix that, and start a new run.",
    ),
    "ProgressDeadlineExceeded": Meaning(
        (_STOPPING, _FAILED),
        "No new step within spec.progressDeadlineSeconds.",
        "The message names what the trainer waited for. Continue with a new run and startFrom.",
    ),
    "ActiveDeadlineExceeded": Meaning(
        (_STOPPING, _FAILED),
        "The run was not finished within spec.activeDeadlineSeconds of its start (or the runtime's limit).",
        "Continue from the checkpoint with a new run and startFrom; give it more time.",
    ),
}

_ENDS_OF_CONTAINERS: Final[Mapping[str, Meaning]] = {
    "ConfigInvalid": _ends("A container refused its configuration (exit code 2).", "Fix what the message names."),
    "CredentialsRefused": _ends(
        "The backend refused the key (exit code 3).", "Put the right key into the runtime's Secret."
    ),
    "BillingRefused": _ends("The backend refuses for billing (exit code 3).", "Settle the account, start a new run."),
    "BackendUnreachable": _ends(
        "The backend did not answer for longer than the trainer waits (exit code 4).",
        "Look at the backend and the network: another attempt follows, every few minutes, until the backend answers or"
        " spec.activeDeadlineSeconds has passed.",
    ),
    "CheckpointLost": _ends(
        "The backend has neither the checkpoint that the run is to continue from nor a newer one: nothing is trained"
        " from an earlier step unasked.",
        "Bring the checkpoint back (the backend's volume, the right key), or start a new run; one with"
        " spec.onLostCheckpoint: Restart goes back on its own.",
    ),
    "Diverged": _ends(
        "Training diverged (a loss, gradient or logprob is not finite), or the policy collapsed: nothing more"
        " is learned from these weights, and another attempt would end the same way.",
        "Start a new run from an earlier checkpoint with what the message names lowered.",
    ),
    "TrainerFailed": _ends("The trainer failed.", "Read its words in the message, and its log."),
    "EnvironmentFailed": _ends("The environment's code failed.", "Read its words in the message; fix its code."),
    "EnvironmentLeftEarly": _ends(
        "The environment ended in order before the training did.", "Its code must serve until the run is over."
    ),
    "EnvironmentLost": _ends("The trainer lost contact with all environments.", "Look at the environment's log."),
    "ProcessSilent": _ends(
        "A process of the run said nothing for too long, and none of them had failed: it was frozen, or short of CPU.",
        "Nothing; another attempt continues from the checkpoint. If it happens again, raise spec.resources of the"
        " RLRuntime.",
    ),
    "ApiFailed": _ends("The trajectory API failed.", "Read its words in the message: most often its disk is full."),
    "OOMKilled": _ends(
        "A container needed more memory than its limit.",
        "Raise the limit that the message names in the RLRuntime, or make smaller groups or shorter answers.",
    ),
    "ContainerLost": _ends(
        "The node lost track of the container: it was restarted, or its container runtime was.",
        "Nothing; another attempt continues from the checkpoint.",
    ),
    "ConfigLost": _ends(
        "The run's ConfigMap was deleted and cannot be recreated as it was: there will be no further attempt.",
        "Start a new run from the checkpoint with startFrom.",
    ),
    "UnexpectedExit": _ends(
        "The pod exited cleanly before training was done, without being asked to.",
        "Nothing; another attempt continues from the checkpoint.",
    ),
}

_LOSSES: Final[Mapping[str, Meaning]] = {
    "Evicted": _ends("The node was short of memory or disk and ended the pod.", "Give the pod larger requests."),
    "PreemptionByScheduler": _ends("A pod of higher priority took its place.", "Give the RLRuntime a priorityClass."),
    "EvictionByEvictionAPI": _ends("The pod was evicted, as by kubectl drain.", "Nothing; another attempt follows."),
    "DeletionByTaintManager": _ends("The node was tainted NoExecute.", "Nothing; another attempt follows."),
    "DeletionByPodGC": _ends("The pod's node no longer exists.", "Nothing; another attempt follows."),
    "TerminationByKubelet": _ends(
        "The node ended the pod: it shuts down, or is short of something.", "Nothing; another attempt follows."
    ),
    "StoppedByKueue": _ends(
        "Kueue evicted the pod: it preempted it, or its queue was stopped.",
        "Nothing; another attempt waits in the queue.",
    ),
    "Disrupted": _ends("The cluster ended the pod; the message has its word for why.", "Nothing; another follows."),
    "PodRejected": _ends(
        "The node refused the pod before anything ran.", "Read the node's words; the scheduler chooses again."
    ),
    "PodDeleted": _ends("Someone deleted the pod.", "Nothing; to stop a run, set spec.suspend to true."),
    "PodLost": _ends(
        "The pod of a running run is gone and left no result.",
        "Nothing; another attempt follows. Someone removed our finalizer and deleted it.",
    ),
    "NodeLost": _ends(
        "The pod should have been gone for a minute and its node says nothing of it.",
        "Nothing; another attempt follows. Should the node come back, its trainer finds the newer attempt and ends.",
    ),
    "SupervisorLost": _ends(
        "Local mode: the supervisor of the run was killed, and its processes with it.", "rlctl resume continues it."
    ),
    "KubeletFailed": _ends("Local mode: a fault of the supervisor ended the pod.", "Report it, with the log."),
}

_REFUSALS: Final[Mapping[str, Meaning]] = {
    "InvalidDocument": _refuses("The object cannot be read.", "Fix what the message names."),
    "MissingField": _refuses("A field that is required is missing.", "Set it."),
    "LockedField": _refuses("The runtime locks the field to another value.", "Leave it out, or choose a runtime."),
    "WiredField": _refuses("The field belongs to the operator.", "Leave it out."),
    "UnknownField": _refuses("There is no such field.", "The message names the nearest."),
    "WrongType": _refuses("The value has the wrong type.", "The message says which is right."),
    "OutOfBounds": _refuses("The value is outside what is allowed.", "The message says what is allowed."),
    "Inconsistent": _refuses("Two values do not fit together.", "The message says how they must."),
    "InvalidName": _refuses("The run's name cannot be used.", "Create it under another name."),
    "UnknownEnvironment": _refuses("There is no such environment.", "The message lists those that there are."),
    "EnvironmentNotReady": _refuses("The RLEnvironment cannot be used.", "Fix it; the run then starts on its own."),
    "RuntimeNotFound": _refuses("There is no such RLRuntime.", "The message lists those that there are."),
    "RuntimeInvalid": _refuses("The RLRuntime cannot be used.", "An administrator fixes what the message names."),
    "NamespaceNotAllowed": _refuses("The runtime does not serve this namespace.", "Choose another runtime."),
    "SecretNotAllowed": _refuses("The runtime may not hand out that Secret.", "An administrator changes it."),
    "StartFromRefused": _refuses("The run cannot start from what startFrom names.", "The message says why."),
    "FrozenField": Meaning(
        (),
        "A setting was edited after the start, which has no effect: given as an event and in status.refusals.",
        "Undo the edit, or start a new run.",
    ),
}

_TROUBLES: Final[Mapping[str, Meaning]] = {
    **_TROUBLE_AT_START,
    **_DEADLINES,
    **_ENDS_OF_CONTAINERS,
    **_LOSSES,
    **_REFUSALS,
}

REASONS: Final[Mapping[str, Meaning]] = {**_BEFORE_AND_AT_START, **_WHILE_IT_LIVES, **_TROUBLES}

TROUBLES: Final = frozenset({*_TROUBLES, "EnvironmentsFailed", "BackOff"})
"""An Event with one of these reasons is a Warning, whenever it is given."""
