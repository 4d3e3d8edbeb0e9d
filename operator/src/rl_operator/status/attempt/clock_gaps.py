"""When a clock jumped, or whoever watches a run stood still: deadlines and pauses count only the time in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

SECOND: Final = timedelta(seconds=1)
"""Recorded times are in whole ones, rounded down."""


@dataclass(frozen=True, slots=True)
class ClockGap:
    """The clock at the last look before, and at the first one after. It may have gone back meanwhile."""

    began: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class ClockGaps:
    """All of them that concern a run, in the order in which they happened. A cluster has none: its time cannot jump."""

    gaps: Sequence[ClockGap] = ()

    def moved(self, moment: datetime, now: datetime) -> datetime:
        """When a recorded moment would have been by today's clock, had it never jumped: as long before `now` as the
        run was watched since.

        A clock that goes back shows some moments twice. One that may be from after the jump is taken for that, unless
        it is still to come: a deadline may be late then, but is never early.
        """
        found = moment
        for gap in self.gaps:
            forwards = gap.ended >= gap.began
            before = found <= gap.began if forwards else found < gap.ended - SECOND or moment > now or found != moment
            if before:
                found += gap.ended - gap.began
            elif forwards and found < gap.ended:  # someone else wrote it down meanwhile
                found = gap.ended
        return min(found, now) if found != moment else moment


NO_GAPS: Final = ClockGaps()
