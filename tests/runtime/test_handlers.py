"""What may be registered, how it is called, and what becomes of a job by what its handler does."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from pymongo.database import Database

from durabl_ext import DummyBackend, FatalJobError, JobQueue, PayloadError
from durabl_ext.runtime import worker
from durabl_ext.runtime.processors import HeartbeatConfigConflict
from tests.runtime.conftest import Opener, Runs
from tests.runtime.fronts import Front
from tests.watching import ended, until

DB = Database[dict[str, Any]]


def stored(queue: Front, id: str) -> Any:
    job = queue.get(id)
    assert job is not None
    return job


def test_process_registers_as_a_call_and_as_a_decorator_before_and_after_the_start(db: DB, queue: Front) -> None:
    called, late = Runs(), Runs()
    assert queue.process("called", called) is called

    @queue.process("decorated", concurrency=2)  # type: ignore[untyped-decorator]  # a face has no types
    def decorated(job: Any, ctx: Any) -> None:
        called(job, ctx)

    ids = [queue.add(action) for action in ("called", "decorated", "late")]
    queue.start(reaper=False)
    until(ended(db.job, ids[:2]))
    assert late.jobs == []
    queue.process("late", late)
    until(ended(db.job, ids))
    assert sorted(called.ids) == sorted(ids[:2])
    assert late.ids == ids[2:]


def test_a_second_handler_of_an_action_is_an_error_that_names_the_first() -> None:
    queue = JobQueue(DummyBackend())
    queue.process("a", print)
    with pytest.raises(ValueError, match="'a' has a handler already: <built-in function print>"):
        queue.process("a", lambda job, ctx: None)


def generates(job: Any, ctx: Any) -> Any:
    yield


async def generates_async(job: Any, ctx: Any) -> Any:
    yield


@pytest.mark.parametrize("wrong", [generates, generates_async, "print", 3])
def test_what_cannot_be_called_or_would_run_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="handler"):
        JobQueue(DummyBackend()).process("a", wrong)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"concurrency": 0}, PayloadError),
        ({"concurrency": True}, PayloadError),
        ({"poll_interval": 0}, PayloadError),
        ({"heartbeat_interval": -1}, PayloadError),
        ({"adopt_max_attempts": 0}, PayloadError),
        ({"heartbeat_interval": 300}, HeartbeatConfigConflict),
    ],
)
def test_an_option_out_of_its_range_is_an_error_at_once(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        JobQueue(DummyBackend()).process("a", print, **options)


class Callable_:  # noqa: N801  # the word is taken
    """Remembers the jobs it was called with."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def __call__(self, job: Any, ctx: Any) -> None:
        self.ids.append(job.id)


class AsyncCallable(Callable_):
    async def __call__(self, job: Any, ctx: Any) -> None:  # type: ignore[override]  # that is what is tested
        await asyncio.sleep(0)
        self.ids.append(job.id)


@pytest.mark.parametrize("kind", ["def", "async def", "partial", "async partial", "object", "async object", "lambda"])
def test_a_handler_may_be_anything_that_can_be_called(db: DB, queue: Front, kind: str) -> None:
    seen, seen_async = Callable_(), AsyncCallable()

    def plain(job: Any, ctx: Any) -> None:
        seen(job, ctx)

    async def waits(job: Any, ctx: Any) -> None:
        await seen_async(job, ctx)

    async def more(extra: str, job: Any, ctx: Any) -> None:
        await seen_async(job, ctx)

    handlers: dict[str, Any] = {
        "def": plain,
        "async def": waits,
        "partial": partial(lambda extra, job, ctx: seen(job, ctx), "x"),
        "async partial": partial(more, "x"),
        "object": seen,
        "async object": seen_async,
        "lambda": lambda job, ctx: waits(job=job, ctx=ctx),
    }
    queue.process("a", handlers[kind])
    id = queue.add()
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert stored(queue, id).status == "completed"
    assert seen.ids + seen_async.ids == [id]


class Never:
    """Is awaitable, and nobody awaits it."""

    def __await__(self) -> Any:
        raise AssertionError("nobody was to wait for this")


async def gives_an_awaitable(job: Any, ctx: Any) -> Any:
    return Never()


def gives_a_generator(job: Any, ctx: Any) -> Any:
    return (n for n in range(3))


async def gives_an_async_generator(job: Any, ctx: Any) -> Any:
    return generates_async(job, ctx)


@pytest.mark.parametrize("handler", [gives_an_awaitable, gives_a_generator, gives_an_async_generator])
def test_a_handler_that_gives_what_nobody_runs_has_failed(db: DB, queue: Front, handler: Any) -> None:
    queue.process("a", handler)
    id = queue.add(max_attempts=1)
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    job = stored(queue, id)
    assert job.status == "failed"
    assert job.error["name"] == "TypeError"
    assert "which nobody runs" in job.error["message"]


