"""What `rlctl get` says of a run."""

from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.cli.commands.show_run import describe


def test_the_account_of_items_is_a_line() -> None:
    items = {"seen": 9, "trained": 6, "dropped": {"equal": 1}, "underWay": 2, "epochSize": 6}
    lines = list(describe(run_manifest(items=items), MemoryTarget(), wide=False))
    assert "  items           9 seen = 6 trained + 1 dropped (1 equal) + 2 under way; epoch 1.50 of 6 items" in lines
