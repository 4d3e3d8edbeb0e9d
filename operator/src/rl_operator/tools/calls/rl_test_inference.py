"""rl_test_inference: how a provider's models do in an environment, before anything is trained."""

import secrets
from typing import Annotated

from pydantic import Field

from rl_contract.env_vars import RL_INFERENCE_API_KEY, RL_INFERENCE_URL
from rl_operator.api.kubernetes_objects import JobObject
from rl_operator.api.names import TRIAL_LABEL
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import InferenceProvider, Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ForbiddenError
from rl_operator.render.trial import MAX_MODELS, Trial, trial_config_map, trial_job, trial_name
from rl_operator.targets.inputs.file_inputs import FileInputs, judged
from rl_operator.tools.agent_tool import Answer, Arguments, OptionalRun, ToolRefusedError, agent_tool
from rl_operator.tools.call_context import LONGEST_WAIT_SECONDS, CallContext, awaited
from rl_operator.tools.runs import chosen_run
from rl_operator.tools.trial_results import answer_of, take_snapshot


def tried_inputs(context: CallContext, run: TrainingRun) -> RunInputs:
    """Raises ToolRefusedError: what would be refused as a run cannot be tried either."""
    inputs, refusals = judged(run, FileInputs(context.target))
    if inputs is None or refusals:
        raise ToolRefusedError(
            f"{run.metadata.name} cannot be tested: {refusals[0].sentence}; fix it with rl_edit_config",
            refusals=[refusal.to_wire() for refusal in refusals],
        )
    if inputs.environment.own and inputs.environment.own.spec.openenv:
        raise ToolRefusedError(
            f"{run.metadata.name} cannot be tested: a test runs models alone, and {run.spec.environment} needs its "
            "OpenEnv server beside it; start a run of a few steps instead (total_steps)"
        )
    if inputs.environment.pending:
        raise ToolRefusedError(f"{inputs.environment.pending[1]} Ask again in a few seconds.", retryable=True)
    return inputs


def provider_of(context: CallContext, run: TrainingRun, runtime: Runtime) -> InferenceProvider:
    target, name = context.target, runtime.metadata.name
    provider = target.inference_provider(runtime)
    if provider is None:
        here = f", or export {RL_INFERENCE_URL} and {RL_INFERENCE_API_KEY} where this is called from"
        raise ToolRefusedError(
            f"there is no model to ask: runtime {name} names no provider. Set spec.inference (url, keySecret, models) "
            f"of RLRuntime {name} to an OpenAI-compatible API{here if target.runs_files else ''}"
        )
    secret, namespace = provider.key_secret, run.metadata.namespace
    if secret and target.has_key(namespace, name, RL_INFERENCE_API_KEY, secret) is False:
        how = (
            f"export {RL_INFERENCE_API_KEY}=… where this is called from"
            if target.runs_files
            else f"kubectl -n {namespace} create secret generic {secret.name} --from-literal={secret.key}=…"
        )
        raise ToolRefusedError(f"the key of {provider.url} is missing: {how}")
    return provider


Model = Annotated[str, Field(min_length=1, max_length=253)]
Prompt = Annotated[str, Field(min_length=1, max_length=4_000)]


class InferenceTest(Arguments):
    num_steps: int = Field(default=3, ge=1, le=20, description="Items to try.")
    group_size: int = Field(default=16, ge=1, le=64, description="Answers to each item.")
    models: tuple[Model, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_MODELS,
        description="Default: the provider's.",
    )
    prompts: tuple[Prompt, ...] | None = Field(
        default=None, min_length=1, max_length=20, description="Instead of items."
    )
    max_tokens: int = Field(default=256, ge=1, le=32_768, description="For prompts.")
    temperature: float = Field(default=1.0, ge=0, le=2, description="For prompts.")
    run_id: OptionalRun = None
    wait_seconds: float = Field(default=0, ge=0, le=LONGEST_WAIT_SECONDS, description="Wait for the end, e.g. 50.")
    test_id: str | None = Field(default=None, max_length=63, description="Look at this test again.")
    steps: bool = Field(default=False, description="Show every step.")


@agent_tool(
    "Test an environment with models",
    "How a provider's models do in a draft's environment, before training. Takes up to 10 minutes per "
    "model, at the provider's price.",
    "starts",
)
def rl_test_inference(context: CallContext, asked: InferenceTest) -> Answer:
    job, message = _job(context, asked)
    seen = awaited(
        context,
        take_snapshot(context, job),
        lambda: take_snapshot(context, job),
        lambda seen: not seen.is_going,
        asked.wait_seconds,
    )
    return answer_of(job, seen, steps=asked.steps) | {"message": message}


def _job(context: CallContext, asked: InferenceTest) -> tuple[JobObject, str]:
    """The requested test, and a sentence about it."""
    if asked.test_id:
        return _named_job(context, asked.test_id), "this is how far that test is"
    run = chosen_run(context, asked.run_id)
    if going := _job_that_is_on(context, run):
        return going, "a test of this run is already in progress; no other was started"
    return _start(context, run, asked), "started; ask again with test_id"


def _start(context: CallContext, run: TrainingRun, asked: InferenceTest) -> JobObject:
    """The created Job. Raises ForbiddenError if the caller may not create Jobs."""
    inputs = tried_inputs(context, run)
    provider = provider_of(context, run, inputs.runtime)
    models = asked.models or provider.models
    if not models:
        raise ToolRefusedError(f"name the models to test in `models`, as {provider.url} calls them")
    size = asked.group_size if "group_size" in asked.model_fields_set or not asked.prompts else 1
    trial = Trial(models, asked.num_steps, size, asked.prompts or (), asked.max_tokens, asked.temperature)
    own, name = inputs.environment.own, trial_name(run, secrets.token_hex(2)[:3])
    files = (FileInputs(context.target).files(own) if own else None) or {}
    job = trial_job(run, inputs, provider, trial, name=name, files=sorted(files))
    try:
        context.target.create_job(job, trial_config_map(run, inputs, trial, name=name, files=files))
    except ForbiddenError as error:
        raise ForbiddenError(
            f"a test is a Job and a ConfigMap in namespace {run.metadata.namespace}, with your rights: ask for the "
            f"right to create both ({error})"
        ) from error
    return job


def _job_that_is_on(context: CallContext, run: TrainingRun) -> JobObject | None:
    """The run's newest test, if it is still running: a repeated call starts nothing twice."""
    jobs = context.target.jobs(run.metadata.namespace, f"{TRIAL_LABEL}={run.metadata.name}")
    newest = max(jobs, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)
    return newest if newest is not None and take_snapshot(context, newest).is_going else None


def _named_job(context: CallContext, test_id: str) -> JobObject:
    jobs = {job["metadata"]["name"]: job for job in context.target.jobs(context.namespace, TRIAL_LABEL)}
    if test_id not in jobs:
        raise ToolRefusedError(
            f"there is no test {test_id!r} in namespace {context.namespace} of {context.target.label}; "
            f"tests are kept for a day, or until their run is deleted",
            available=sorted(jobs)[-10:],
        )
    return jobs[test_id]
