"""What a listener does, in every cell."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from simplequeue import Job, PayloadError, Status
from tests.cells import Cell
from tests.watching import Recorder, ended, until

POLL = 0.05


def test_the_backlog_is_worked_off_in_the_order_of_the_ids(cell: Cell) -> None:
    jobs = cell.queue.add_many([("a", {"n": n}) for n in range(100)])
    seen = Recorder()
    with cell.queue.listen(seen, concurrency=1, poll_interval=POLL):
        seen.wait_for(100)
    assert seen.ids == [job.id for job in jobs]


def test_a_job_that_is_added_later_is_found_too(cell: Cell) -> None:
    seen = Recorder()
    with cell.queue.listen(seen, poll_interval=POLL):
        for n in range(5):
            job = cell.queue.add("a", {"n": n})
            assert seen.wait_for(n + 1)[-1].id == job.id


def test_a_handler_that_returns_completes_its_job(cell: Cell) -> None:
    job = cell.queue.add("a", {"name": "Ada"})
    seen = Recorder()
    with cell.queue.listen(seen, poll_interval=POLL):
        seen.wait_for(1)
    (during,), after = seen.jobs, cell.queue.get(job.id)
    assert during.status is Status.RUNNING
    assert during.data == {"name": "Ada"}
    assert during.started_at == during.updated_at == after.started_at >= job.created_at
    assert after.status is Status.COMPLETED
    assert after.error is None
    assert after.finished_at == after.updated_at >= after.started_at
    assert len(cell.collection.find_one({"_id": job.id})) == 9


def test_a_handler_that_raises_fails_its_job_with_name_message_and_stack_and_it_is_never_retried(cell: Cell) -> None:
    def fail(job: Job) -> None:
        raise LookupError(f"no user {job.data['user']}")

    job = cell.queue.add("a", {"user": 7})
    seen = Recorder(fail)
    with cell.queue.listen(seen, poll_interval=POLL):
        until(ended(cell.collection, [job.id]))
        other = cell.queue.add("b", {"user": 8})
        until(ended(cell.collection, [other.id]))
    after = cell.queue.get(job.id)
    assert after.status is Status.FAILED
    assert set(after.error) == {"name", "message", "stack"}
    assert after.error["name"] == "LookupError"
    assert after.error["message"] == "no user 7"
    assert "in fail" in after.error["stack"]
    assert seen.ids == [job.id, other.id]


class Calls:
    """Handlers of every kind; each notes its job's number."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def plain(self, job: Job) -> None:
        self.seen.append(job.data["n"])

    async def coroutine(self, job: Job) -> None:
        await asyncio.sleep(0)
        self.seen.append(job.data["n"])

    def returning_a_coroutine(self, job: Job) -> Any:
        return self.coroutine(job)

    def partial(self) -> Callable[[Job], object]:
        return partial(self._with_extra, "extra")

    def async_partial(self) -> Callable[[Job], object]:
        return partial(self._async_with_extra, "extra")

    def callable_object(self) -> Callable[[Job], object]:
        calls = self

        class Handler:
            def __call__(self, job: Job) -> None:
                calls.plain(job)

        return Handler()

    def async_callable_object(self) -> Callable[[Job], object]:
        calls = self

        class Handler:
            async def __call__(self, job: Job) -> None:
                await calls.coroutine(job)

        return Handler()

    def _with_extra(self, extra: str, job: Job) -> None:
        self.plain(job)

    async def _async_with_extra(self, extra: str, job: Job) -> None:
        await self.coroutine(job)


@pytest.mark.parametrize(
    "pick",
    [
        lambda calls: calls.plain,
        lambda calls: calls.coroutine,
        lambda calls: lambda job: calls.coroutine(job),  # noqa: PLW0108  # a lambda is the case
        lambda calls: calls.returning_a_coroutine,
        Calls.partial,
        Calls.async_partial,
        Calls.callable_object,
        Calls.async_callable_object,
    ],
    ids=["def", "async def", "lambda", "returns coroutine", "partial", "async partial", "object", "async object"],
)
def test_every_kind_of_handler_runs_and_completes_its_jobs(
    cell: Cell, pick: Callable[[Calls], Callable[[Job], object]]
) -> None:
    calls = Calls()
    ids = [job.id for job in cell.queue.add_many([("a", {"n": n}) for n in range(20)])]
    with cell.queue.listen(pick(calls), poll_interval=POLL):
        until(ended(cell.collection, ids))
    assert sorted(calls.seen) == list(range(20))
    assert cell.collection.count_documents({"status": "completed"}) == 20


