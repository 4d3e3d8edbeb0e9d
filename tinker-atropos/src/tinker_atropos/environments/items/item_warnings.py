"""What a run's status and a check say about an environment's items."""

from typing import Final

TOO_SLOW_TO_SKIP: Final = (
    "the environment takes too long to draw items (get_next_item) for drawing past those of other processes or of an "
    "earlier attempt: from now on it may train the same ones"
)
DRAWS_ITEMS: Final = (
    "the environment draws its items itself (get_next_item), in an order that only its code knows: it gets the run's "
    "seed, and draws past items that were dealt before or to other processes, yet nothing promises that none is missed "
    "or comes again"
)


def warnings_about_items(*, draws_items: bool, epoch_size: int | None, groups: int) -> list[str]:
    """`epoch_size`: how many items there are, if that is known. `groups`: of a batch."""
    if draws_items:
        return [DRAWS_ITEMS]
    if epoch_size is None or epoch_size >= groups:
        return []
    few = f"the environment has {epoch_size:,} items to train on, and a batch takes {groups:,}"
    return [f"{few} (env.batch_size / env.group_size): each step trains some more than once; add items, or lower it"]
