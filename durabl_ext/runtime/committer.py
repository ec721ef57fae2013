"""The ends of runs, in group commits.

A durable write costs a journal commit however small it is, so what arrives while one is under way goes together in the
next. Nothing waits for others to come: when idle an end is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Protocol

from pymongo.errors import PyMongoError

from durabl_ext.claims import Claim
from durabl_ext.core.plans import Settlement
from durabl_ext.outcomes import Settled
from durabl_ext.runtime.store import SettleAndClaim, Store, settle_and_claim_of

Outcomes = list[Settled | Exception]


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to start in the write that ends other runs.

    Attributes:
        wants: How many of each action at most.
        adopt: How many attempts a plain job gets, by action.
        lease: How long the runs last without a heartbeat.
        over: Is told in any case, and which claims it has given.
    """

    wants: Mapping[str, int]
    adopt: Mapping[str, int]
    lease: timedelta
    over: Callable[[Sequence[Claim]], object]


class Turns(Protocol):
    """Says what is to start where others end."""

    async def ready(self) -> None:
        """Waits for a claim that is under way, after which there may be a turn."""

    def turn(self, settlements: Sequence[Settlement]) -> Turn | None:
        """Gives what is to start where some claims end; None when nothing is."""

    def ended(self, settlements: Iterable[Settlement]) -> None:
        """Takes note that claims have ended, before anybody else does."""


@dataclass(frozen=True, slots=True)
class _Share:
    """What one caller has in a write."""

    settlements: Sequence[Settlement]
    outcomes: asyncio.Future[Outcomes]


class Committer:
    """Settles claims, those that arrive together in one call; what starts in their slots goes with them.

    Attributes:
        turns: Says what those are; None means that nothing starts.
    """

    def __init__(self, store: Store) -> None:
        self.turns: Turns | None = None
        self._store = store
        self._both = settle_and_claim_of(store)
        self._waiting: list[_Share] = []
        self._flushing: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] | None = None

    async def settle(self, settlements: Sequence[Settlement]) -> Outcomes:
        """Ends claims and gives what became of each; an error where that is not known: settling it again is safe."""
        share = _Share(settlements, asyncio.get_running_loop().create_future())
        self._waiting.append(share)
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), context=Context())
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
                if self.turns is not None:
                    await self.turns.ready()
                shares, self._waiting = self._waiting, []
                outcomes = iter(await self._answered([one for share in shares for one in share.settlements]))
                for share in shares:
                    became = list(islice(outcomes, len(share.settlements)))
                    if not share.outcomes.done():
                        share.outcomes.set_result(became)
                if self._next is not None and not self._next.done():
                    self._next.set_result(None)
        finally:
            self._flushing = None

    async def _answered(self, settlements: Sequence[Settlement]) -> Outcomes:
        try:
            return await self._written(settlements)
        except Exception as error:  # whatever it is, nobody is to wait for ever
            return [error] * len(settlements)

    async def _written(self, settlements: Sequence[Settlement]) -> Outcomes:
        turns, both = self.turns, self._both
        turn = None if turns is None or both is None else turns.turn(settlements)
        if turn is None or both is None:
            outcomes = await self._settled(settlements)
        else:
            outcomes = await self._turned(turn, both, settlements)
        if turns is not None:
            known = zip(settlements, outcomes, strict=False)  # whoever settles is told where some are missing
            turns.ended(one for one, became in known if not isinstance(became, Exception))
        return outcomes

    async def _turned(self, turn: Turn, both: SettleAndClaim, settlements: Sequence[Settlement]) -> Outcomes:
        claims: Sequence[Claim] = ()
        try:
            outcomes, claims = await both(settlements, turn.wants, lease=turn.lease, adopt=turn.adopt)
        except Exception as error:
            outcomes = [error] * len(settlements)
        finally:
            turn.over(claims)
        if all(isinstance(became, Settled | PyMongoError) for became in outcomes):
            return outcomes
        return await self._settled(settlements)

    async def _settled(self, settlements: Sequence[Settlement]) -> Outcomes:
        try:
            return [*await self._store.settle(settlements)]
        except Exception as error:
            if isinstance(error, PyMongoError) or len(settlements) == 1:
                return [error] * len(settlements)
        # One that cannot be settled must not hold up those beside it.
        return [became for one in settlements for became in await self._settled([one])]
