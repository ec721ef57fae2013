"""Signals: they only ask, whatever they interrupt, and leave what an application had installed as it was."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.database import Database

from durabl_ext import AsyncJobQueue, JobQueue
from simplequeue import Status
from tests.drain.programs import running
from tests.drain.test_start_and_stop import own_threads
from tests.watching import until

Db = Database[dict[str, Any]]
TERM, INT = signal.SIGTERM, signal.SIGINT


def send_later(after: float, *numbers: int) -> threading.Thread:
    def send() -> None:
        threading.Event().wait(after)
        for number in numbers:
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    return sender


def random_signals(chance: random.Random) -> tuple[int, ...]:
    return chance.choice([(TERM,), (TERM, TERM), (INT, TERM), (INT,), (TERM, INT)])


def test_a_worker_ends_at_whatever_moment_the_signal_comes(db: Db) -> None:
    """100 times in one process: while it starts, enqueues, works or waits; once, twice in a row, SIGINT and SIGTERM."""
    chance, before = random.Random(40), [signal.getsignal(number) for number in (TERM, INT)]
    for _ in range(100):
        queue = JobQueue(db)
        queue.process("a", lambda job, ctx: None, concurrency=4)
        uninstall = queue.install_signal_handlers(timeout=60)
        sender = send_later(chance.uniform(0, 0.06), *random_signals(chance))
        try:
            queue.enqueue("a")
            try:
                queue.start(reaper=False)
            except RuntimeError:
                assert queue.draining
            while not queue.draining:  # takes the locks of logging, the driver and this queue over and over
                queue.enqueue("a")
            began = time.monotonic()
            assert queue.wait_drained(60)
            assert time.monotonic() - began < 20
            assert queue.shutdown() is True
        finally:
            sender.join(10)
            uninstall()
    assert [signal.getsignal(number) for number in (TERM, INT)] == before
    assert db.job.count_documents({"status": "running"}) == 0
    assert db.job.count_documents({"status": {"$in": ["failed", "superseded"]}}) == 0


def test_an_async_worker_ends_at_whatever_moment_the_signal_comes(mongo_url: str, db: Db) -> None:
    """100 times in one process, under asyncio.run, whose own handler for SIGINT would cancel the drain."""
    chance, before = random.Random(41), [signal.getsignal(number) for number in (TERM, INT)]

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            for _ in range(100):
                queue = AsyncJobQueue(client[db.name])
                queue.process("a", lambda job, ctx: None, concurrency=4)
                for _ in range(5):
                    await queue.enqueue("a")
                uninstall = queue.install_signal_handlers(timeout=60)  # first: it would end this process otherwise
                sender = send_later(chance.uniform(0, 0.06), *random_signals(chance))
                running = asyncio.create_task(queue.run(timeout=60, reaper=False))
                try:
                    await asyncio.wait_for(queue.wait_drained(), 30)
                    assert await running is True
                finally:
                    sender.join(10)
                    await asyncio.sleep(0)
                    uninstall()

    asyncio.run(main())
    assert [signal.getsignal(number) for number in (TERM, INT)] == before
    assert db.job.count_documents({"status": "running"}) == 0
    assert db.job.count_documents({"status": {"$in": ["failed", "superseded"]}}) == 0


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("numbers", [(TERM,), (INT,), (TERM, TERM), (INT, TERM)], ids=["term", "int", "twice", "both"])
def test_run_is_a_workers_main_line_that_returns_after_a_signal(
    mongo_url: str, db: Db, colour: str, numbers: Any
) -> None:
    id = JobQueue(db).enqueue("heed")
    with running("run", colour, mongo_url, db.name) as program:
        program.wait_for("running", "stdout")
        for number in numbers:
            program.send(number)
        assert program.end(20) == 0
        assert program.stdout.splitlines()[-1] == "answer True"
        assert program.stderr == ""
    job = JobQueue(db).get(str(id))
    assert job is not None
    assert (job.status, job.attempt) == (Status.QUEUED, 0)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_run_raises_what_start_raises(colour: str) -> None:
    with running("run", colour, "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1", "nowhere") as program:
        assert program.end(20) == 1
        assert "ServerSelectionTimeoutError" in program.stderr


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_signal_that_does_not_wake_the_main_thread_is_noticed_soon(mongo_url: str, db: Db, colour: str) -> None:
    def to_itself() -> None:  # as the kernel may choose by itself: the main thread goes on sleeping
        threading.Event().wait(0.3)
        signal.pthread_kill(threading.get_ident(), TERM)

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url, heartbeatFrequencyMS=60_000) as client:
            queue = AsyncJobQueue(client[db.name], push=False)
            uninstall = queue.install_signal_handlers()
            other.start()
            assert await asyncio.wait_for(queue.wait_drained(), 60)
            uninstall()

    other, began = threading.Thread(target=to_itself), time.monotonic()
    if colour == "async":
        asyncio.run(main())
    else:
        queue = JobQueue(db)
        uninstall = queue.install_signal_handlers()
        other.start()
        assert queue.wait_drained()
        uninstall()
    assert time.monotonic() - began < 20  # the driver alone would wake the loop once a minute
    other.join(30)


class Calls:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, frame: Any) -> None:
        self.numbers.append(number)


def test_earlier_handlers_are_called_as_well_and_put_back(db: Db) -> None:
    earlier = Calls()
    before = signal.signal(signal.SIGUSR1, earlier)
    try:
        one, two = JobQueue(db), JobQueue(db)
        uninstalls = [queue.install_signal_handlers([signal.SIGUSR1, signal.SIGUSR1]) for queue in (one, two)]
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: one.draining and two.draining)
        assert earlier.numbers == [signal.SIGUSR1]
        for uninstall in uninstalls:  # the one that is beneath first
            uninstall()
        assert signal.getsignal(signal.SIGUSR1) is earlier
        uninstalls[0]()
        assert signal.getsignal(signal.SIGUSR1) is earlier
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_was_installed_since_is_left_in_place(db: Db) -> None:
    later, before = Calls(), signal.getsignal(signal.SIGUSR1)
    queue = JobQueue(db)
    try:
        uninstall = queue.install_signal_handlers([signal.SIGUSR1])
        signal.signal(signal.SIGUSR1, later)
        uninstall()
        assert signal.getsignal(signal.SIGUSR1) is later
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_that_another_thread_uninstalls_are_as_if_they_were_not_there(db: Db) -> None:
    earlier = Calls()
    before = signal.signal(signal.SIGUSR1, earlier)
    queue = JobQueue(db)
    try:
        uninstall = queue.install_signal_handlers([signal.SIGUSR1])
        thread = threading.Thread(target=uninstall)
        thread.start()
        thread.join(30)
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: earlier.numbers == [signal.SIGUSR1])
        assert signal.getsignal(signal.SIGUSR1) is earlier
        assert queue.draining is False
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_another_thread_than_the_main_one_is_told_to_install_elsewhere(db: Db, mongo_url: str, colour: str) -> None:
    errors: list[str] = []

    def install() -> None:
        try:
            if colour == "sync":
                JobQueue(db).install_signal_handlers()
            else:
                asyncio.run(main())
        except RuntimeError as error:
            errors.append(str(error))

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongo_url) as client:
            AsyncJobQueue(client[db.name]).install_signal_handlers()

    thread = threading.Thread(target=install)
    thread.start()
    thread.join(30)
    assert "in the main thread only" in errors[0]


def test_a_signal_that_cannot_be_handled_leaves_none_of_the_others_handled(db: Db) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(OSError, match="Invalid argument"):
        JobQueue(db).install_signal_handlers([signal.SIGUSR1, signal.SIGKILL])
    assert signal.getsignal(signal.SIGUSR1) is before


def test_uninstalling_leaves_no_thread_behind(db: Db) -> None:
    before = own_threads()
    for _ in range(3):
        JobQueue(db).install_signal_handlers([signal.SIGUSR1])()
    until(lambda: own_threads() <= before)
