"""Whose call is next: every order of two decisions, or a seeded one of many.

A decision suspends before each of its calls. Here lives the choice of who goes on, and nothing that knows a job.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from types import coroutine
from typing import Any, TypeVar

from simplequeue.collection import CollectionJobs
from tests.proof.lines import Collection, Line, Stopped

T = TypeVar("T")
Decision = Coroutine[Any, Any, Any]
LIMIT = 500
"""More orders of one pair would be a mistake in the test: each costs some ten round trips."""


@coroutine
def turn() -> Generator[None, None, None]:
    """Gives the turn away."""
    yield


async def one_call_a_turn(call: Callable[[], Any]) -> Any:
    """Suspends before each call, so that a scheduler decides whose is next."""
    await turn()
    return call()


class ScheduledJobs(CollectionJobs):
    """The real calls, one a turn, through a line, at a time that the test sets.

    Args:
        collection: The real collection.
        line: What carries the calls.
        clock: Says what time it is.
    """

    def __init__(self, collection: Any, line: Line, clock: Callable[[], Any]) -> None:
        super().__init__(collection, one_call_a_turn)
        zoneless = self._zoneless
        self._collection = Collection(self._collection, line)
        self._zoneless = Collection(zoneless, line)
        self._time = clock

    async def now(self) -> Any:
        return self._time()


@dataclass
class Play:
    """Decisions under way.

    Attributes:
        decisions: Those that take turns.
        order: Who had each turn so far.
        results: What each returned, or the stop that ended it; None while it goes on.
    """

    decisions: Sequence[Decision]
    order: list[int] = field(default_factory=list)
    results: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.results = [None] * len(self.decisions)
        self._going = set(range(len(self.decisions)))
        for who in range(len(self.decisions)):
            self._step(who)  # up to its first call

    @property
    def going(self) -> list[int]:
        """Who still has calls to make."""
        return sorted(self._going)

    def give(self, who: int) -> None:
        """Lets one make its call and go on to the next."""
        self.order.append(who)
        self._step(who)

    def _step(self, who: int) -> None:
        try:
            self.decisions[who].send(None)
        except StopIteration as done:
            self.results[who] = done.value
            self._going.discard(who)
        except Stopped as stopped:
            self.results[who] = stopped
            self._going.discard(who)


def finish(decision: Coroutine[Any, Any, T]) -> T:
    """Runs one decision to its end, nobody else between."""
    try:
        while True:
            decision.send(None)
    except StopIteration as done:
        result: T = done.value
        return result


def every_order(
    start: Callable[[], Sequence[Decision]], check: Callable[..., T], names: Callable[[], object] = list
) -> list[T]:
    """Plays decisions once in each order that their calls can have, and gives what ``check`` made of each.

    How many calls a decision makes shows only as it runs, and depends on the order: the tree of choices is walked
    depth first, each path from a fresh start.

    Args:
        start: Prepares the scene and gives the decisions.
        check: Takes what they returned.
        names: Says, for the report of a failure, which calls were made.
    """
    made: list[T] = []
    path: list[int] | None = []
    while path is not None:
        made.append(_one_order(start, check, names, path))
        path = _next(path)
        assert len(made) <= LIMIT, f"more than {LIMIT} orders"
    return made


def _one_order(
    start: Callable[[], Sequence[Decision]], check: Callable[..., T], names: Callable[[], object], path: list[int]
) -> T:
    """Plays along a path, and the first of those that can go on beyond its end; leaves in ``path`` what was chosen.

    Between two that can both go on a choice is 0 or 1; a step without a choice is no part of the path.
    """
    decisions: Sequence[Decision] = ()
    order: list[int] = []
    taken = 0
    try:
        decisions = start()
        play = Play(decisions, order)
        while going := play.going:
            choice = 0
            if len(going) > 1:
                if taken == len(path):
                    path.append(0)
                choice = path[taken]
                taken += 1
            play.give(going[choice])
        return check(*play.results)
    except Exception as error:
        error.add_note(f"in the order {order}, calls {names()}")
        raise
    finally:
        _close(decisions)


def _next(path: list[int]) -> list[int] | None:
    while path and path[-1] == 1:
        path.pop()
    return [*path[:-1], 1] if path else None


def at_random(decisions: Sequence[Decision], random: Random) -> Play:
    """Plays decisions to their ends in an order that the seed decides."""
    try:
        play = Play(decisions)
        while going := play.going:
            play.give(random.choice(going))
        return play
    finally:
        _close(decisions)


def _close(decisions: Sequence[Decision]) -> None:
    """Gives up what has not ended, so that no coroutine is left behind."""
    for decision in decisions:
        decision.close()
