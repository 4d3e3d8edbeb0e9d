"""What a run would wait for: missing programs, keys, Secrets and environments, each with how to supply it."""

from collections.abc import Iterator
from dataclasses import dataclass

from rl_contract.env_vars import TINKER_API_KEY, WANDB_API_KEY
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import Runtime, SecretKey
from rl_operator.status.text.reasons import REASONS
from rl_operator.targets.target import Missing, Target


@dataclass(frozen=True)
class _Key:
    variable: str
    secret: SecretKey | None
    why: str
    needed: bool = False


def missing_for(target: Target, namespace: str, inputs: RunInputs) -> tuple[Missing, ...]:
    """For a run with these inputs. What cannot be checked is reported, but never as needed."""
    own, allowed = inputs.environment.own, inputs.runtime.spec.secret_environment
    asked = own.spec.secret_environment if own else allowed
    keys = (_Key(secret.key, secret, "environments get it") for secret in asked if secret in allowed)
    return (*missing_in(target, namespace, inputs.runtime, *keys), *_pending(inputs))


def missing_in(target: Target, namespace: str, runtime: Runtime, *more: _Key) -> tuple[Missing, ...]:
    """Programs and the keys that the runtime names, and more keys."""
    spec, name = runtime.spec, runtime.metadata.name
    own = (
        _Key(TINKER_API_KEY, spec.backend.key_secret, f"runtime {name} trains with it", needed=True),
        _Key(WANDB_API_KEY, spec.wandb.key_secret, "curves go to W&B with it; training works without"),
    )
    found = (_looked_for(target, namespace, name, key) for key in (*own, *more))
    return (*target.missing_programs(name), *(missing for missing in found if missing is not None))


def _looked_for(target: Target, namespace: str, runtime: str, key: _Key) -> Missing | None:
    secret = key.secret
    if secret is None or (there := target.has_key(namespace, runtime, key.variable, secret)):
        return None
    if target.runs_files:
        how = f"export {key.variable}=… where this is called from"
        return Missing("variable", key.variable, key.why, how, key.needed)
    if there is None:
        unseen = f"{key.why}; you may not look at Secrets, so it may be there"
        return Missing("Secret", secret.name, unseen, f"kubectl -n {namespace} get secret {secret.name}")
    how = f"kubectl -n {namespace} create secret generic {secret.name} --from-literal={secret.key}=…"
    return Missing("Secret", secret.name, key.why, how, key.needed)


def _pending(inputs: RunInputs) -> Iterator[Missing]:
    """An environment, or the image's catalog of them, that has not been read yet."""
    if inputs.environment.pending is not None:
        reason, sentence = inputs.environment.pending
        advice = REASONS[reason].advice if reason in REASONS else "wait for it"
        yield Missing("environment", reason, sentence, advice)
