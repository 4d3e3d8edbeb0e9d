"""Durations in coarse steps: a message shown during a wait must not change every second.

Clients that watch `/status` write down every change; a wait of an hour is worth a few updates, not 3,600.
"""

STEPS = {
    10: "10 s", 30: "30 s", 60: "1 min", 120: "2 min", 300: "5 min", 600: "10 min", 1800: "30 min",
    3600: "1 h", 7200: "2 h", 21_600: "6 h", 43_200: "12 h", 86_400: "1 day", 604_800: "1 week",
}  # fmt: skip


def more_than(seconds: float) -> str:
    """`more than 2 min`: the longest of STEPS that has passed; before the first one, `a few seconds`."""
    passed = [words for step, words in STEPS.items() if step <= seconds]
    return f"more than {passed[-1]}" if passed else "a few seconds"
