"""What the fork server of `tests.forking` has imported before it forks: whatever makes a start slow.

Left out, because to have it already is another thing than to import it:
* atroposlib, and our modules that import it: it binds `wandb`, where the runner has put its relay before;
* wandb itself, for the same reason;
* torch: the trainer and the environments hide it, and transformers looks for it once. An environment's file that
  mentions torch or transformers must find it: that takes a real start;
* what leaves threads behind when it is imported (pyarrow and so datasets, polars): none of them would be in a fork.
"""

import gc
import importlib
import os
import sys

MODULES = (
    "aiohttp", "h2", "httpx", "jinja2", "jsonlines", "markdown", "numpy.random", "openai", "orjson", "PIL",
    "pydantic_cli", "pygments.lexers", "rich", "tenacity", "tinker", "tqdm.asyncio", "transformers", "typer",
    "uvicorn", "yaml", "tinker_atropos.cli", "tinker_atropos.check.check_process",
    "tinker_atropos.environments.runner.environment_process",
    "tinker_atropos.environments.trial.trial_process",
    "tinker_atropos.trainer.inference.inference_routes", "tinker_atropos.trainer.trainer_process",
    "tinker_atropos.trainer.backend.open_training",
    "tinker_atropos.trainer.reporting.prometheus", "tinker_atropos.trainer.trainer_run",
    "tinker_atropos.chat.tokenizer",
    "tinker_atropos.trajectory_api.api_process", "tinker_atropos.weights.export_weights",
    "tinker_atropos.weights.sample_weights",
)  # fmt: skip
LAZY = ("AutoConfig", "AutoTokenizer", "PreTrainedTokenizerBase")  # transformers imports them when they are asked for


def preload() -> None:
    """Import it all, as the programs would. A module that fails is an error: the fork server would pass over it."""
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # as the programs set it: torch is missing on purpose
    sys.modules["torch"] = None  # type: ignore[assignment]  # the import system's way to say "not there"
    try:
        for name in MODULES:
            importlib.import_module(name)
        for name in LAZY:
            getattr(sys.modules["transformers"], name)
    except ImportError as error:
        raise RuntimeError(f"tests/preloaded.py: {error}") from error
    finally:
        del sys.modules["torch"]
    gc.collect()
    gc.freeze()  # a child's collections need not touch, and so copy, what all have in common


preload()
