"""Settings of the operator process: one table; each is a flag and an `RL_OPERATOR_*` variable (the flag wins)."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal, Self, cast, get_args, get_type_hints

from rl_operator.api.kubernetes_objects import PolicyPeer

PREFIX = "RL_OPERATOR_"

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    kubeconfig: Annotated[str, "kubeconfig file; empty: the pod's service account, else KUBECONFIG"] = ""
    context: Annotated[str, "context of the kubeconfig; empty: its current one"] = ""
    namespace: Annotated[str, "the one namespace to serve; empty: all of them"] = ""
    operator_namespace: Annotated[
        str, "namespace of catalogs and of the pods that read images; empty: the service account's, else default"
    ] = ""
    lease_name: Annotated[
        str, "Lease in the operator's namespace that one of several operators holds; empty: this is the only one"
    ] = "rl-operator"
    lease_seconds: Annotated[int, "how long after its last renewal a Lease may be taken over"] = 12
    identity: Annotated[
        str, "this process's own name in the Lease; empty: the pod's hostname, elsewhere the hostname and a random part"
    ] = ""
    bundled_image: Annotated[
        str, "image whose catalog came with the operator; empty: that of the runtimes that ship"
    ] = ""
    ops_peers: Annotated[
        str,
        "who may connect to the ops ports of runs besides the operator: NetworkPolicyPeers, a list in JSON (Prometheus,"
        " and where the API server's connections come from)",
    ] = '[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]'
    workers: Annotated[int, "runs that are reconciled at once"] = 10
    connect_seconds: Annotated[float, "how long to wait for the API server at the start"] = 300.0
    request_seconds: Annotated[float, "longest time an API call may take"] = 20.0
    poll_seconds: Annotated[float, "how often a running trainer is polled for its metrics"] = 30.0
    wandb_seconds: Annotated[float, "how often W&B is asked about a running run; only with a WANDB_API_KEY"] = 60.0
    progress_seconds: Annotated[float, "shortest time between two writes of mere progress"] = 60.0
    backoff_seconds: Annotated[float, "pause before a run's second attempt; doubles with each"] = 10.0
    resync_seconds: Annotated[float, "how often everything is listed and looked at again"] = 600.0
    stuck_seconds: Annotated[float, "how long a watch may be silent, or a reconcile or queue stand still"] = 300.0
    probe_host: Annotated[str, "address of /healthz and /readyz"] = "0.0.0.0"  # noqa: S104 -- the kubelet probes the pod's address
    probe_port: Annotated[int, "port of /healthz and /readyz; 0: none"] = 8080
    metrics_host: Annotated[str, "address of /metrics"] = "0.0.0.0"  # noqa: S104 -- scraped from other pods
    metrics_port: Annotated[int, "port of /metrics; 0: none"] = 8081
    log_format: Annotated[LogFormat, "how log lines are written"] = "json"
    log_level: Annotated[LogLevel, "the least that is logged"] = "info"

    @classmethod
    def from_command_line(cls, arguments: Sequence[str], env_vars: Mapping[str, str] = os.environ) -> Self:
        """Read flags and variables. Exits with code 2 and a sentence if a value is not allowed."""
        parser = _parser()
        # Variables become flags that come first: validated alike, and overridden by the command line.
        given = {_flag(field.name): env_vars.get(_variable(field.name)) for field in fields(cls)}
        from_variables = [f"{flag}={value}" for flag, value in given.items() if value is not None]
        settings = cls(**vars(parser.parse_args([*from_variables, *arguments])))
        for name in ("workers", *(field.name for field in fields(cls) if field.name.endswith("_seconds"))):
            if getattr(settings, name) <= 0:
                parser.error(f"{_flag(name)} is {getattr(settings, name)}: it must be greater than 0")
        try:
            settings.named_peers()
        except ValueError as error:
            parser.error(f"{_flag('ops_peers')} is {settings.ops_peers!r}: {error}")
        return settings

    def named_peers(self) -> list[PolicyPeer]:
        """Raises ValueError with what is wrong about `ops_peers`."""
        try:
            peers = json.loads(self.ops_peers)
        except ValueError as error:
            raise ValueError(f"it must be a list in JSON: {error}") from None
        kinds = PolicyPeer.__annotations__
        for peer in peers if isinstance(peers, list) else [peers]:
            if not isinstance(peer, dict) or not peer or not all(isinstance(peer.get(k, {}), dict) for k in kinds):
                raise ValueError(f"{json.dumps(peer)} is no NetworkPolicyPeer: a mapping with {', '.join(kinds)}")
            if unknown := peer.keys() - kinds.keys():
                raise ValueError(f"{min(unknown)!r} is no field of a NetworkPolicyPeer: {', '.join(kinds)}")
        return cast("list[PolicyPeer]", peers)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rl_operator", description="The operator of RLTrainingRuns.")
    hints = get_type_hints(OperatorSettings, include_extras=True)
    for field in fields(OperatorSettings):
        kind, text = get_args(hints[field.name])
        parser.add_argument(
            _flag(field.name),
            default=field.default,
            type=type(field.default),
            choices=get_args(kind) or None,
            help=f"{text} (default: {field.default!r}; {_variable(field.name)})",
        )
    return parser
