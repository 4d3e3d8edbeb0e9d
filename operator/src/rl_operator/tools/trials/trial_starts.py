"""From a run to a trial of its environment: checked, rendered, and started with the caller's permissions."""

import secrets

from rl_operator.api.names import INFERENCE_KEY_VARIABLE, INFERENCE_URL_VARIABLE
from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import InferenceProvider, Runtime
from rl_operator.check import check_run, runtime_not_found
from rl_operator.errors import ForbiddenError
from rl_operator.render.trial import Trial, trial_config_map, trial_job, trial_name
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.target import Manifest
from rl_operator.tools.tool import ToolRefusedError
from rl_operator.tools.tool_context import ToolContext


def start(
    context: ToolContext, run: TrainingRun, inputs: RunInputs, provider: InferenceProvider, trial: Trial
) -> Manifest:
    """The created Job. Raises ForbiddenError if the caller may not create Jobs."""
    own = inputs.environment.own
    files = (FileInputs(context.target).files(own) if own else None) or {}
    name = trial_name(run, secrets.token_hex(2)[:3])
    job = trial_job(run, inputs, provider, trial, name=name, files=sorted(files))
    try:
        context.target.create_job(job, trial_config_map(run, inputs, trial, name=name, files=files))
    except ForbiddenError as error:
        raise ForbiddenError(
            f"a test is a Job and a ConfigMap in namespace {run.metadata.namespace}, with your rights: ask for the "
            f"right to create both ({error})"
        ) from error
    return job


def tried_inputs(context: ToolContext, run: TrainingRun) -> RunInputs:
    """Raises ToolRefusedError: what would be refused as a run cannot be tried either."""
    source = FileInputs(context.target)
    inputs = inputs_of(run, source)
    refusals = check_run(run, inputs) if inputs else (runtime_not_found(run, source.runtime_names()),)
    if refusals:
        raise ToolRefusedError(
            f"{run.metadata.name} cannot be tested: {refusals[0].sentence}; fix it with rl_edit_config",
            refusals=[refusal.to_wire() for refusal in refusals],
        )
    assert inputs is not None, "a run without a runtime is refused"
    if inputs.environment.own and inputs.environment.own.spec.openenv:
        raise ToolRefusedError(
            f"{run.metadata.name} cannot be tested: a test runs models alone, and {run.spec.environment} needs its "
            "OpenEnv server beside it; start a run of a few steps instead (total_steps)"
        )
    if inputs.environment.pending:
        raise ToolRefusedError(f"{inputs.environment.pending[1]} Ask again in a few seconds.", retryable=True)
    return inputs


def provider_of(context: ToolContext, run: TrainingRun, runtime: Runtime) -> InferenceProvider:
    target, name = context.target, runtime.metadata.name
    provider = target.inference_provider(runtime)
    if provider is None:
        here = f", or export {INFERENCE_URL_VARIABLE} and {INFERENCE_KEY_VARIABLE} where this is called from"
        raise ToolRefusedError(
            f"there is no model to ask: runtime {name} names no provider. Set spec.inference (url, keySecret, models) "
            f"of RLRuntime {name} to an OpenAI-compatible API{here if target.runs_files else ''}"
        )
    secret, namespace = provider.key_secret, run.metadata.namespace
    if secret and target.has_key(namespace, name, INFERENCE_KEY_VARIABLE, secret) is False:
        how = (
            f"export {INFERENCE_KEY_VARIABLE}=… where this is called from"
            if target.runs_files
            else f"kubectl -n {namespace} create secret generic {secret.name} --from-literal={secret.key}=…"
        )
        raise ToolRefusedError(f"the key of {provider.url} is missing: {how}")
    return provider
