"""Callers that are interrupted, forked or called again while they send for others or wait."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from durabl_ext import Enqueue
from durabl_ext import together as module
from tests.backends.senders import Crowd, crowd_on
from tests.backends.test_together import stored
from tests.watching import DEADLINE

SECONDS = 30
"""What a forked child has, and a thread that is interrupted."""


AGAIN = 0.1
"""Seconds until a signal is sent again that was missed."""


class Stop(BaseException):
    """Interrupts a thread, as KeyboardInterrupt does the main one."""


@pytest.fixture
def crowd(db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    with crowd_on(db.job, monkeypatch) as crowd:
        yield crowd


@contextmanager
def on_signal(handler: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Has the main thread's handler do something; gives what sends the signal."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handler())
    main = threading.main_thread().ident
    assert main is not None
    try:
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("stop", [Stop, KeyboardInterrupt, SystemExit, TimeoutError])
@pytest.mark.parametrize("when", ["before", "after"])
def test_who_is_interrupted_while_it_sends_for_others_leaves_them_to_send_and_nothing_is_stored_twice(
    crowd: Crowd, db: Database[dict[str, Any]], stop: type[BaseException], when: str
) -> None:
    def interrupt(actions: list[str]) -> None:
        if actions == ["a", "b", "c", "c"]:
            raise stop

    setattr(crowd.jobs, when, interrupt)
    a, b = crowd.comes(Enqueue("a")), crowd.comes(Enqueue("b"))
    c = crowd.comes(Enqueue("c", dedupe_key="k"), Enqueue("c"))
    error, *ids = crowd.told(a, b, c)
    assert type(error) is stop
    assert sorted(crowd.jobs.calls[2:]) == [["b"], ["c", "c"]]
    assert [stored(db)["b"], stored(db)["c"]] == ids
    assert ("a" in stored(db)) is (when == "after")


def test_a_job_that_has_ended_before_it_is_sent_again_counts_as_stored(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    def end_all_and_interrupt(actions: list[str]) -> None:
        if actions == ["a", "b", "b"]:
            db.job.update_many({}, {"$set": {"status": "completed"}})
            raise Stop

    crowd.jobs.after = end_all_and_interrupt
    a, b = crowd.comes(Enqueue("a")), crowd.comes(Enqueue("b", dedupe_key="k"), Enqueue("b"))
    error, ids = crowd.told(a, b)
    assert type(error) is Stop
    assert stored(db)["b"] == ids
    assert db.job.count_documents({"status": "queued"}) == 0


@contextmanager
def stopped_at(number: int, lines: list[str]) -> Iterator[None]:
    """Interrupts this thread before a line of those that it runs to share writes; gives the lines before it.

    A lock is let go in the line that has taken it, where a signal cannot come between and this could.
    """

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return trace if event == "call" else None
        line = linecache.getline(module.__file__, frame.f_lineno).strip()
        if event == "line" and "with self._lock" not in line:
            lines.append(line)
            if len(lines) == number:
                sys.settrace(None)
                raise Stop
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


@pytest.mark.parametrize(("who", "reached"), [("sends", "self.sender = following"), ("waits", "return me.answer")])
def test_wherever_a_caller_is_interrupted_the_others_go_on_and_nothing_is_stored_twice(
    db: Database[dict[str, Any]], who: str, reached: str
) -> None:
    passed: set[str] = set()
    for number in range(1, 1_000):
        lines: list[str] = []
        with pytest.MonkeyPatch.context() as patch, crowd_on(db.job, patch) as crowd:

            def interrupted(number: int = number, lines: list[str] = lines, crowd: Crowd = crowd) -> None:
                with stopped_at(number, lines):
                    crowd.backend.enqueue([Enqueue("a", dedupe_key="k")])

            before = crowd.comes(Enqueue("b")) if who == "waits" else None
            victim = crowd.pool.submit(interrupted)
            crowd.until_asleep(victim)
            others = [crowd.comes(Enqueue("c")), crowd.comes(Enqueue("d"), Enqueue("d"))]
            told = crowd.told(*others, *([before] if before else []))
            error = victim.exception(DEADLINE)
            found = stored(db)
            assert ([found["c"], found["d"]], found.get("b")) == (told[:2], told[2] if before else None), lines
            assert len(found.get("a", ())) <= 1
            db.job.delete_many({})
        passed.update(lines)
        if error is None:
            break
        assert type(error) is Stop
    assert reached in passed


def test_a_forked_child_waits_for_nobody_of_its_parent(
    mongo_url: str, db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with MongoClient[dict[str, Any]](mongo_url) as client, crowd_on(client[db.name].job, monkeypatch) as crowd:
        waits = crowd.comes(Enqueue("a"))
        (room,) = crowd.rooms()
        with room._lock:  # as another thread may hold it
            child = os.fork()
            if child == 0:
                # In the child nothing of pytest may run, whatever happens.
                try:
                    signal.alarm(SECONDS)
                    crowd.backend.enqueue([Enqueue("child", dedupe_key="child")])
                    os._exit(0)
                finally:
                    os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert crowd.told(waits)
    assert {action: len(ids) for action, ids in stored(db).items()} == {"first": 1, "a": 1, "child": 1}


def test_a_signal_handler_that_enqueues_in_who_waits_sends_by_itself(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    handled: list[Any] = []

    def from_elsewhere() -> None:
        assert crowd.asleep.acquire(timeout=DEADLINE)
        while not done.wait(AGAIN):  # one that comes just before the thread falls asleep does not wake it
            send()
        crowd.jobs.open()

    def handle() -> None:
        handled.append(crowd.backend.enqueue([Enqueue("handler")]))
        done.set()

    done = threading.Event()
    with on_signal(handle) as send:
        elsewhere = crowd.pool.submit(from_elsewhere)
        ids = crowd.backend.enqueue([Enqueue("main")])
        elsewhere.result(DEADLINE)
    assert crowd.jobs.calls == [["first"], *[["handler"]] * len(handled), ["main"]]
    assert stored(db)["main"] == ids
    assert sorted(stored(db)["handler"]) == sorted(id for (id,) in handled)


def test_a_signal_handler_that_enqueues_in_who_sends_sends_by_itself(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    crowd.told()
    handled: list[Any] = []

    def interrupt(actions: list[str]) -> None:
        if actions == ["main"]:
            signal.raise_signal(signal.SIGUSR1)

    crowd.jobs.before = interrupt
    with on_signal(lambda: handled.append(crowd.backend.enqueue([Enqueue("handler")]))):
        ids = crowd.backend.enqueue([Enqueue("main")])
    assert stored(db) == {"first": crowd.first.result(), "handler": handled[0], "main": ids}


def test_a_signal_handler_that_enqueues_while_the_lock_is_held_sends_by_itself(
    crowd: Crowd, db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[Any] = []
    gather = module.Room.gather

    class Interrupting(dict[Any, None]):
        def pop(self, *args: Any) -> Any:
            signal.raise_signal(signal.SIGUSR1)
            return super().pop(*args)

    def gather_with_signals(self: module.Room, me: module.Caller) -> Any:
        self._waiting = Interrupting(self._waiting)
        return gather(self, me)

    crowd.told()
    monkeypatch.setattr(module.Room, "gather", gather_with_signals)
    with on_signal(lambda: handled.append(crowd.backend.enqueue([Enqueue("handler")]))):
        crowd.backend.enqueue([Enqueue("main")])
    assert len(handled) >= 2
    assert sorted(stored(db)["handler"]) == sorted(id for (id,) in handled)
