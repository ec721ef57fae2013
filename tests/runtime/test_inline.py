"""Backends for unit tests: one runs a job inside its enqueue, the other runs nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durabl_ext import (
    AsyncDummyBackend,
    AsyncImmediateBackend,
    AsyncJobQueue,
    DummyBackend,
    FatalJobError,
    ImmediateBackend,
    JobQueue,
)
from simplequeue.threads import LoopThread
from tests.runtime.conftest import Runs
from tests.runtime.fronts import Front


@pytest.fixture(params=["sync", "async"])
def inline(request: pytest.FixtureRequest) -> Any:
    if request.param == "sync":
        yield Front(JobQueue(ImmediateBackend()), None)
    else:
        loop = LoopThread("test-inline")
        yield Front(AsyncJobQueue(AsyncImmediateBackend()), loop)
        loop.close()


@pytest.mark.parametrize("kind", ["def", "async def", "lambda"])
def test_an_enqueue_runs_the_job_whatever_its_delay_says(inline: Front, kind: str) -> None:
    seen = Runs(lambda job, ctx: ctx.log(f"hello {job.data['name']}"))

    async def greets(job: Any, ctx: Any) -> None:
        await asyncio.sleep(0)
        assert not await ctx.signal.wait(0)
        seen(job, ctx)

    async def greets_later(job: Any, ctx: Any) -> None:
        await asyncio.sleep(0)
        seen(job, ctx)

    handlers: dict[str, Any] = {
        "def": seen,
        "async def": greets,
        "lambda": lambda job, ctx: greets_later(job=job, ctx=ctx),
    }
    inline.process("greet", handlers[kind])
    ids = [
        inline.add("greet", {"name": "Ada"}),
        inline.add("greet", {"name": "Bob"}, delay=3_600),
        inline.add("greet", {"name": "Cy"}, run_at=datetime.now(UTC) + timedelta(days=1)),
    ]
    assert seen.ids == ids
    for id in ids:
        job = inline.get(id)
        assert (job.status, job.attempt) == ("completed", 1)
        assert [line.message for line in job.logs] == [f"hello {job.data['name']}"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_a_failed_attempt_is_stored_and_neither_raised_nor_run_again(inline: Front, error: type[BaseException]) -> None:
    def fails(job: Any, ctx: Any) -> None:
        raise error("no")

    seen = Runs(fails)
    inline.process("a", seen)
    again, last = inline.add(), inline.add(max_attempts=1)
    assert len(seen.jobs) == 2
    job = inline.get(again)
    assert (job.status, job.attempt, job.error["name"]) == ("queued", 1, error.__name__)
    assert (inline.get(last).status, inline.get(last).failure_kind) == ("failed", "retries-exhausted")


def test_a_fatal_error_is_stored_as_such(inline: Front) -> None:
    def breaks(job: Any, ctx: Any) -> None:
        raise FatalJobError("never")

    inline.process("a", breaks)
    assert inline.get(inline.add()).failure_kind == "fatal"


class Never:
    def __await__(self) -> Any:
        raise RuntimeError("awaited")


@pytest.mark.parametrize("result", [(n for n in range(3)), Never()], ids=["generator", "awaitable"])
def test_what_has_not_run_is_not_completed(inline: Front, result: Any) -> None:
    inline.process("a", lambda job, ctx: result)
    job = inline.get(inline.add(max_attempts=1))
    assert job.status == "failed"


def test_without_a_processor_a_job_stays_queued(inline: Front) -> None:
    assert inline.get(inline.add("unknown")).status == "queued"


def test_a_handler_may_enqueue_what_is_then_run_within_it(inline: Front) -> None:
    if inline.is_async:

        async def enqueues(job: Any, ctx: Any) -> None:
            await inline.queue.enqueue("inner")  # type: ignore[misc]  # the queue is an async one

        inline.process("outer", enqueues)
    else:
        inline.process("outer", lambda job, ctx: inline.add("inner") and None)
    inner = Runs()
    inline.process("inner", inner)
    assert inline.get(inline.add("outer")).status == "completed"
    assert inline.get(inner.ids[0]).status == "completed"


def test_a_sync_queue_runs_async_handlers_inline_under_a_running_loop() -> None:
    queue, seen = JobQueue(ImmediateBackend()), []

    async def remembers(job: Any, ctx: Any) -> None:
        await asyncio.sleep(0)
        seen.append(job.id)

    queue.process("a", remembers)

    async def main() -> str | None:
        return queue.enqueue("a")

    assert [asyncio.run(main())] == seen


def test_a_dummy_backend_records_and_runs_nothing() -> None:
    seen = Runs()
    queue = JobQueue(DummyBackend())
    queue.process("a", seen)
    id = queue.enqueue("a", {"n": 1}, dedupe_key="k")
    backend: Any = queue.backend
    assert [(job.id, job.status, job.data, job.dedupe_key) for job in backend.jobs] == [(id, "queued", {"n": 1}, "k")]

    async def main() -> Any:
        queue = AsyncJobQueue(AsyncDummyBackend())
        queue.process("a", seen)
        await queue.enqueue("a")
        backend: Any = queue.backend
        return backend.jobs

    assert [job.status for job in asyncio.run(main())] == ["queued"]
    assert seen.jobs == []


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_runs_inside_an_enqueue_tell_their_events(colour: str) -> None:
    events: list[Any] = []

    def work(job: Any, ctx: Any) -> None:
        if job.data.get("fails"):
            raise FatalJobError("no") if job.data["fails"] == "fatally" else ValueError("no")

    if colour == "sync":
        queue = JobQueue(ImmediateBackend(), on_job_event=events.append)
        queue.process("a", work)
        for fails in (None, "once", "fatally"):
            queue.enqueue("a", {"fails": fails})
    else:
        asynchronous = AsyncJobQueue(AsyncImmediateBackend(), on_job_event=events.append)
        asynchronous.process("a", work)

        async def main() -> None:
            for fails in (None, "once", "fatally"):
                await asynchronous.enqueue("a", {"fails": fails})

        asyncio.run(main())
    kinds = ["claimed", "completed", "claimed", "failed", "claimed", "fail-fatal"]
    assert [event.kind for event in events] == kinds
    assert (events[3].terminal, events[3].error_name, events[3].attempt) == (False, "ValueError", 1)


def test_a_fatal_error_among_those_of_a_task_group_is_fatal() -> None:
    backend = ImmediateBackend()
    queue = JobQueue(backend)

    @queue.process("a")
    async def work(job: Any, ctx: Any) -> None:
        async def fails() -> None:
            raise FatalJobError("no address")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())

    queue.enqueue("a")
    assert [job.failure_kind for job in backend.jobs] == ["fatal"]
    assert "no address" in str(backend.jobs[0].error)