ENDERS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration)


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_what_would_end_a_process_or_a_task_fails_the_job_and_the_worker_lives(
    db: DB, queue: Front, colour: str
) -> None:
    kinds = {kind.__name__: kind for kind in ENDERS}

    def raises(job: Any, ctx: Any) -> None:
        if job.data:
            raise kinds[job.data["kind"]]("out")

    async def raises_async(job: Any, ctx: Any) -> None:
        raises(job, ctx)

    queue.process("a", raises if colour == "def" else raises_async)
    ids = {name: queue.add("a", {"kind": name}, max_attempts=1) for name in kinds}
    queue.start(reaper=False)
    last = queue.add()  # with one slot, it runs only if each of them has freed it
    until(ended(db.job, [*ids.values(), last]))
    assert stored(queue, last).status == "completed"
    for name, id in ids.items():
        job = stored(queue, id)
        assert (job.status, job.failure_kind) == ("failed", "retries-exhausted")
        # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
        assert job.error["name"] == ("RuntimeError" if (name, colour) == ("StopIteration", "async def") else name)


def test_a_fatal_error_fails_at_once_and_its_cause_is_kept(db: DB, queue: Front) -> None:
    def breaks(job: Any, ctx: Any) -> None:
        try:
            raise KeyError("missing")
        except KeyError as cause:
            raise FatalJobError("this can never work") from cause

    queue.process("a", breaks)
    id = queue.add(max_attempts=5)
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    job = stored(queue, id)
    assert (job.status, job.failure_kind, job.attempt) == ("failed", "fatal", 1)
    assert job.error["name"] == "FatalJobError"
    assert job.error["message"] == "this can never work"
    assert "KeyError: 'missing'" in job.error["stack"]


def test_a_failed_attempt_is_tried_again_with_its_error_on_the_job_meanwhile(db: DB, queue: Front) -> None:
    seen_errors, hold = [], threading.Event()

    def fails_twice(job: Any, ctx: Any) -> None:
        seen_errors.append(job.error and job.error["message"])
        if job.attempt < 3:
            raise ValueError(f"no {job.attempt}")
        hold.wait(60)

    queue.process("a", fails_twice)
    id = queue.add(max_attempts=3, backoff_delay=0.05, backoff="fixed")
    queue.start(reaper=False)
    until(lambda: len(seen_errors) == 3)
    hold.set()
    until(ended(db.job, [id]))
    assert seen_errors == [None, "no 1", "no 2"]
    job = stored(queue, id)
    assert (job.status, job.attempt, job.error) == ("completed", 3, None)


def test_releases_spend_no_attempt_and_failures_do(db: DB, open_queue: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "YIELD", 30.0)  # those that are told end by themselves, on a busy machine too

    def shows(job: Any, ctx: Any) -> None:
        if job.attempt <= 2:
            raise ValueError("not yet")

    queue = open_queue()
    id = queue.add(max_attempts=3, backoff="fixed", backoff_delay=0.05)
    for _ in range(5):
        stopped, began = open_queue(), threading.Event()

        def holds(job: Any, ctx: Any, began: threading.Event = began) -> None:
            began.set()
            ctx.signal.wait(60)
            ctx.signal.raise_if_set()

        stopped.process("a", holds)
        stopped.start(reaper=False)
        assert began.wait(60)
        assert stopped.shutdown(0)
        assert (stored(queue, id).status, stored(queue, id).attempt) == ("queued", 0)
    queue.process("a", shows)
    queue.start(reaper=False)
    until(ended(db.job, [id]))
    assert (stored(queue, id).status, stored(queue, id).attempt) == ("completed", 3)


@pytest.mark.parametrize("wrong", [lambda: None, lambda job: None, lambda job, ctx, more: None])
def test_a_handler_that_cannot_take_a_job_and_its_context_is_refused_before_a_job_is_lost_on_it(wrong: Any) -> None:
    queue = JobQueue(DummyBackend())
    with pytest.raises(TypeError, match=r"is called with a job and its context, and .* is not made for that"):
        queue.process("a", wrong)
    queue.process("a", lambda job, ctx, more=None: None)
    queue.process("b", lambda *everything: None)
    queue.process("c", print)


def test_process_without_a_name_is_an_error_and_not_a_decorator_that_registers_nothing() -> None:
    queue: Any = JobQueue(DummyBackend())
    with pytest.raises(TypeError, match=r"write @queue\.process\('send-mail'\)"):
        queue.process(lambda job, ctx: None)
    with pytest.raises(PayloadError, match="action"):
        queue.process("")
