"""The ends of runs, in group commits.

A durable write costs a journal commit however small it is, so what arrives while one is under way goes together in the
next. Nothing waits for others to come: when idle an end is written at once.
"""

from __future__ import annotations

import asyncio

from pymongo.errors import PyMongoError

from durabl_ext.core.settle import Settlement
from durabl_ext.outcomes import Settled
from durabl_ext.runtime.store import Store

Waiting = tuple[Settlement, asyncio.Future[Settled]]


class Committer:
    """Settles claims, those that arrive together in one call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[Waiting] = []
        self._flushing: asyncio.Task[None] | None = None

    async def settle(self, settlement: Settlement) -> Settled:
        """Ends one claim and gives what became of it.

        Raises:
            PyMongoError: It is not known. Settling the same again is safe.
        """
        outcome: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append((settlement, outcome))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return await outcome

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                if not await self._written(batch):
                    for one in batch:  # one that cannot be settled must not hold up those beside it
                        await self._written([one], alone=True)
        finally:
            self._flushing = None

    async def _written(self, batch: list[Waiting], *, alone: bool = False) -> bool:
        try:
            outcomes = await self._store.settle([settlement for settlement, _ in batch])
        except Exception as error:
            if not alone and len(batch) > 1 and not isinstance(error, PyMongoError):
                return False
            for _, outcome in batch:
                if not outcome.done():
                    outcome.set_exception(error)
            return True
        for (_, outcome), became in zip(batch, outcomes, strict=True):
            if not outcome.done():
                outcome.set_result(became)
        return True
