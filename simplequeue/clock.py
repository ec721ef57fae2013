"""One clock for all processes: the server's.

Times that cross processes must not depend on whose machine wrote them. Each process keeps the distance between its
own clock and the server's, and measures it again when it may have changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from simplequeue.payload import cut

MEASURE_EVERY = 60.0
"""Seconds. Quartz drifts by some 10 ms an hour, so a minute old measurement is as good as a new one."""

STEPPED = timedelta(milliseconds=50)
"""When the wall clock has moved by this much against the monotonic one, somebody set it."""

PROMPT = 0.1
"""Seconds. Half of what an answer took is how wrong it can be; a prompt one is right enough for any lease."""

TRIES = 3
"""How often the server is asked for a prompt answer. One that waits for an election, for a connection of a busy pool or
for a blocked loop may take half a minute; the next one does not."""

Measure = Callable[[], Awaitable[datetime]]


class ServerClock:
    """Tells the server's time, asking the server once a minute.

    Args:
        measure: Asks the server for its time.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._offset = timedelta(0)
        self._measured_at: tuple[datetime, float] | None = None

    @property
    def ahead(self) -> timedelta:
        """How far the server's clock is ahead of this machine's, when it was measured last; 0 before."""
        return self._offset

    async def now(self) -> datetime:
        """Gives the server's time, cut to milliseconds.

        Raises:
            PyMongoError: The server had to be asked and did not answer.
        """
        if self._is_stale():
            least = math.inf
            for _ in range(TRIES):
                began = time.monotonic()
                theirs = await self._measure()
                took = time.monotonic() - began
                ours = datetime.now(UTC)
                if took < least:
                    least, offset, measured_at = took, theirs + timedelta(seconds=took) / 2 - ours, (ours, began + took)
                if took <= PROMPT:
                    break
            self._offset, self._measured_at = offset, measured_at
        return cut(datetime.now(UTC) + self._offset)

    def _is_stale(self) -> bool:
        if self._measured_at is None:
            return True
        wall, monotonic = self._measured_at
        age = time.monotonic() - monotonic
        return age > MEASURE_EVERY or abs(datetime.now(UTC) - wall - timedelta(seconds=age)) > STEPPED
