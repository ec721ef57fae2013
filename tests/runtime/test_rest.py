"""When the change stream is not read, and that nothing is missed for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext.runtime import rest
from durabl_ext.runtime.rest import Rest
from simplequeue import collection, feed
from tests.runtime.conftest import Calls, Opener, Runs
from tests.watching import DEADLINE, ended, settled, until

DB = Database[dict[str, Any]]


async def is_over(resting: Rest) -> bool:
    """Whether the stream is to be read now."""
    waiting = asyncio.ensure_future(resting.over())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    return done


async def claims_that_get_some(resting: Rest) -> None:
    for _ in range(2):
        resting.claims()
        resting.answered(got=True)


def test_nothing_is_read_before_the_first_look_has_found_nothing_more() -> None:
    async def main() -> list[bool]:
        resting = Rest()
        before = await is_over(resting)
        resting.looks()
        await claims_that_get_some(resting)
        resting.looked(more=True)
        during = await is_over(resting)
        resting.claims()
        resting.looked(more=False)
        return [before, during, await is_over(resting)]

    assert asyncio.run(main()) == [False, False, True]


def test_single_jobs_put_off_no_read() -> None:
    async def main() -> bool:
        resting = Rest()
        resting.looks()
        resting.looked(more=False)
        resting.looks()
        resting.claims()
        resting.answered(got=True)
        return await is_over(resting)

    assert asyncio.run(main())


def test_while_all_slots_are_taken_the_stream_is_read() -> None:
    async def main() -> list[bool]:
        resting = Rest()
        resting.looks()
        resting.claims()
        resting.answered(got=True)
        resting.claims()
        resting.looked(more=False)
        answers = []
        for _ in range(3):
            resting.looks()
            resting.looked(more=True)  # there are no free slots to claim for
            answers.append(await is_over(resting))
        return answers

    assert asyncio.run(main()) == [True, True, True]


def test_looks_that_lead_to_no_claim_do_not_put_off_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> bool:
        resting = Rest()
        resting.looks()
        await claims_that_get_some(resting)
        over = asyncio.ensure_future(resting.over())
        while not over.done():
            resting.looks()
            resting.looked(more=True)
            await asyncio.sleep(0)
        return resting.dense

    monkeypatch.setattr(rest, "REST", 0.05)
    assert asyncio.run(asyncio.wait_for(main(), DEADLINE)) is False


def test_after_a_lone_event_a_claim_goes_first_and_events_that_crowd_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> list[bool]:
        resting = Rest()
        resting.looks()
        resting.looked(more=False)
        resting.looks()
        waiting = asyncio.ensure_future(resting.over())
        await asyncio.sleep(0)
        lone = waiting.done()
        resting.claims()
        resting.answered(got=True)
        await asyncio.wait_for(waiting, DEADLINE)
        monkeypatch.setattr(rest, "LONE", DEADLINE)  # what comes now comes close behind
        resting.looks()
        return [lone, await is_over(resting)]

    assert asyncio.run(main()) == [False, True]


def test_without_a_sign_of_a_claim_the_stream_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        resting = Rest()
        resting.looks()
        await claims_that_get_some(resting)
        resting.looked(more=True)
        await asyncio.wait_for(resting.over(), DEADLINE)

    monkeypatch.setattr(rest, "REST", 0.01)
    asyncio.run(main())


def test_a_worker_that_claims_all_the_time_leaves_its_stream_alone_and_misses_nothing(
    db: DB, open_queue: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, opened, stop = [0], [0], threading.Event()
    read, watch = collection._DriverStream.next, collection.CollectionJobs.watch

    async def counted_read(stream: Any) -> Any:
        reads[0] += 1
        return await read(stream)

    async def counted_watch(jobs: Any, match: Any) -> Any:
        opened[0] += 1
        return await watch(jobs, match)

    monkeypatch.setattr(collection._DriverStream, "next", counted_read)
    monkeypatch.setattr(collection.CollectionJobs, "watch", counted_watch)
    monkeypatch.setattr(rest, "GAP", 1.0)  # on a busy machine a claim takes its time
    monkeypatch.setattr(rest, "REST", 1.0)
    producer, calls = open_queue(), Calls()
    queue = open_queue(calls)

    def again(job: Any, ctx: Any) -> None:
        if not stop.is_set():
            producer.add("again")

    busy, other = Runs(again), Runs()
    queue.process("again", busy, concurrency=8)
    queue.process("other", other)
    for _ in range(8):
        producer.add("again")
    queue.start(reaper=False)
    busy.wait_for(100)
    before, begun = reads[0], len(busy.jobs)
    busy.wait_for(begun + 200)
    until(ended(db.job, [producer.add("other")]))
    assert reads[0] - before < 50, "an event for each of 200 jobs"
    stop.set()
    settled(lambda: calls.counts["claim"])
    until(lambda: opened[0] == 2)
    until(ended(db.job, [producer.add("other")]))
    assert calls.counts["claim"] < 10_000


def test_a_stream_that_was_left_alone_for_long_is_opened_anew_and_all_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "LONG_REST", -1.0)  # none is too short
    events: list[str] = []
    reading = asyncio.Event()

    class Stream:
        async def next(self) -> None:
            events.append("read")
            reading.set()
            await asyncio.Event().wait()

        async def close(self) -> None:
            events.append("close")

    async def watch() -> Any:
        events.append("open")
        return Stream()

    async def rests() -> None:
        pass

    async def main() -> None:
        looked = asyncio.Event()
        made = feed.Feed(watch, lambda said: looked.set() if said else None, lambda event: None, None, rests)
        await made.open()
        serving = asyncio.ensure_future(made.serve())
        await asyncio.wait_for(looked.wait(), DEADLINE)
        await asyncio.wait_for(reading.wait(), DEADLINE)
        serving.cancel()
        await asyncio.wait((serving,))

    asyncio.run(main())
    assert events == ["open", "close", "open", "read"]
