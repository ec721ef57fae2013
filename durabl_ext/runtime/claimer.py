"""When to look for jobs, and how many to claim.

It claims what can run at once and no more. It looks when something says that there may be new work (the change feed, an
enqueue in this process, the end of a run that others waited behind), when the next job is due, and from time to time.
While there is more than enough, what starts in the slots of runs that end goes with their ends in one write, a turn.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from functools import partial

from durabl_ext.claims import Claim
from durabl_ext.core.plans import Settlement
from durabl_ext.runtime.committer import Turn
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.rest import Rest
from durabl_ext.runtime.slots import Slots

BACKOFF = 0.1
BACKOFF_MAX = 10.0
"""Seconds between attempts while claims fail, so that a server that comes back is not met by all at once."""

SOON = 0.001
"""Seconds added to the time of the next due job, which is kept in milliseconds: never before, hardly after."""

PARTS = 2
"""Into how many parts claims divide the slots of an action of which more jobs wait than it has slots, so that the ends
of one part are written while the next is claimed. A turn is no better then: the server does both beside each other."""

LEAST_PART = 64
"""Slots of a part at least: a claim of few jobs takes hardly less time than one of many."""

LOOK = 0.1
"""Seconds between looks at everything while the change stream is not read. All claims look for jobs that are due then;
this finds out when the next one will be."""

TOGETHER = 0.005
BUSY = 0.05
"""Seconds for which a claim of less than a part waits at most for ends to be written, whose slots it then fills in the
same call; the latter while some are under way. Else a worker that once got few would go on with few at a time."""

_NONE: Mapping[str, int] = {}

Start = Callable[[Claim, Processor, float], None]


class Claimer:
    """Claims jobs for the processors of a worker, until cancelled.

    Args:
        engine: Where runs are managed.
        processors: What is registered, by action; may grow.
        start: What to call with each claim, its processor and when it was asked for.
    """

    def __init__(self, engine: Engine, processors: Mapping[str, Processor], start: Start) -> None:
        self._engine = engine
        self._processors = processors
        self._start = start
        self.rest = Rest()
        self._accepting = True
        self._slots = Slots()
        self._hopeful: set[str] = set()
        self._crowded: set[str] = set()
        """Of which the last claim got some, so that more may wait."""
        self._plenty: set[str] = set()
        """Of which it got most of what it asked for, so that more do wait."""
        self._idle = asyncio.Event()
        self._idle.set()
        """No claim is under way."""
        self._context = copy_context()
        self._wake = asyncio.Event()
        self._stopped = asyncio.Event()
        self._looked_at = 0.0
        self._next_due: float | None = None
        self._failures = 0

    def look(self, action: object = None) -> None:
        """Looks soon for jobs of an action, or of all when it is not known."""
        if not isinstance(action, str):
            self._hopeful.update(self._processors)
            self._looked_at, self._next_due = time.monotonic(), None
        elif action in self._processors:
            self._hopeful.add(action)
        else:
            return
        if self._processors:
            self.rest.looks()
        self._wake.set()

    def freed(self, claim: Claim) -> None:
        """Takes note that a run has ended."""
        self._slots.free(claim)
        if claim.job.action in self._hopeful:
            self._wake.set()

    def stop(self) -> None:
        """Claims no more; a claim that is under way is still answered, and what it started is given to ``start``."""
        self._accepting = False
        self._wake.set()
        self._stopped.set()

    async def serve(self) -> None:
        """Claims until stopped."""
        self._context = copy_context()
        self.look()
        while self._accepting:
            self._wake.clear()
            try:
                await self._round()
                self._failures = 0
                self.rest.looked(bool(self._crowded))
            except Exception as error:
                self._failures += 1
                self._report(error)
                pause = _jitter.uniform(BACKOFF, min(BACKOFF_MAX, BACKOFF * 2.0 ** min(self._failures, 20)))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience()):
                    await self._wake.wait()

    async def ready(self) -> None:
        """Waits for a claim that is under way, after which there may be a turn."""
        if self._plenty and not self._idle.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(BUSY):
                    await self._idle.wait()

    def turn(self, settlements: Sequence[Settlement]) -> Turn | None:
        """Gives what is to start in the write in which some runs end; None when nothing is."""
        if not self._idle.is_set() or self._failures or not self._accepting:
            return None
        wants = self._wants(self._slots.of(settlements))
        if not any(4 * wants[action] >= 3 * self._part(action) for action in self._plenty & wants.keys()):
            return None
        self._idle.clear()
        return Turn(wants, self._adopt(wants), self._engine.lease, partial(self._turned, wants, self._begins()))

    def ended(self, settlements: Iterable[Settlement]) -> None:
        """Takes note that claims have ended, before anybody else does."""
        for settlement in settlements:
            self._slots.free(settlement)

    async def _round(self) -> None:
        """Claims as long as there may be jobs for free slots, and finds out when the next one is due."""
        while self._accepting:
            if self._patience() == 0 or self._is_deaf():
                self.look()
            if self._is_little(self._wants()):
                await self._engine.next_ends(TOGETHER, BUSY)
            wants = self._wants()
            if not self._idle.is_set() or not (looked := self._hopeful & wants.keys()):
                return
            self._hopeful -= looked
            try:
                asked_at = await self._claim(wants)
                await self._find_next_due(looked - self._hopeful, asked_at)
            except BaseException:
                self._hopeful |= looked
                raise

    async def _claim(self, wants: Mapping[str, int]) -> float:
        """Claims, and gives when it was asked for: all that was due then has been looked at."""
        self._idle.clear()
        try:
            asked_at = self._begins()
            claims = await self._engine.store.claim(wants, lease=self._engine.lease, adopt=self._adopt(wants))
            self._got(wants, claims)
        finally:
            self._idle.set()
        self._start_all(claims, asked_at)
        return asked_at

    def _turned(self, wants: Mapping[str, int], asked_at: float, claims: Sequence[Claim]) -> None:
        try:
            self._got(wants, claims)
        finally:
            # Not now: the next turn is on its way to the server before.
            asyncio.get_running_loop().call_soon(self._start_all, claims, asked_at, context=self._context)
            self._hopeful |= wants.keys()  # none means that nothing is known
            self._idle.set()
            self._wake.set()

    def _begins(self) -> float:
        self.rest.claims()
        return time.monotonic()

    def _got(self, wants: Mapping[str, int], claims: Sequence[Claim]) -> None:
        got = Counter(claim.job.action for claim in claims)
        self._crowded = (self._crowded - wants.keys()) | got.keys()
        most = {action for action in got if 2 * got[action] >= wants[action]}
        self._plenty = (self._plenty - wants.keys()) | {action for action in most if not self._is_divided(action)}
        # Who got some may find more: others may have been quicker at the rest. Who got none has seen all there is.
        self._hopeful |= got.keys()
        for claim in claims:
            self._slots.take(claim)
        self.rest.answered(bool(claims))

    def _start_all(self, claims: Sequence[Claim], asked_at: float) -> None:
        for claim in claims:
            self._start(claim, self._processors[claim.job.action], asked_at)

    def _adopt(self, actions: Iterable[str]) -> dict[str, int]:
        return {action: self._processors[action].adopt_max_attempts for action in actions}

    def _is_deaf(self) -> bool:
        """Whether the change stream is not read, and it is time to find out what is due next."""
        return self.rest.dense and time.monotonic() - self._looked_at >= LOOK

    def _wants(self, ending: Mapping[str, int] = _NONE) -> dict[str, int]:
        wants: dict[str, int] = {}
        if not self._accepting:
            return wants
        for action in self._processors if self.rest.dense else self._hopeful:
            free = self._processors[action].concurrency - self._slots.taken(action) + ending.get(action, 0)
            if free > 0:
                wants[action] = min(free, self._part(action)) if action in self._crowded else free
        return wants

    def _is_little(self, wants: Mapping[str, int]) -> bool:
        """Whether all that is wanted is to fill slots of actions that had some just now, and not enough for a part."""
        looked = self._hopeful & wants.keys()
        return bool(looked) and all(action in self._crowded and wants[action] < self._part(action) for action in looked)

    def _part(self, action: str) -> int:
        slots = self._processors[action].concurrency
        return slots // PARTS if self._is_divided(action) else slots

    def _is_divided(self, action: str) -> bool:
        return self._processors[action].concurrency >= PARTS * LEAST_PART

    async def _find_next_due(self, actions: Collection[str], asked_at: float) -> None:
        """Wakes when a job of some actions is due that was not when a claim was asked for.

        Unless something else is due before. An action that is not among them is looked at as soon as it has a free
        slot, and then it is its turn.
        """
        if not actions:
            return
        # By the clock that claims go by: what is due by another and not yet by that one would be overlooked.
        now, answered_at = await self._engine.store.now(), time.monotonic()
        due = await self._engine.store.next_due(actions, now - timedelta(seconds=answered_at - asked_at))
        if due is not None:
            at = answered_at + (due - now).total_seconds() + SOON
            self._next_due = at if self._next_due is None else min(self._next_due, at)

    def _patience(self) -> float | None:
        """Seconds until it has to look by itself; None when only a signal can mean something new."""
        intervals = [processor.poll_interval for processor in self._processors.values() if processor.poll_interval]
        alarms = [self._looked_at + interval for interval in intervals]
        if self._next_due is not None:
            alarms.append(self._next_due)
        return max(min(alarms) - time.monotonic(), 0) if alarms else None

    def _report(self, error: Exception) -> None:
        if self._failures == 5:
            self._engine.logger.error("looking for jobs has failed five times in a row, still trying: %r", error)
        else:
            self._engine.logger.warning("looking for jobs failed, trying again: %r", error)


# Not the module's own generator: an application's seed must not make workers everywhere come back at once.
_jitter = random.Random()
