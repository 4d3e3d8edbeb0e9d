"""The trainer process: its settings, its two ports, its signals and its result."""

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_contract.env_vars import RL_INFERENCE_URL, RL_OPS_PORT, TINKER_BASE_URL
from rl_contract.trainer_messages import TrainerResult
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig, load_config
from tinker_atropos.errors import ConfigError, InternalError, RunError
from tinker_atropos.library_imports import prepare_for_sdk, uncollected
from tinker_atropos.result import ResultFile, wire_form
from tinker_atropos.rollout_files.rollout_server import rollout_routes
from tinker_atropos.serving import below, bind, json_response, ops_app, serve
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.inference.inference_routes import InferenceServer, inference_app
from tinker_atropos.trainer.reporting.trackers.wandb_tracker import wandb_settings, wandb_tracker
from tinker_atropos.trainer.reporting.trainer_status import chosen
from tinker_atropos.trainer.rollouts.report_route import report_route
from tinker_atropos.trainer.stop_request import StopRequest

logger = logging.getLogger(__name__)


async def run_trainer(settings: Settings, config_path: Path, data: Path | None) -> None:
    """Train one attempt of a run; `data` is the folder of its ledger, None for a temporary one.

    Raises the RunError that ended it; returns if it is done or was stopped cleanly.
    """
    prepare_for_sdk()
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("tinker_atropos").setLevel(logging.INFO)
    if not settings.run_uid:  # no later attempt will continue it, but it may have to go back to a checkpoint of its own
        settings = replace(settings, run_uid=uuid.uuid4().hex)
    results = ResultFile(settings.result_file, TrainerResult(outcome="running", attempt=settings.attempt))
    try:
        config = load_config(config_path, settings.config_sha256)
        results.hold(total_steps=config.env.total_steps)
        with data_folder(data) as folder:
            await _serve(settings, config, results, folder)
    except RunError as error:
        results.write_failure(error)
        raise
    except Exception as error:  # the edge of the process: any error goes into the result
        logger.exception("the trainer failed")
        failure = InternalError(f"{type(error).__name__}: {error}")
        results.write_failure(failure)
        raise failure from error


@contextlib.contextmanager
def data_folder(data: Path | None) -> Iterator[Path]:
    """The data folder; a temporary one is deleted at exit."""
    if data is None:
        with tempfile.TemporaryDirectory(prefix="trainer-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the trainer's folder {data} (--data, RL_DATA_DIR): {error.strerror}") from None
    yield data


async def _serve(settings: Settings, config: RunConfig, results: ResultFile, folder: Path) -> None:
    """Serve both ports while the attempt runs."""
    # The SDK takes 1.7 s of CPU to import: do it only after the config has been checked.
    with uncollected():
        from tinker_atropos.trainer.backend.open_training import TrainingOpener
        from tinker_atropos.trainer.trainer_run import Run
        from tinker_atropos.trainer.update.optimizer import with_learning_rate

    stop = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.ask)
    inference, ops_host, ops_port = settings.inference_address, settings.ops_host, settings.ops_port
    with (
        bind(inference.host, inference.port, RL_INFERENCE_URL) as data_socket,
        bind(ops_host, ops_port, RL_OPS_PORT) as ops_socket,
    ):
        tokenizer = await asyncio.to_thread(Tokenizer, config.env.tokenizer_name)
        config = await asyncio.to_thread(with_learning_rate, config)
        wandb = wandb_settings(settings, config, os.environ)
        sink = wandb_tracker(wandb, os.environ, settings.wandb_close_seconds)
        run = Run(settings, config, results, sink, stop, tokenizer=tokenizer, ledger_folder=folder)
        run.watch_for_freezes()

        async def show_history(request: Request) -> Response:
            """All metrics of each point or, with `?figures=loss,staleness`, only those and the step."""
            asked = request.query_params.get("figures")
            points = run.state.status.history.points
            return json_response({"points": chosen(points, asked.split(",")) if asked else points})

        renderer = chat_renderer(tokenizer, config.base_model, config.env.tool_call_parser)
        inference_server = InferenceServer(run.generator, renderer, config.env.max_token_length, config.base_model)
        kept = rollout_routes(run.keeper.store, run.keeper.listing)
        shown = [Route("/history", show_history), *kept]
        ops = ops_app(run.unready, run.to_wire, shown, run.registry(), settings.ops_token)
        reports = report_route(
            run.keeper, run.state.policy, vocabulary=tokenizer.vocabulary, total_steps=config.env.total_steps
        )
        data = below(inference.path, inference_app(inference_server, [reports]))
        async with serve(data, data_socket), serve(ops, ops_socket):
            sink.start()
            try:
                base_url, probe_T = os.environ.get(TINKER_BASE_URL), tokenizer.encode("hi")
                opener = TrainingOpener(settings, config, base_url, probe_T, run.backend_is_silent, run.spending.used)
                await run.attempt.run(opener)
            except RunError as error:
                results.write_failure(error, run.state.metrics)
                await run.attempt.ending.failed(error)
                raise
            finally:
                await sink.close(wire_form(results.result))
                await run.close()
