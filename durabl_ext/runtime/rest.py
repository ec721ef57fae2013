"""When the change stream need not be read, since who would be told looks anyway.

On the server a stream that is being read costs nearly as much as the work itself: it looks at every claim and at every
end. So it is left alone while claims follow each other.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress

GAP = 0.03
"""Seconds from a claim that got some to the next one, within which that finds what is new as soon as it were told."""

REST = 0.1
"""Seconds without any sign of a claim after which the stream is read in any case."""


class Rest:
    """Says when to read, by what the one who claims does.

    Attributes:
        dense: Whether claims follow each other, so that each has to look for all that the stream might tell of.
    """

    def __init__(self) -> None:
        self.dense = False
        self._begun = asyncio.Event()
        self._noted_at = self._got_at = -math.inf
        self._sparse = asyncio.Event()

    def looks(self) -> None:
        """Takes note that there is something to look at."""
        self._noted_at = time.monotonic()
        if not self._begun.is_set():  # there may be a backlog, of which no event tells
            self._got_at = self._noted_at
            self._is(dense=True)
            self._begun.set()

    def claims(self) -> None:
        """Takes note that a claim begins."""
        self._noted_at = time.monotonic()
        self._is(self._noted_at - self._got_at < GAP)

    def got(self) -> None:
        """Takes note of a claim that got some."""
        self._got_at = self._noted_at = time.monotonic()

    def looked(self, more: bool) -> None:
        """Takes note that all has been looked at as far as there are free slots, and whether more may wait."""
        if not more:
            self._got_at = -math.inf
            self._is(dense=False)

    async def over(self) -> None:
        """Waits until the stream is to be read; before the first look nothing is."""
        await self._begun.wait()
        while self.dense and (left := self._noted_at + REST - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sparse.wait()

    def _is(self, dense: bool) -> None:
        self.dense = dense
        if dense:
            self._sparse.clear()
        else:
            self._sparse.set()
