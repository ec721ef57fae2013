"""When to look for jobs, and how many to claim.

It claims what can run at once and no more. It looks when something says that there may be new work (the change feed, an
enqueue in this process, the end of a run that others waited behind), when the next job is due, and from time to time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime

from durabl_ext.claims import Claim
from durabl_ext.runtime.engine import Engine
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.rest import Rest

BACKOFF = 0.1
BACKOFF_MAX = 10.0
"""Seconds between attempts while claims fail, so that a server that comes back is not met by all at once."""

SOON = 0.001
"""Seconds added to the time of the next due job, which is kept in milliseconds: never before, hardly after."""

PARTS = 2
"""Into how many parts claims divide the slots of an action of which more jobs wait than it has slots, so that the ends
of one part are written while the next is claimed. In turns, server and worker wait for each other."""

LEAST_PART = 64
"""Slots of a part at least: a claim of few jobs takes hardly less time than one of many."""

LOOK = 0.1
"""Seconds between looks at everything while the change stream is not read. All claims look for jobs that are due then;
this finds out when the next one will be."""

TOGETHER = 0.005
BUSY = 0.05
"""Seconds for which a claim of less than a part waits at most for ends to be written, whose slots it then fills in the
same call; the latter while some are under way. Else a worker that once got few would go on with few at a time."""

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
        self._running: Counter[str] = Counter()
        self._hopeful: set[str] = set()
        self._crowded: set[str] = set()
        """Of which the last claim got some, so that more may wait."""
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

    def freed(self, action: str) -> None:
        """Takes note that a run of an action has ended."""
        self._running[action] -= 1
        if action in self._hopeful:
            self._wake.set()

    def stop(self) -> None:
        """Claims no more; a claim that is under way is still answered, and what it started is given to ``start``."""
        self._accepting = False
        self._wake.set()
        self._stopped.set()

    async def serve(self) -> None:
        """Claims until stopped."""
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

    async def _round(self) -> None:
        """Claims as long as there may be jobs for free slots, and finds out when the next one is due."""
        while self._accepting:
            if self._patience() == 0 or self._is_deaf():
                self.look()
            if self._is_little(self._wants()):
                await self._engine.next_ends(TOGETHER, BUSY)
            wants = self._wants()
            if not (looked := self._hopeful & wants.keys()):
                return
            # By the clock that claims go by: what is due by another and not yet by that one would be overlooked.
            since = await self._engine.store.now()
            self._hopeful -= looked
            try:
                await self._claim(wants)
                await self._find_next_due(looked - self._hopeful, since)
            except BaseException:
                self._hopeful |= looked
                raise

    async def _claim(self, wants: Mapping[str, int]) -> None:
        asked_at = time.monotonic()
        adopt = {action: self._processors[action].adopt_max_attempts for action in wants}
        self.rest.claims()
        claims = await self._engine.store.claim(wants, lease=self._engine.lease, adopt=adopt)
        got = Counter(claim.job.action for claim in claims)
        self._crowded = (self._crowded - wants.keys()) | got.keys()
        for claim in claims:
            action = claim.job.action
            # Who got some may find more: others may have been quicker at the rest. Who got none has seen all there is.
            self._hopeful.add(action)
            self._running[action] += 1
            self._start(claim, self._processors[action], asked_at)
        self.rest.answered(bool(claims))

    def _is_deaf(self) -> bool:
        """Whether the change stream is not read, and it is time to find out what is due next."""
        return self.rest.dense and time.monotonic() - self._looked_at >= LOOK

    def _wants(self) -> dict[str, int]:
        wants: dict[str, int] = {}
        if not self._accepting:
            return wants
        for action in self._processors if self.rest.dense else self._hopeful:
            free = self._processors[action].concurrency - self._running[action]
            if free > 0:
                wants[action] = min(free, self._part(action)) if action in self._crowded else free
        return wants

    def _is_little(self, wants: Mapping[str, int]) -> bool:
        """Whether all that is wanted is to fill slots of actions that had some just now, and not enough for a part."""
        looked = self._hopeful & wants.keys()
        return bool(looked) and all(action in self._crowded and wants[action] < self._part(action) for action in looked)

    def _part(self, action: str) -> int:
        slots = self._processors[action].concurrency
        return slots // PARTS if slots // PARTS >= LEAST_PART else slots

    async def _find_next_due(self, actions: Collection[str], since: datetime) -> None:
        """Wakes when a job of some actions is due that was not at a time, unless something else is due before.

        An action that is not among them is looked at as soon as it has a free slot, and then it is its turn.
        """
        due = await self._engine.store.next_due(actions, since) if actions else None
        if due is not None:
            at = time.monotonic() + (due - await self._engine.store.now()).total_seconds() + SOON
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
