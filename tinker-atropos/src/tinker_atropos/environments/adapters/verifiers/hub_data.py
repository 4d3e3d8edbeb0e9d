"""Data that a taskset loads from a hub, which an environment's pod cannot reach: one sentence with the way out."""

import traceback
from collections.abc import Iterator
from typing import Final

from tinker_atropos.environments.rollout.failures import MAX_MESSAGE

HUB_CLIENTS: Final = frozenset({"datasets", "huggingface_hub", "requests", "urllib3", "httpx", "httpcore"})
WORD_LISTS: Final = "nltk"

HUB_ADVICE: Final = (
    "mount a Hugging Face cache that has it, and set HF_HOME to its folder and HF_DATASETS_OFFLINE=1 (its datasets/ is "
    "what `datasets.load_dataset` leaves behind where it can reach the hub)"
)
WORD_ADVICE: Final = "mount a folder with NLTK's data that has it, and set NLTK_DATA to that folder"


def missing_data(environment: str, error: BaseException) -> str | None:
    """None if the error is about something else."""
    for cause in _chain(error):
        message = next((line for line in str(cause).splitlines() if line.strip(" *")), "").strip()[:MAX_MESSAGE]
        said = f"{type(cause).__name__}: {message}"
        clients = _modules(cause)
        if isinstance(cause, LookupError) and WORD_LISTS in clients:
            return f"{environment} needs word lists, which are not here ({said}): {WORD_ADVICE}"
        if isinstance(cause, OSError) and clients & HUB_CLIENTS:
            return f"{environment} loads data from a hub, which is not here ({said}): {HUB_ADVICE}"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from, outermost first."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _modules(error: BaseException) -> set[str]:
    """The top-level modules of the code that the error went through, and that of its class."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    return {name.partition(".")[0] for name in (*names, type(error).__module__)}
