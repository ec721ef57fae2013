"""Shutdowns while the server is frozen or gone: they keep their bound, and nothing is stored twice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from simplequeue import Status
from simplequeue.embedded import Mongod
from tests.drain.handlers import BOUND, Held, raise_if_set
from tests.drain.queues import Events, Hooks, Maker
from tests.listening.test_outage import frozen, pass_time
from tests.watching import until

Db = Database[dict[str, Any]]


@pytest.fixture(autouse=True)
def writes_have_time() -> None:
    """Here they have the second that they have elsewhere: that a drain does not wait for longer is what is tested."""


def short(server: Mongod) -> str:
    """How to connect without patience."""
    return server.uri + "&serverSelectionTimeoutMS=2000"


@pytest.mark.parametrize("handler", ["none", "ignorant", "heeding"])
def test_a_drain_keeps_its_bound_while_the_server_is_frozen(
    server: Mongod, own_db: Db, make: Maker, handler: str
) -> None:
    held = Held(raise_if_set if handler == "heeding" else None)
    queue = make(own_db, url=short(server))
    queue.process("a", held)
    queue.start(reaper_interval=0.2)
    if handler != "none":
        queue.enqueue("a")
        assert held.running.wait(30)
    with frozen(server):
        pass_time(0.5)  # a sweep of the reaper hangs
        began = time.monotonic()
        finished = queue.shutdown(0.3)
        assert time.monotonic() - began < 0.3 + BOUND
        assert finished is (handler == "none")
    held.release.set()
    # The writes that were on their way reach the server after all: the job is not stranded.
    until(lambda: own_db.job.count_documents({"status": "running"}) == 0)


def test_a_handler_that_ends_while_the_server_is_frozen_has_its_end_stored_once(
    server: Mongod, own_db: Db, make: Maker
) -> None:
    held, hooks, events = Held(), Hooks(), Events()
    queue = make(own_db, url=short(server), hooks=hooks, on_job_event=events)
    queue.process("a", held)
    queue.start()
    id = queue.enqueue("a")
    assert held.running.wait(30)
    with frozen(server):
        held.release.set()
        began = time.monotonic()
        assert queue.shutdown(0.3) is False
        assert time.monotonic() - began < 0.3 + BOUND
    until(lambda: queue.get(id).status is Status.COMPLETED)
    assert queue.get(id).attempt == 1
    until(lambda: events.kinds.count("completed") == 1)


def test_a_drain_keeps_its_bound_when_the_server_is_gone(make: Maker) -> None:
    mongod = Mongod()
    with mongod, MongoClient[dict[str, Any]](mongod.uri, serverSelectionTimeoutMS=1_000) as client:
        held = Held()
        queue = make(client.test_gone, url=mongod.uri + "&serverSelectionTimeoutMS=1000")
        queue.process("a", held)
        queue.start()
        queue.enqueue("a")
        assert held.running.wait(30)
        mongod.__exit__(None, None, None)
        threading.Timer(0.2, held.release.set).start()
        began = time.monotonic()
        queue.shutdown(1)
        assert time.monotonic() - began < 1 + BOUND


def test_a_worker_that_starts_without_a_server_says_so_or_ends_when_it_is_told_to(make: Maker) -> None:
    asking = threading.Event()
    hooks = Hooks(before=lambda name, number: asking.set() if name == "startup" else None)
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1/", serverSelectionTimeoutMS=60_000) as client:
        queue = make(client.nowhere, url="mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=60000", hooks=hooks)
        answers: list[bool] = []
        running = threading.Thread(target=lambda: answers.append(queue.run()))
        running.start()
        assert asking.wait(30)
        began = time.monotonic()
        assert queue.shutdown(1) is True
        running.join(30)
        assert time.monotonic() - began < 1 + BOUND
        assert answers == [True]
