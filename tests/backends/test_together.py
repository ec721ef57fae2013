"""What callers in threads are told when one of them sends for others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect, BulkWriteError, OperationFailure, PyMongoError

from durabl_ext import AsyncMongoJobQueue, DedupeScopeConflictError, DummyBackend, Enqueue, MongoJobQueue, upgrade
from durabl_ext.decisions import Decisions
from durabl_ext.together import OWN_BYTES, OWN_DOCUMENTS, TasksTogether, ThreadsTogether, together
from simplequeue import create_queue
from simplequeue.threads import Threads
from tests.backends.senders import Crowd, HeldJobs, crowd_on
from tests.watching import DEADLINE

REFUSED_BY_A_VALIDATOR = 121
QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}
LATEST: Any = {**QUEUED, "coalesce": "latest"}


@pytest.fixture
def crowd(db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    with crowd_on(db.job, monkeypatch) as crowd:
        yield crowd


def stored(db: Database[dict[str, Any]]) -> dict[str, list[str]]:
    """The ids of the jobs of each action."""
    found: dict[str, list[str]] = {}
    for job in db.job.find():
        found.setdefault(job["action"], []).append(job["_id"])
    return found


def test_callers_that_enqueue_at_the_same_time_share_one_write_and_each_gets_its_own_id(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    a, b = crowd.comes(Enqueue("a")), crowd.comes(Enqueue("b", {"n": 1}), Enqueue("b", {"n": 2}))
    c = crowd.comes(Enqueue("c"))
    ids = crowd.told(a, b, c)
    assert crowd.jobs.calls == [["first"], ["a", "b", "b", "c"]]
    assert stored(db) == {"first": crowd.first.result(), "a": ids[0], "b": ids[1], "c": ids[2]}
    assert [db.job.find_one({"_id": id}, ["data"]) for id in ids[1]] == [
        {"_id": id, "data": {"n": n}} for n, id in enumerate(ids[1], 1)
    ]


def test_a_caller_alone_makes_one_call_at_once_and_starts_no_thread(db: Database[dict[str, Any]]) -> None:
    jobs = HeldJobs(db.job)
    jobs.open()
    backend = MongoJobQueue.on(jobs)
    before = threading.active_count()
    backend.enqueue([Enqueue("a")])
    backend.enqueue([Enqueue("b")])
    assert jobs.calls == [["a"], ["b"]]
    assert threading.active_count() == before


def test_who_has_sent_for_others_sends_nothing_that_came_meanwhile(crowd: Crowd) -> None:
    held, door = threading.Event(), threading.Event()

    def hold_the_second(actions: list[str]) -> None:
        if actions == ["a"]:
            held.set()
            assert door.wait(DEADLINE)

    crowd.jobs.before = hold_the_second
    a = crowd.comes(Enqueue("a"))
    crowd.jobs.open()
    assert held.wait(DEADLINE)
    assert crowd.first.result(DEADLINE)  # while the next call is under way
    b = crowd.comes(Enqueue("b"))
    door.set()
    assert crowd.told(a, b)
    assert crowd.jobs.calls == [["first"], ["a"], ["b"]]


def test_a_taken_key_is_the_answer_of_whose_job_it_was(crowd: Crowd, db: Database[dict[str, Any]]) -> None:
    with db.client.start_session() as session:
        (held,) = crowd.goes(Enqueue("held", dedupe_key="k"), session=session)
    a, b = crowd.comes(Enqueue("a")), crowd.comes(Enqueue("b"), Enqueue("b", dedupe_key="k"), Enqueue("b"))
    c, d = crowd.comes(Enqueue("c", dedupe_key="k")), crowd.comes(Enqueue("d", dedupe_key="other"))
    conflict = crowd.comes(Enqueue("e", **QUEUED))
    a_told, b_told, c_told, d_told, error = crowd.told(a, b, c, d, conflict)
    assert (b_told[1], c_told) == (None, [None])
    assert isinstance(error, DedupeScopeConflictError)
    assert error.args[-1] == held
    assert stored(db) == {
        "first": crowd.first.result(),
        "held": [held],
        "a": a_told,
        "b": [b_told[0], b_told[2]],
        "d": d_told,
    }
    assert crowd.jobs.calls[2] == ["a", "b", "b", "b", "c", "d", "e"]


def test_of_two_callers_with_one_key_the_second_is_told_that_it_is_taken(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    a, b = crowd.comes(Enqueue("a", dedupe_key="k")), crowd.comes(Enqueue("a", dedupe_key="k"))
    (id,), second = crowd.told(a, b)
    assert second == [None]
    assert stored(db)["a"] == [id]


def test_of_two_callers_with_one_key_the_latest_replaces_the_data_of_the_first(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    a, b = crowd.comes(Enqueue("a", {"n": 1}, **LATEST)), crowd.comes(Enqueue("a", {"n": 2}, **LATEST))
    (id,), (same,) = crowd.told(a, b)
    assert id == same
    assert [job["data"] for job in db.job.find({"action": "a"})] == [{"n": 2}]


def test_a_job_that_the_server_refuses_is_the_error_of_its_caller_only(
    crowd: Crowd, db: Database[dict[str, Any]]
) -> None:
    db.command("collMod", "job", validator={"data.wrong": {"$exists": False}})
    a, c = crowd.comes(Enqueue("a")), crowd.comes(Enqueue("c"), Enqueue("c", {"wrong": 1}))
    b, d = crowd.comes(Enqueue("b", {"wrong": 2})), crowd.comes(Enqueue("d"))
    a_told, c_told, b_told, d_told = crowd.told(a, c, b, d)
    assert crowd.jobs.calls[1] == ["a", "c", "c", "b", "d"]
    assert isinstance(b_told, BulkWriteError)
    assert isinstance(c_told, BulkWriteError)
    with pytest.raises(BulkWriteError) as alone:
        crowd.goes(Enqueue("b", {"wrong": 2}))
    same = ("index", "code", "errmsg")
    (refusal,), (expected,) = b_told.details["writeErrors"], alone.value.details["writeErrors"]
    assert {key: refusal[key] for key in same} == {key: expected[key] for key in same}
    assert {**b_told.details, "writeErrors": 0} == {**alone.value.details, "writeErrors": 0}
    assert [(error["index"], error["op"]["data"]) for error in c_told.details["writeErrors"]] == [(1, {"wrong": 1})]
    assert c_told.details["nInserted"] == 1
    assert {action: len(ids) for action, ids in stored(db).items()} == {"first": 1, "a": 1, "c": 1, "d": 1}
    assert stored(db)["a"] + stored(db)["d"] == a_told + d_told


def test_a_call_without_a_majority_is_an_error_of_all_it_was_made_for(
    mongo_url: str, db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = {"code": 64, "errmsg": "waiting for replication timed out"}
    data = {"failCommands": ["insert"], "writeConcernError": failure, "appName": db.name}
    with (
        MongoClient[dict[str, Any]](mongo_url, appName=db.name) as client,
        crowd_on(client[db.name].job, monkeypatch) as crowd,
    ):
        a, b = crowd.comes(Enqueue("a", dedupe_key="k")), crowd.comes(Enqueue("b"))
        crowd.jobs.open()
        crowd.jobs.before = lambda actions: set_failpoint(db, data) if actions == ["a", "b"] else None
        errors = crowd.told(a, b)
        assert [error.details["writeConcernErrors"][0]["code"] for error in errors] == [64, 64]
        assert errors[0] is not errors[1]
        id = stored(db)["a"][0]
        assert crowd.goes(Enqueue("a", dedupe_key="k")) == [None]
        assert stored(db)["a"] == [id]


def set_failpoint(db: Database[dict[str, Any]], data: dict[str, Any]) -> None:
    db.client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)


@pytest.mark.parametrize("trouble", [AutoReconnect("gone", ["why"]), OperationFailure("no", 13, {"errmsg": "no"})])
def test_what_goes_wrong_with_a_call_is_told_to_all_and_each_may_raise_it(crowd: Crowd, trouble: Exception) -> None:
    def fail(actions: list[str]) -> None:
        if len(actions) == 3:
            raise trouble from OSError("reset")

    crowd.jobs.before = fail
    callers = [crowd.comes(Enqueue(action)) for action in "abc"]
    errors = crowd.told(*callers)
    assert [(type(error), str(error), vars(error)) for error in errors] == [
        (type(trouble), str(trouble), vars(trouble))
    ] * 3
    assert [str(error.__cause__) for error in errors] == ["reset"] * 3
    assert len(set(map(id, errors))) == 3


def test_a_caller_with_a_time_limit_of_its_own_sends_by_itself(crowd: Crowd) -> None:
    waits = crowd.comes(Enqueue("a"))
    with pymongo.timeout(DEADLINE):
        assert crowd.backend.enqueue([Enqueue("limited")])
    with pytest.raises(PyMongoError) as limited, pymongo.timeout(1e-9):
        crowd.backend.enqueue([Enqueue("hasty")])
    assert limited.value.timeout
    assert crowd.jobs.calls == [["first"], ["limited"], ["hasty"]]
    assert crowd.told(waits)


def test_a_caller_with_a_session_sends_by_itself(crowd: Crowd, db: Database[dict[str, Any]]) -> None:
    with db.client.start_session() as session:
        assert crowd.goes(Enqueue("a"), session=session)
        with session.start_transaction():
            (id,) = crowd.goes(Enqueue("b"), session=session)
            assert db.job.find_one({"_id": id}) is None
    assert crowd.jobs.calls == [["first"], ["a"]]
    assert stored(db)["b"] == [id]


def test_a_caller_with_much_sends_it_by_itself_and_holds_up_nobody(crowd: Crowd) -> None:
    assert crowd.goes(Enqueue("large", {"text": "x" * OWN_BYTES}))
    assert crowd.goes(*[Enqueue("many")] * (OWN_DOCUMENTS + 1))
    assert [actions[0] for actions in crowd.jobs.calls] == ["first", "large", "many"]


@pytest.mark.parametrize(("limit", "most"), [("MOST_DOCUMENTS", 3), ("MOST_BYTES", 1_000)])
def test_no_more_is_sent_for_several_than_keeps_the_wait_short(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(f"durabl_ext.together.{limit}", most)
    a, b = crowd.comes(Enqueue("a")), crowd.comes(Enqueue("b"), Enqueue("b"))
    c, d = crowd.comes(Enqueue("c"), Enqueue("c")), crowd.comes(Enqueue("d"))
    crowd.told(a, b, c, d)
    assert crowd.jobs.calls == [["first"], ["a", "b", "b"], ["c", "c", "d"]]


def test_a_call_that_hangs_holds_up_for_a_moment_only_who_has_nothing_in_it(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = crowd.comes(Enqueue("a"))
    monkeypatch.setattr("durabl_ext.together.PATIENCE", 0)
    assert crowd.goes(Enqueue("b"))
    assert waits.result(DEADLINE)
    assert crowd.goes(Enqueue("c"))
    assert crowd.jobs.calls == [["first"], ["b", "a"], ["c"]]


def test_the_way_to_wait_is_that_of_the_calls_and_in_memory_nobody_waits(
    db: Database[dict[str, Any]], mock_db: Any
) -> None:
    decisions = MongoJobQueue(db).here
    assert isinstance(together(decisions._jobs), ThreadsTogether)
    asynchronous = pymongo.AsyncMongoClient[dict[str, Any]]()[db.name]
    assert isinstance(together(AsyncMongoJobQueue(asynchronous)._jobs), TasksTogether)
    backends = [
        MongoJobQueue(db).through(Threads("never started")),
        DummyBackend().here,
        upgrade(create_queue(mock_db)).backend.here,
    ]
    assert [together(decisions._jobs) for decisions in backends if isinstance(decisions, Decisions)] == [None] * 3
