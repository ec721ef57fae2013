"""Runs that end by themselves just when a drain gives up on them: one end is written, and it is the right one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from durabl_ext import JobQueue, MongoJobQueue, Settled, Settlement
from simplequeue import Status
from tests.drain.handlers import Held
from tests.drain.queues import Hooks, Maker
from tests.watching import until

Db = Database[dict[str, Any]]


class Settles(MongoJobQueue):
    """Remembers how claims were ended."""

    how: list[str]

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.how += [settlement.how for settlement in settlements]
        return super().settle(settlements)


def test_a_handler_that_ends_when_its_run_was_just_given_up_is_settled_once(db: Db) -> None:
    held = Held()

    class EndsTheHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "does not end" in record.getMessage():
                held.release.set()
                assert held.over.wait(30)
                threading.Event().wait(0.1)  # its thread now tells the loop, which runs this

    logger = logging.Logger("test")
    logger.addHandler(EndsTheHandler())
    backend = Settles(db)
    backend.how = []
    queue = JobQueue(backend, logger=logger)
    queue.process("a", held)
    queue.start()
    id = queue.enqueue("a")
    assert held.running.wait(30)
    queue.shutdown(0)
    assert backend.how == ["release"]
    job = queue.get(str(id))
    assert job is not None
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_that_still_stores_its_log_has_ended_and_is_not_given_back(db: Db, make: Maker, fails: bool) -> None:
    logging_, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "log":
            logging_.set()
            release.wait(30)

    def work(job: Any, ctx: Any) -> None:
        ctx.log("a line")
        if fails:
            raise ValueError("no")

    queue = make(db, hooks=Hooks(before=hold))
    queue.process("a", work)
    queue.start()
    id = queue.enqueue("a", max_attempts=1)
    assert logging_.wait(30)
    assert queue.shutdown(0) is False
    release.set()
    until(lambda: queue.get(id).status is (Status.FAILED if fails else Status.COMPLETED))
    assert [line.message for line in queue.get(id).logs] == ["a line"]


def test_an_inline_failure_whose_end_is_being_stored_is_raised_and_not_the_shutdown(db: Db, make: Maker) -> None:
    settling, release = threading.Event(), threading.Event()

    def hold(name: str, number: int) -> None:
        if name == "settle":
            settling.set()
            release.wait(30)

    def fail(job: Any, ctx: Any) -> None:
        queue.enqueue("a", dedupe_key="k", dedupe_scope="queued")
        raise ValueError("no")

    queue = make(db, hooks=Hooks(before=hold))
    handle = queue.claim_or_enqueue("a", dedupe_key="k", dedupe_scope="queued")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(queue.run_claimed, handle, fail)
        assert settling.wait(30)
        assert queue.shutdown(0) is False
        release.set()
        with pytest.raises(ValueError, match="no"):
            running.result(30)
    assert queue.get(handle.job.id).status is Status.SUPERSEDED


def test_a_drain_does_not_wait_for_an_end_that_a_closed_client_cannot_store(
    db: Db, mongo_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    with MongoClient[dict[str, Any]](mongo_url) as client:
        queue = JobQueue(client[db.name])
        queue.process("a", held)
        queue.start(reaper=False)
        id = queue.enqueue("a")
        assert held.running.wait(30)
    held.release.set()
    began = time.monotonic()
    assert queue.shutdown(60) is True
    assert time.monotonic() - began < 30
    assert f"the end of job {id} is not stored" in caplog.text
