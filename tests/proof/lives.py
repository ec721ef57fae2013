"""What three workers may do to one queue, drawn from the seed of their world: nearly everything, in any order, over
lines that break.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from pymongo.errors import PyMongoError

from durabl_ext.core.plans import How
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.options import Enqueue
from tests.proof.lines import Fault, Line, Stopped
from tests.proof.scheduler import at_random, turn
from tests.proof.world import Claim, World

WORKERS = 3
STEPS = 6
FAULTS = 0.05
"""Of the calls: two or so in a schedule, since a decision that never gets through shows little."""

KEYS: tuple[Any, ...] = (
    {},
    {},
    {"dedupe_key": "one", "dedupe_scope": "queued"},
    {"dedupe_key": "one", "dedupe_scope": "queued", "coalesce": "latest"},
    {"dedupe_key": "two", "dedupe_scope": "queued+running"},
    {"dedupe_key": "two", "dedupe_scope": "queued"},
)
HOWS: tuple[How, ...] = ("complete", "complete", "fail", "fail", "fail_fatal", "release")
WAITS = (0, 0, 0, 1, 6, 11)


def asked(random: Random) -> Enqueue:
    """Some job."""
    return Enqueue(
        random.choice("aab"),
        {"v": random.randrange(10**9)},
        priority=random.randrange(2),
        delay=random.choice((None, None, 5)),
        max_attempts=random.choice((1, 2, 3)),
        backoff="fixed",
        backoff_delay=random.choice((0, 5)),
        **random.choice(KEYS),
    )


class Life:
    """One worker: what it has claimed, and what it does next.

    Args:
        world: Where it lives.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.random
        self._line: Line = self._connect()
        self._mine: list[Claim] = []

    async def live(self) -> None:
        """Takes some steps. Where its process ends, another takes the rest, and knows nothing of its claims."""
        for _ in range(STEPS):
            self._world.wait(self._random.choice(WAITS))
            try:
                await self._random.choice(self._doings())()
            except (PyMongoError, DedupeScopeConflictError):
                continue
            except Stopped:
                self._line, self._mine = self._connect(), []

    def _doings(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What makes a difference now, the more likely the oftener it is in the list."""
        always = [self._enqueue, self._claim, self._claim, self._claim_or_enqueue, self._recover, self._change]
        own = [*[self._settle] * 4, *[self._heartbeat] * 2, self._journal, self._log]
        return [*always, *own] if self._mine else always

    def _connect(self) -> Line:
        broken = [call for call in range(STEPS * 6) if self._random.random() < FAULTS]
        return self._world.line({call: self._random.choice(list(Fault)) for call in broken})

    async def _enqueue(self) -> None:
        if self._random.random() < 0.2:
            await self._world.add_plain(asked(self._random).data, self._line)
        else:
            several = [asked(self._random) for _ in range(self._random.choice((1, 1, 3)))]
            await self._world.enqueue(*several, line=self._line)

    async def _claim(self) -> None:
        self._mine += await self._world.claim(limit=self._random.choice((1, 2, 3)), line=self._line)

    async def _claim_or_enqueue(self) -> None:
        claim = await self._world.claim_or_enqueue(asked(self._random), line=self._line)
        self._mine += [claim] if claim else []

    async def _settle(self) -> None:
        some = self._random.sample(self._mine, self._random.randint(1, len(self._mine)))
        await self._world.settle(*[claim.ending(self._random.choice(HOWS)) for claim in some], line=self._line)
        if self._random.random() < 0.7:  # else they stay, and are stale from now on
            self._mine = [claim for claim in self._mine if claim not in some]

    async def _heartbeat(self) -> None:
        await self._world.heartbeat(*self._mine, line=self._line)

    async def _journal(self) -> None:
        claim, seq = self._random.choice(self._mine), self._random.choice("01")
        await self._world.append(claim, seq, self._random.randrange(10**9), line=self._line)

    async def _log(self) -> None:
        await self._world.log(self._random.choice(self._mine), str(self._random.randrange(10**9)), line=self._line)

    async def _recover(self) -> None:
        await self._world.recover(line=self._line)

    async def _change(self) -> None:
        """Does to some job what somebody may do who does not run it."""
        if not (ids := sorted(self._world.history.moments[-1])):
            return
        id = self._random.choice(ids)
        match self._random.choice(("cancel", "update", "retry")):
            case "cancel":
                await self._world.cancel(id, self._line)
            case "update":
                await self._world.update(id, {"v": self._random.randrange(10**9)}, self._line)
            case _:
                await self._world.retry(id, self._line)


async def deliver(world: World) -> None:
    """Lets the calls that are late arrive at some time or other."""
    for _ in range(STEPS * WORKERS):
        await turn()
        if world.random.random() < 0.3:
            for line in world.lines:
                line.deliver()


def live_through(world: World, seed: int) -> None:
    """Lets three workers live on a queue as the seed says, then does all that is left, and judges the whole."""
    world.begin(seed)
    try:
        with world.ids():
            _begin(world)
            at_random([*[Life(world).live() for _ in range(WORKERS)], deliver(world)], world.random)
            for line in world.lines:
                line.deliver()
            world.drain()
    except Exception as error:
        error.add_note(f"python -m tests.proof.test_random {seed} repeats it")
        raise


def _begin(world: World) -> None:
    """Gives the workers something to begin with."""
    for _ in range(2):
        with suppress(DedupeScopeConflictError):
            world.do(world.enqueue(asked(world.random), asked(world.random)))
