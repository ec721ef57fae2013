"""What a backend does when answers are lost, indexes are gone, or the server cannot keep its promises."""

from __future__ import annotations

import os
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect, DuplicateKeyError

from durabl_ext import Claim, Completed, Enqueue, IndexConflictError, MongoJobQueue, PayloadError
from durabl_ext.core.indexes import ALL, DEDUPE, DUE
from durabl_ext.core.journal import Limits
from durabl_ext.decisions import Decisions
from simplequeue import UnsupportedServerError, create_queue
from simplequeue.collection import CollectionJobs
from simplequeue.jobs import NoChangeStreamError, Session, Write, Written, blocking
from tests.backends.conftest import LEASE
from tests.listening.standalone import standalone

KEY: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}


class LostAnswers(CollectionJobs):
    """Loses the answers of writes and inserts while told to: of calls that were made, or are made later."""

    lose: str | None = None
    trouble: type[BaseException] = AutoReconnect

    def __init__(self, collection: Any) -> None:
        super().__init__(collection, blocking)
        self.late: list[Callable[[], Any]] = []

    async def write(self, writes: Sequence[Write], *, ordered: bool = False) -> Written:
        if self.lose == "the call":
            self.late.append(lambda: super(LostAnswers, self).write(writes, ordered=ordered))
        else:
            written = await super().write(writes, ordered=ordered)
        if self.lose is not None:
            raise self.trouble(f"{self.lose} was lost")
        return written

    async def insert_each(self, documents: list[dict[str, Any]], *, session: Session | None = None) -> set[int]:
        refused = await super().insert_each(documents, session=session)
        if self.lose is not None:
            raise self.trouble("the answer was lost")
        return refused

    def deliver(self) -> None:
        for call in self.late:
            with pytest.raises(StopIteration):
                call().send(None)


@pytest.fixture
def lossy(db: Database[dict[str, Any]]) -> tuple[MongoJobQueue, LostAnswers]:
    jobs = LostAnswers(db.job)
    backend = MongoJobQueue.on(jobs)
    backend.startup()
    return backend, jobs


def test_a_claim_that_arrives_after_its_sender_gave_up_is_given_back_with_no_attempt_spent(
    lossy: tuple[MongoJobQueue, LostAnswers],
) -> None:
    backend, jobs = lossy
    (id,) = backend.enqueue([Enqueue("a", max_attempts=1, **KEY)])
    jobs.lose = "the call"
    with pytest.raises(AutoReconnect):
        backend.claim(["a"], 1, lease=LEASE)
    jobs.lose = None
    jobs.deliver()
    assert jobs._collection.find_one()["status"] == "running"
    (claim,) = backend.claim(["a"], 1, lease=LEASE)
    assert (claim.job.id, claim.job.attempt) == (id, 1)
    assert backend.settle([claim.settled("complete")]) == [Completed()]


def test_what_a_claim_started_although_its_answer_was_lost_is_kept(lossy: tuple[MongoJobQueue, LostAnswers]) -> None:
    backend, jobs = lossy
    backend.enqueue([Enqueue("a"), Enqueue("a")])
    jobs.lose = "the answer"
    (first,) = backend.claim(["a"], 1, lease=LEASE)
    jobs.lose = None
    (second,) = backend.claim(["a"], 1, lease=LEASE)
    assert backend.recover().handled == 0
    assert backend.settle([first.settled("complete"), second.settled("complete")]) == [Completed(), Completed()]


def test_a_run_that_claim_or_enqueue_stored_without_hearing_of_it_is_given_back(
    lossy: tuple[MongoJobQueue, LostAnswers],
) -> None:
    backend, jobs = lossy
    jobs.lose = "the answer"
    with pytest.raises(AutoReconnect):
        backend.claim_or_enqueue(Enqueue("a", {"v": 1}, **KEY), lease=LEASE)
    jobs.lose = None
    backend.recover()
    assert backend.claim_or_enqueue(Enqueue("a", {"v": 2}, **KEY), lease=LEASE) is None
    (claim,) = backend.claim(["a"], 1, lease=LEASE)
    assert (claim.job.data, claim.job.attempt) == ({"v": 1}, 1)


