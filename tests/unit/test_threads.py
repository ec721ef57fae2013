"""Calls that a loop has made in threads, many at a time."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any

import pytest

from simplequeue.threads import LoopThread, Threads
from tests.watching import until

PATIENCE = 60.0


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("test-call")
    yield made
    made.close()


def together(threads: Threads, *calls: Callable[[], Any]) -> list[Any]:
    """What calls give that come together; what one raises is its result."""

    async def gathered() -> list[Any]:
        return await asyncio.gather(*(threads.run(call) for call in calls), return_exceptions=True)

    return asyncio.run(asyncio.wait_for(gathered(), PATIENCE))


def test_calls_that_come_together_give_their_own_results_in_their_own_context(threads: Threads) -> None:
    number = contextvars.ContextVar[int]("number")

    async def one(n: int) -> tuple[int, int]:
        number.set(n)
        return n, await threads.run(number.get)

    async def all_of_them() -> list[tuple[int, int]]:
        return await asyncio.gather(*(one(n) for n in range(500)))

    assert asyncio.run(all_of_them()) == [(n, n) for n in range(500)]


def test_calls_that_wait_for_each_other_are_all_made_at_once(threads: Threads) -> None:
    meeting = threading.Barrier(50)
    assert sorted(together(threads, *[lambda: meeting.wait(PATIENCE)] * 50)) == list(range(50))


def test_a_result_does_not_wait_for_the_call_behind_it(threads: Threads) -> None:
    seen = threading.Event()

    async def both() -> bool:
        waits = asyncio.ensure_future(threads.run(lambda: None))
        waits.add_done_callback(lambda _: seen.set())
        return await threads.run(lambda: seen.wait(PATIENCE))

    assert asyncio.run(both())


def test_what_a_call_raises_is_raised_where_it_is_waited_for_and_only_there(threads: Threads) -> None:
    def ends() -> None:
        raise SystemExit(3)

    async def each() -> list[object]:
        raised: list[object] = []
        for call in (lambda: 1, ends, lambda: next(iter(())), lambda: 2):
            try:
                raised.append(await threads.run(call))
            except (SystemExit, StopIteration, RuntimeError) as error:
                raised.append(type(error))
        return raised

    assert asyncio.run(each()) == [1, SystemExit, RuntimeError, 2]  # a coroutine cannot raise StopIteration


def test_without_a_thread_a_call_is_refused_and_the_next_one_is_made(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", _refuses)
        (refused,) = together(threads, lambda: 1)
    assert isinstance(refused, RuntimeError)
    assert together(threads, lambda: 1) == [1]


def test_calls_for_which_there_is_no_further_thread_are_refused_and_not_left(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, starts, refused = threading.Thread.start, count(), threading.Event()

    def starts_one(thread: threading.Thread) -> None:
        if next(starts):
            _refuses(thread)
        start(thread)

    async def others() -> list[Any]:
        given = await asyncio.gather(*(threads.run(lambda: 2) for _ in range(5)), return_exceptions=True)
        refused.set()
        return given

    async def all_of_them() -> tuple[bool, list[Any]]:
        waited, given = await asyncio.gather(threads.run(lambda: refused.wait(PATIENCE)), others())
        return waited, given

    monkeypatch.setattr(threading.Thread, "start", starts_one)
    waited, given = asyncio.run(asyncio.wait_for(all_of_them(), PATIENCE))
    assert waited
    assert [type(error) for error in given] == [RuntimeError] * 5


def test_a_call_of_another_loop_that_counts_on_a_thread_which_cannot_be_had_is_refused_too(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    asked: list[Future[Any]] = []

    def refuses(thread: threading.Thread) -> None:
        if thread.name != "test-call":
            start(thread)
            return
        if not asked:
            asked.append(elsewhere.begin(threads.run(lambda: 2)))
            until(lambda: len(threads._waiting) == 2)
        _refuses(thread)

    elsewhere = LoopThread("test-loop")
    try:
        with monkeypatch.context() as without:
            without.setattr(threading.Thread, "start", refuses)
            (here,) = together(threads, lambda: 1)
        result, there = asked[0].result(PATIENCE)
    finally:
        elsewhere.close()
    assert (type(here), result, type(there)) == (RuntimeError, None, RuntimeError)


def test_a_call_keeps_nothing_alive_when_it_has_been_answered(threads: Threads) -> None:
    class Payload:
        pass

    payload = Payload()
    gone = weakref.ref(payload)
    together(threads, partial(id, payload))
    del payload
    together(threads, lambda: None)
    gc.collect()
    assert gone() is None


def _refuses(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
