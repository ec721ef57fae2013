"""The ends of runs, in group commits.

A durable write costs a journal commit however small it is, so what arrives while one is under way goes together in the
next. Nothing waits for others to come: when idle an end is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pymongo.errors import PyMongoError

from durabl_ext.core.plans import Settlement
from durabl_ext.outcomes import Settled
from durabl_ext.runtime.store import Store

Outcomes = list[Settled | Exception]


@dataclass(frozen=True, slots=True)
class _Share:
    """What one caller has in a write."""

    settlements: Sequence[Settlement]
    outcomes: asyncio.Future[Outcomes]


class Committer:
    """Settles claims, those that arrive together in one call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[_Share] = []
        self._flushing: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] | None = None

    async def settle(self, settlements: Sequence[Settlement]) -> Outcomes:
        """Ends claims and gives what became of each; an error where that is not known: settling it again is safe."""
        share = _Share(settlements, asyncio.get_running_loop().create_future())
        self._waiting.append(share)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return await share.outcomes

    async def written(self, timeout: float, busy: float) -> None:
        """Waits until the next write is answered; who settled in it knows of that by then.

        Args:
            timeout: Seconds that this may take at most.
            busy: The same where a write is under way.
        """
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._next,), timeout=timeout if self._flushing is None else busy)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                shares, self._waiting = self._waiting, []
                outcomes = iter(await self._written([one for share in shares for one in share.settlements]))
                for share in shares:
                    became = list(islice(outcomes, len(share.settlements)))
                    if not share.outcomes.done():
                        share.outcomes.set_result(became)
                if self._next is not None and not self._next.done():
                    self._next.set_result(None)
        finally:
            self._flushing = None

    async def _written(self, settlements: Sequence[Settlement]) -> Outcomes:
        try:
            return [*await self._store.settle(settlements)]
        except Exception as error:
            if isinstance(error, PyMongoError) or len(settlements) == 1:
                return [error] * len(settlements)
        # One that cannot be settled must not hold up those beside it.
        return [became for one in settlements for became in await self._written([one])]