def generator(job: Job) -> Iterator[None]:
    yield


async def async_generator(job: Job) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("handler", [generator, async_generator, None, "handler", 7])
def test_a_handler_that_would_not_run_when_called_is_refused(cell: Cell, handler: object) -> None:
    with pytest.raises(TypeError, match="handler"):
        cell.queue.listen(handler)


@pytest.mark.parametrize("returned", [generator, async_generator])
def test_a_job_is_never_completed_when_its_handler_returned_something_that_did_not_run(
    cell: Cell, returned: Callable[[Job], object]
) -> None:
    job = cell.queue.add("a")
    with cell.queue.listen(lambda job: returned(job), poll_interval=POLL):  # noqa: PLW0108  # hides what it returns
        until(ended(cell.collection, [job.id]))
    after = cell.queue.get(job.id)
    assert after.status is Status.FAILED
    assert "has not been worked on" in after.error["message"]


class Odd(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.mark.parametrize(
    "error",
    [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, StopAsyncIteration, Odd],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_whatever_a_handler_raises_fails_its_job_and_the_listener_lives_on(
    cell: Cell, error: type[BaseException], kind: str
) -> None:
    def raising(job: Job) -> None:
        if job.action == "bad":
            raise error

    async def raising_async(job: Job) -> None:
        await asyncio.sleep(0)
        raising(job)

    bad = [job.id for job in cell.queue.add_many([("bad", None)] * 3)]
    with cell.queue.listen(raising if kind == "def" else raising_async, concurrency=2, poll_interval=POLL) as listener:
        until(ended(cell.collection, bad))
        good = cell.queue.add("good")
        until(ended(cell.collection, [good.id]))
        assert listener.stop(10)
    assert {cell.queue.get(id).status for id in bad} == {Status.FAILED}
    # A coroutine cannot let a StopIteration out: Python makes a RuntimeError of it.
    names = {error.__name__, "RuntimeError"} if error is StopIteration else {error.__name__}
    assert {cell.queue.get(id).error["name"] for id in bad} <= names
    assert cell.queue.get(good.id).status is Status.COMPLETED


def test_jobs_of_the_extension_are_left_alone(cell: Cell) -> None:
    durable, plain = cell.queue.add("a"), cell.queue.add("a")
    cell.collection.update_one({"_id": durable.id}, {"$set": {"durable": {"priority": 0}}})
    seen = Recorder()
    with cell.queue.listen(seen, poll_interval=POLL):
        until(ended(cell.collection, [plain.id]))
        late = cell.queue.add("a")
        until(ended(cell.collection, [late.id]))
    assert sorted(seen.ids) == sorted([plain.id, late.id])
    assert cell.queue.get(durable.id).status is Status.QUEUED


def test_a_listener_with_actions_takes_only_these_and_the_rest_waits_untouched(cell: Cell) -> None:
    others = cell.queue.add_many([("other", {"n": n}) for n in range(50)])
    cell.queue.add_many([("mail", None), ("sms", None)])
    seen = Recorder()
    with cell.queue.listen(seen, actions=["mail", "sms", "never"], poll_interval=POLL):
        seen.wait_for(2)
        cell.queue.add("other")
        cell.queue.add("mail")
        seen.wait_for(3)
    assert sorted(job.action for job in seen.jobs) == ["mail", "mail", "sms"]
    assert [cell.queue.get(job.id) for job in others] == others


def test_no_more_jobs_run_than_there_are_slots(cell: Cell) -> None:
    release = threading.Event()
    ids = [job.id for job in cell.queue.add_many([("a", None)] * 20)]
    seen = Recorder(lambda job: release.wait(60))
    with cell.queue.listen(seen, concurrency=3, poll_interval=POLL):
        seen.wait_for(3)
        assert cell.collection.count_documents({"status": "running"}) == 3
        release.set()
        until(ended(cell.collection, ids))
    assert seen.most_at_once == 3


def test_stop_takes_no_more_jobs_and_waits_for_those_that_run(cell: Cell) -> None:
    release = threading.Event()
    cell.queue.add_many([("a", None)] * 5)
    seen = Recorder(lambda job: release.wait(60))
    listener = cell.queue.listen(seen, concurrency=2, poll_interval=POLL)
    seen.wait_for(2)
    assert listener.wait(0) is False
    assert listener.stop(0.01) is False
    assert listener.wait(5) is True
    release.set()
    assert listener.stop() is True
    assert len(seen.jobs) == 2
    assert cell.collection.count_documents({"status": "completed"}) == 2
    assert cell.collection.count_documents({"status": "queued"}) == 3
    assert listener.stop() is True


def test_a_handler_that_outlives_the_stop_still_gets_its_end_stored(cell: Cell) -> None:
    release = threading.Event()
    job = cell.queue.add("a")
    seen = Recorder(lambda job: release.wait(60))
    listener = cell.queue.listen(seen, poll_interval=POLL)
    seen.wait_for(1)
    assert listener.stop(timeout=0) is False
    release.set()
    until(ended(cell.collection, [job.id]))
    assert until(lambda: listener.stop(0))


def test_stop_in_a_handler_is_an_error_without_a_timeout_and_works_with_one(cell: Cell) -> None:
    outcome: list[Any] = []
    box: list[Any] = []
    ready = threading.Event()
    stopped = threading.Event()

    def stop_sync(job: Job) -> None:
        ready.wait(60)
        try:
            box[0].stop()
        except RuntimeError as error:
            outcome.append(str(error))
        outcome.append(box[0].stop(timeout=0))
        stopped.set()

    cell.queue.add("a")
    box.append(cell.queue.listen(stop_sync, poll_interval=POLL))
    ready.set()
    assert stopped.wait(60)
    assert box[0].stop(60) is True
    assert "pass stop(timeout=0)" in outcome[0]
    assert outcome[1] is False


def test_what_is_updated_during_the_run_is_kept_at_its_end(cell: Cell) -> None:
    job = cell.queue.add("a", {"n": 1})
    seen = Recorder(lambda job: cell.queue.update(job.id, {"progress": 50}))
    with cell.queue.listen(seen, poll_interval=POLL):
        until(ended(cell.collection, [job.id]))
    assert seen.jobs[0].data == {"n": 1}
    assert cell.queue.get(job.id).data == {"n": 1, "progress": 50}


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"status": "cancelled"},
        {"status": "failed", "error": None},
        {"started_at": None},
    ],
    ids=["cancelled", "failed", "claimed anew"],
)
def test_an_end_that_comes_too_late_changes_nothing(
    cell: Cell, meanwhile: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    job = cell.queue.add("a")
    seen = Recorder(lambda job: cell.collection.update_one({"_id": job.id}, {"$set": meanwhile}))
    with cell.queue.listen(seen, poll_interval=POLL):
        seen.wait_for_ends(1)
    after = cell.collection.find_one({"_id": job.id})
    assert {key: after[key] for key in meanwhile} == meanwhile
    assert after["finished_at"] is None
    assert f"job {job.id} was no longer running" in caplog.text


def test_a_job_that_was_deleted_during_its_run_is_not_brought_back(cell: Cell) -> None:
    job = cell.queue.add("a")
    seen = Recorder(lambda job: cell.collection.delete_one({"_id": job.id}))
    with cell.queue.listen(seen, poll_interval=POLL):
        seen.wait_for_ends(1)
    assert cell.queue.get(job.id) is None
    assert cell.collection.count_documents({}) == 0


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"actions": "mail"}, "actions"),
        ({"actions": []}, "actions"),
        ({"actions": 7}, "actions"),
        ({"actions": ["mail", ""]}, "actions[1]"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"poll_interval": -1}, "poll_interval"),
        ({"poll_interval": float("nan")}, "poll_interval"),
        ({"poll_interval": float("inf")}, "poll_interval"),
        ({"poll_interval": "5"}, "poll_interval"),
    ],
)
def test_a_bad_option_of_listen_is_an_error_at_the_call(cell: Cell, options: dict[str, Any], path: str) -> None:
    with pytest.raises(PayloadError) as refused:
        cell.queue.listen(print, **options)
    assert refused.value.path == path


def test_without_change_streams_it_polls_and_says_so_once(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "simplequeue"):
        seen = Recorder()
        with cell.queue.listen(seen, poll_interval=POLL):
            cell.queue.add("a")
            seen.wait_for(1)
    said = [record for record in caplog.records if "no change stream" in record.message]
    assert len(said) == (0 if cell.real else 1)