@pytest.mark.parametrize("interrupt", [CancelledError, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["claim", "claim_by_id", "claim_or_enqueue"])
def test_what_a_claim_started_that_was_interrupted_is_given_back_with_no_attempt_spent(
    lossy: tuple[MongoJobQueue, LostAnswers], way: str, interrupt: type[BaseException]
) -> None:
    backend, jobs = lossy
    (id,) = [None] if way == "claim_or_enqueue" else backend.enqueue([Enqueue("a", **KEY)])
    jobs.lose, jobs.trouble = "the answer", interrupt
    with pytest.raises(interrupt):
        if way == "claim":
            backend.claim(["a"], 1, lease=LEASE)
        elif way == "claim_by_id":
            backend.claim_by_id(str(id), lease=LEASE)
        else:
            backend.claim_or_enqueue(Enqueue("a", **KEY), lease=LEASE)
    jobs.lose = None
    (claim,) = backend.claim(["a"], 1, lease=LEASE)
    assert claim.job.attempt == 1
    assert backend.settle([claim.settled("complete")]) == [Completed()]


def test_after_a_lease_nothing_is_looked_for_under_a_lost_claim(
    lossy: tuple[MongoJobQueue, LostAnswers], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, jobs = lossy
    backend.enqueue([Enqueue("a")])
    jobs.lose = "the call"
    monkeypatch.setattr("durabl_ext.decisions.time.monotonic", lambda: 1_000.0)
    with pytest.raises(AutoReconnect):
        backend.claim(["a"], 1, lease=timedelta(seconds=60))
    assert len(backend._decisions._doubts) == 1
    monkeypatch.setattr("durabl_ext.decisions.time.monotonic", lambda: 1_060.1)
    backend.recover()
    assert backend._decisions._doubts == {}


@pytest.mark.parametrize("ask", ["claim", "recover", "list_failed", "get_stats"])
def test_indexes_that_somebody_dropped_are_made_again(db: Database[dict[str, Any]], ask: str) -> None:
    backend = MongoJobQueue(db)
    backend.startup()
    db.job.drop_indexes()
    calls: dict[str, Callable[[], Any]] = {
        "claim": lambda: backend.claim(["a"], 1, lease=LEASE),
        "recover": backend.recover,
        "list_failed": backend.list_failed,
        "get_stats": backend.get_stats,
    }
    calls[ask]()
    assert {index.name for index in ALL} <= set(db.job.index_information())


def test_in_a_collection_that_was_dropped_nothing_starts_before_the_indexes_are_there_again(
    db: Database[dict[str, Any]],
) -> None:
    backend = MongoJobQueue(db)
    backend.startup()
    db.job.drop()
    backend.enqueue([Enqueue("a", **KEY)])
    assert len(backend.claim(["a"], 1, lease=LEASE)) == 1
    assert {index.name for index in ALL} <= set(db.job.index_information())


def test_of_many_that_start_one_key_in_a_collection_that_was_dropped_one_runs_it_at_most(
    mongo_url: str, db: Database[dict[str, Any]]
) -> None:
    with ExitStack() as clients, ThreadPoolExecutor(4) as threads:
        connected = [clients.enter_context(MongoClient[dict[str, Any]](mongo_url)) for _ in range(4)]
        backends = [MongoJobQueue(client[db.name]) for client in connected]
        for _ in range(5):
            for backend in backends:
                backend.startup()
            db.job.drop()
            together = Barrier(4)

            def start(backend: MongoJobQueue, together: Barrier = together) -> object:
                together.wait(30)
                try:
                    return backend.claim_or_enqueue(Enqueue("a", dedupe_key="k"), lease=LEASE)
                except IndexConflictError:
                    return None

            assert [type(got) for got in threads.map(start, backends)].count(Claim) <= 1


def test_a_key_that_is_started_in_a_collection_that_was_dropped_has_its_indexes_again(
    db: Database[dict[str, Any]],
) -> None:
    backend = MongoJobQueue(db)
    backend.startup()
    db.job.drop()
    assert backend.claim_or_enqueue(Enqueue("a", dedupe_key="k"), lease=LEASE) is not None
    assert {index.name for index in DEDUPE} <= set(db.job.index_information())
    with pytest.raises(DuplicateKeyError):
        db.job.insert_one({"status": "running", "durable": {"dedupe": {"key": "k", "scope": "queued"}}})


def test_nothing_that_promises_deduplication_runs_without_its_indexes(db: Database[dict[str, Any]]) -> None:
    first, second = MongoJobQueue(db), MongoJobQueue(db)
    first.enqueue([Enqueue("a")])
    assert set(db.job.index_information()) == {"_id_"}
    first.enqueue([Enqueue("a", **KEY)])
    assert {index.name for index in DEDUPE} <= set(db.job.index_information())
    db.drop_collection("job")
    assert second.claim_or_enqueue(Enqueue("a", **KEY), lease=LEASE) is not None
    assert {index.name for index in DEDUPE} <= set(db.job.index_information())


def test_a_producer_of_keys_makes_the_indexes_of_a_dropped_collection_again_within_a_minute(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = MongoJobQueue(db)
    monkeypatch.setattr("durabl_ext.decisions.time.monotonic", lambda: 1_000.0)
    backend.enqueue([Enqueue("a", **KEY)])
    db.job.drop()
    monkeypatch.setattr("durabl_ext.decisions.time.monotonic", lambda: 1_060.0)
    assert backend.enqueue([Enqueue("a", **KEY)]) != [None]
    assert backend.enqueue([Enqueue("a", **KEY)]) == [None]
    assert {index.name for index in DEDUPE} <= set(db.job.index_information())


def test_two_jobs_that_live_under_one_key_are_an_error_at_startup_that_says_so(db: Database[dict[str, Any]]) -> None:
    backend = MongoJobQueue(db)
    backend.enqueue([Enqueue("a", dedupe_key="k")])
    db.job.drop_indexes()
    twin = {**db.job.find_one({}), "_id": "twin"}  # type: ignore[dict-item]  # it is there
    db.job.insert_one(twin)
    with pytest.raises(IndexConflictError, match="Two jobs live under one key; end one of them and try again"):
        MongoJobQueue(db).startup()
    create_queue(db).cancel("twin")
    db.job.update_one({"_id": "twin"}, {"$set": {"status": "cancelled"}})
    MongoJobQueue(db).startup()


def test_an_index_of_somebody_else_in_the_place_of_one_of_ours_is_an_error_that_names_it(
    db: Database[dict[str, Any]],
) -> None:
    db.job.create_index([("action", 1)], name=DUE.name)
    with pytest.raises(IndexConflictError, match=f"{DUE.name}.*drop that one"):
        MongoJobQueue(db).startup()


def test_in_a_transaction_a_key_without_startup_is_an_error_that_names_it(db: Database[dict[str, Any]]) -> None:
    db.create_collection("job")
    backend = MongoJobQueue(db)
    with db.client.start_session() as session, session.start_transaction():
        with pytest.raises(RuntimeError, match=r"startup\(\)"):
            backend.enqueue([Enqueue("a", **KEY)], session=session)
        assert backend.enqueue([Enqueue("a", {"n": 1})], session=session) != [None]
    assert [job["data"] for job in db.job.find()] == [{"n": 1}]
    backend.startup()
    with db.client.start_session() as session, session.start_transaction():
        assert backend.enqueue([Enqueue("a", **KEY)], session=session) != [None]


def test_a_look_at_the_indexes_that_fails_makes_no_transaction_call_for_startup(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = MongoJobQueue(db)
    backend.startup()
    jobs = backend._decisions._jobs

    def fails(index: Any) -> None:
        raise AutoReconnect("the server is away")

    monkeypatch.setattr(jobs, "_create_index", fails)
    with pytest.raises(AutoReconnect):
        backend.enqueue([Enqueue("a", dedupe_key="other")])  # the first one looks whether they are still there
    with db.client.start_session() as session, session.start_transaction():
        assert backend.enqueue([Enqueue("a", **KEY)], session=session) != [None]


def test_a_server_older_than_6_0_is_refused_at_startup(
    db: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simplequeue.collection.OLDEST_WIRE_VERSION", 99)
    with pytest.raises(UnsupportedServerError, match=r"MongoDB 6\.0 or newer is needed"):
        MongoJobQueue(db).startup()


def test_push_that_is_insisted_on_is_refused_by_a_standalone_server(db: Database[dict[str, Any]]) -> None:
    with standalone() as url, MongoClient[dict[str, Any]](url) as client:
        with pytest.raises(NoChangeStreamError, match="push=True needs change streams"):
            MongoJobQueue(client.app, push=True).startup()
        MongoJobQueue(client.app, push="auto").startup()
    MongoJobQueue(db, push=True).startup()


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"push": "yes"}, "push"),
        ({"journal_soft_limit": 0}, "journal_soft_limit"),
        ({"max_log_entries": -1}, "max_log_entries"),
        ({"max_log_message_bytes": 1.5}, "max_log_message_bytes"),
    ],
)
def test_a_bad_option_of_a_backend_is_named(db: Database[dict[str, Any]], options: Any, path: str) -> None:
    with pytest.raises(PayloadError) as error:
        MongoJobQueue(db, **options)
    assert error.value.path == path


def test_what_is_no_database_is_refused(db: Database[dict[str, Any]], mock_db: Any) -> None:
    for wrong in (db.client, db.job, "app", None):
        with pytest.raises(TypeError, match="expected a Database of PyMongo"):
            MongoJobQueue(wrong)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(TypeError, match="DummyBackend"):
        MongoJobQueue(mock_db)


def test_after_a_fork_parent_and_child_draw_different_waits(db: Database[dict[str, Any]]) -> None:
    uniform = Decisions(CollectionJobs(db.job, blocking), False, Limits())._uniform
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        # In the child nothing of pytest may run, whatever happens.
        try:
            os.write(write, f"{uniform(0, 1)}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(read) as told, os.fdopen(write, "w"):
        assert float(os.read(told.fileno(), 100)) != uniform(0, 1)
