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

LONE = 0.01
"""Seconds. After an event that comes later than this the stream is not read before a claim has been answered, which
would have to wait for its turn at the processor. Events that come closer together are read without a stop."""

REST = 0.1
"""Seconds without any sign of a claim after which the stream is read in any case."""


class Rest:
    """Says when to read, by what the one who claims does.

    Attributes:
        dense: Whether claims follow each other, so that each has to look for all that the stream might tell of.
    """

    def __init__(self) -> None:
        self.dense = False
        self._looking = False
        self._begun = asyncio.Event()
        self._changed = asyncio.Event()
        self._looks_at = self._claims_at = self._got_at = self._read_at = -math.inf

    def looks(self) -> None:
        """Takes note that there is something to look at."""
        self._looks_at = time.monotonic()
        self._looking = True
        if not self._begun.is_set():  # there may be a backlog, of which no event tells
            self._got_at = self._claims_at = self._looks_at
            self.dense = True
            self._begun.set()

    def claims(self) -> None:
        """Takes note that a claim begins."""
        self._claims_at = time.monotonic()
        self.dense = self._claims_at - self._got_at < GAP

    def answered(self, got: bool) -> None:
        """Takes note that a claim has been answered, and whether it got some."""
        self._looking = False
        if got:
            self._got_at = self._claims_at = time.monotonic()
        self._changed.set()

    def looked(self, more: bool) -> None:
        """Takes note that all has been looked at as far as there are free slots, and whether more may wait."""
        self._looking = False
        if not more:
            self._got_at = -math.inf
            self.dense = False
        self._changed.set()

    async def over(self) -> None:
        """Waits until the stream is to be read; before the first look nothing is."""
        await self._begun.wait()
        lone = time.monotonic() - self._read_at > LONE
        while self.dense or (lone and self._looking):
            self._changed.clear()
            # What is looked at while all slots are taken is no sign of a claim.
            since = self._claims_at if self.dense else self._looks_at
            if (left := since + REST - time.monotonic()) <= 0:
                self.dense = False
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        self._read_at = time.monotonic()
