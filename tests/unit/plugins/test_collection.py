"""No garbage is looked for in what was collected."""

import gc


def test_what_was_collected_is_never_looked_at_again() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
