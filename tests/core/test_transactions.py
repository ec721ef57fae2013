"""Enqueue, update and cancel in the caller's transaction, with a sync and an asynchronous client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from durabl_ext.core import enqueue
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.options import Enqueue
from simplequeue.states import Status
from tests import cells
from tests.core.caller import Caller
from tests.core.conftest import Core, indexed

QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}
BOTH: Any = {"dedupe_key": "k", "dedupe_scope": "queued+running"}
LATEST: Any = {**QUEUED, "coalesce": "latest"}


@pytest.fixture(
    params=[cells.blocking_on_mongod, cells.threaded_on_mongod, cells.native_on_mongod], ids=attrgetter("__name__")
)
def caller(request: pytest.FixtureRequest, db: Database[dict[str, Any]], mongo_url: str) -> Iterator[Caller]:
    with request.param(db, mongo_url) as cell, cells.blocking_on_mongod(db, mongo_url) as other:
        rival = indexed(other)
        db.create_collection("orders")
        one = Caller(Core(cell), rival)
        yield one
        one.made(one.session.end_session())


@contextmanager
def usable(caller: Caller) -> Iterator[None]:
    """Begins a transaction that must commit, with what is written in it before and after."""
    caller.begin()
    caller.order()
    yield
    caller.order()
    after = caller.enqueue("after", dedupe_key="another")
    caller.commit()
    assert caller.orders == 2
    assert caller.core.get(after).status is Status.QUEUED


@pytest.mark.parametrize("options", [{}, QUEUED, BOTH, LATEST], ids=["no key", "queued", "queued+running", "latest"])
def test_a_job_of_a_transaction_is_seen_by_nobody_until_the_commit_and_then_runs(caller: Caller, options: Any) -> None:
    caller.begin()
    caller.order()
    id = caller.enqueue(**options)
    assert caller.rival.cell.queue.get(id) is None
    assert caller.rival.claim() == []
    caller.commit()
    assert caller.orders == 1
    caller.rival.make_due(id)  # two clocks may be a millisecond apart
    assert [job.id for job, _ in caller.rival.claim()] == [id]


@pytest.mark.parametrize("options", [{}, QUEUED, BOTH, LATEST], ids=["no key", "queued", "queued+running", "latest"])
def test_a_job_of_an_aborted_transaction_never_was_and_its_key_is_free(caller: Caller, options: Any) -> None:
    caller.begin()
    caller.order()
    assert caller.enqueue(**options) is not None
    caller.abort()
    assert caller.orders == 0
    assert caller.rival.cell.collection.count_documents({}) == 0
    assert caller.rival.enqueue(**options) is not None


@pytest.mark.parametrize(("options", "running"), [(QUEUED, False), (BOTH, False), (BOTH, True)])
def test_a_taken_key_answers_none_and_the_transaction_commits(caller: Caller, options: Any, running: bool) -> None:
    holder = caller.rival.enqueue(**options)
    if running:
        caller.rival.claim_one()
    stored = caller.rival.stored(holder)
    with usable(caller):
        assert caller.enqueue(**options) is None
        assert caller.enqueue(**options) is None
    assert caller.rival.stored(holder) == stored


def test_one_may_be_added_behind_a_run(caller: Caller) -> None:
    running = caller.rival.enqueue(**QUEUED)
    caller.rival.claim_one()
    with usable(caller):
        follower = caller.enqueue(**QUEUED)
        assert follower not in (None, running)
        assert caller.enqueue(**QUEUED) is None
    assert caller.core.get(follower).status is Status.QUEUED


@pytest.mark.parametrize(("held", "asked"), [(QUEUED, BOTH), (BOTH, QUEUED)])
def test_a_key_of_the_other_scope_is_an_error_and_the_transaction_commits(
    caller: Caller, held: Any, asked: Any
) -> None:
    holder = caller.rival.enqueue(**held)
    with usable(caller), pytest.raises(DedupeScopeConflictError) as conflict:
        caller.enqueue(**asked)
    assert conflict.value.holder == holder


def test_many_of_a_transaction_are_answered_in_order_and_see_each_other(caller: Caller) -> None:
    taken = caller.rival.enqueue(dedupe_key="taken")
    with usable(caller):
        ids = caller.core.enqueue_many(
            Enqueue("a", {"n": 0}),
            Enqueue("a", {"n": 1}, dedupe_key="k"),
            Enqueue("b", {"n": 2}, dedupe_key="k"),
            Enqueue("a", {"n": 3}, dedupe_key="taken"),
            Enqueue("a", {"n": 4}),
            Enqueue("a", {"n": 5}, dedupe_key="other", dedupe_scope="queued"),
            Enqueue("a", {"n": 6}, dedupe_key="other", dedupe_scope="queued", coalesce="latest"),
            session=caller.session,
        )
        assert caller.core.enqueue_many(session=caller.session) == []
    first, key, none, busy, last, waits, same = ids
    assert (none, busy) == (None, None)
    assert waits == same
    assert [caller.core.get(id).data["n"] for id in (first, key, last, waits)] == [0, 1, 4, 6]
    assert caller.core.get(taken).data == {}


@pytest.mark.parametrize("options", [QUEUED, BOTH], ids=["queued", "queued+running"])
def test_a_rival_that_commits_the_key_first_makes_the_driver_run_it_again_and_find_it_taken(
    caller: Caller, options: Any
) -> None:
    rivals: list[str | None] = []
    answers: list[str | None] = []

    def body() -> None:
        caller.order()  # the snapshot is from before the rival
        rivals.append(caller.rival.enqueue(**options))
        answers.append(caller.enqueue(**options))

    assert caller.with_transaction(body) == 2
    assert rivals[0] is not None
    assert answers == [None]  # the first run has got no answer
    assert caller.orders == 1
    assert caller.rival.cell.collection.count_documents({}) == 1


def test_a_rival_whose_transaction_holds_the_key_makes_it_run_again(caller: Caller) -> None:
    rival = Caller(caller.rival, caller.rival)
    rival.begin()
    first = rival.enqueue(**BOTH)
    answers: list[str | None] = []
    conflicts: list[OperationFailure] = []

    def body() -> None:
        try:
            answers.append(caller.enqueue(**BOTH))
        except OperationFailure as conflict:
            conflicts.append(conflict)
            rival.commit()
            raise

    assert caller.with_transaction(body) == 2
    assert [conflict.code for conflict in conflicts] == [112]
    assert answers == [None]
    assert caller.core.get(first).status is Status.QUEUED
    rival.session.end_session()


def test_latest_in_a_transaction_is_seen_by_nobody_until_the_commit(caller: Caller) -> None:
    waits = caller.rival.enqueue(data={"v": 1}, **QUEUED)
    before = caller.rival.stored(waits)
    caller.begin()
    assert caller.enqueue(data={"v": 2}, **LATEST) == waits
    assert caller.enqueue("b", {"v": 3}, **LATEST) is None
    assert caller.rival.stored(waits) == before
    caller.abort()
    assert caller.rival.stored(waits) == before
    with usable(caller):
        assert caller.enqueue(data={"v": 2}, **LATEST) == waits
        assert caller.enqueue(data={"v": 4}, **LATEST) == waits
    assert caller.rival.claim_one()[0].data == {"v": 4}


@pytest.mark.parametrize("what", ["claims it", "coalesces into it", "cancels it"])
def test_latest_in_a_transaction_runs_again_when_a_rival_was_first(caller: Caller, what: str) -> None:
    waits = caller.rival.enqueue(data={"v": 1}, **QUEUED)
    rivals: list[Any] = []
    answers: list[str | None] = []

    def body() -> None:
        caller.order()
        if not rivals:
            match what:
                case "claims it":
                    rivals.append(caller.rival.claim_one())
                case "coalesces into it":
                    rivals.append(caller.rival.enqueue(data={"v": 2}, **LATEST))
                case _:
                    rivals.append(caller.rival.cell.queue.cancel(waits))
        answers.append(caller.enqueue(data={"v": 3}, **LATEST))

    assert caller.with_transaction(body) == 2
    (id,) = answers
    assert (id == waits) == (what == "coalesces into it")
    assert caller.core.get(id).data == {"v": 3}
    assert caller.core.get(id).status is Status.QUEUED
    assert caller.orders == 1


def test_an_update_and_a_cancel_of_a_durable_job_vanish_with_their_transaction(caller: Caller) -> None:
    queue, session = caller.core.cell.queue, caller.session
    id = caller.rival.enqueue(data={"v": 1}, **BOTH)
    before = caller.rival.stored(id)
    for end in (caller.abort, caller.commit):
        caller.begin()
        assert queue.update(id, {"v": 2}, session=session).matched_count == 1
        assert queue.cancel(id, session=session).id == id
        assert queue.cancel(id, session=session) is None
        again = caller.enqueue(data={"v": 3}, **BOTH)  # the key is free in here, and only in here
        assert again not in (None, id)
        assert caller.rival.stored(id) == before
        end()
    after = caller.rival.get(id)
    assert (after.status, after.data) == (Status.CANCELLED, {"v": 2})
    caller.rival.make_due(again)  # two clocks may be a millisecond apart
    assert [job.id for job, _ in caller.rival.claim(limit=2)] == [again]


def test_of_a_claim_and_a_cancel_in_a_transaction_one_wins(caller: Caller) -> None:
    id = caller.rival.enqueue()
    answers: list[Any] = []
    claims: list[Any] = []

    def body() -> None:
        caller.order()
        claims.extend(caller.rival.claim())
        answers.append(caller.core.cell.queue.cancel(id, session=caller.session))

    assert caller.with_transaction(body) == 2
    assert answers == [None]
    assert [job.id for job, _ in claims] == [id]


def test_a_session_without_a_transaction_changes_nothing_about_keys(caller: Caller) -> None:
    id = caller.enqueue(data={"v": 1}, **QUEUED)
    assert caller.enqueue(**QUEUED) is None
    assert caller.enqueue(data={"v": 2}, **LATEST) == id
    caller.rival.make_due(id)
    assert caller.rival.claim_one()[0].data == {"v": 2}
    assert caller.enqueue(**QUEUED) not in (None, id)
    with pytest.raises(DedupeScopeConflictError):
        caller.enqueue(**BOTH)


def test_outside_a_transaction_a_rival_between_a_look_and_the_insert_is_no_error(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = enqueue.holders
    first = caller.enqueue(**BOTH)
    rivals: list[str | None] = []

    async def rivalled(*args: Any) -> Any:
        if rivals:
            return await real(*args)
        caller.rival.cell.queue.cancel(first)
        held = await real(*args)
        rivals.append(caller.rival.enqueue(**BOTH))
        return held

    monkeypatch.setattr(enqueue, "holders", rivalled)
    assert caller.enqueue(**BOTH) is None
    caller.rival.cell.queue.cancel(rivals.pop())
    assert caller.enqueue(**BOTH) is not None  # without a look
    assert rivals == []


@pytest.mark.parametrize("options", [{}, BOTH, LATEST], ids=["no key", "queued+running", "latest"])
def test_mongomock_refuses_a_session_instead_of_pretending(mock_db: Any, options: Any) -> None:
    class InTransaction:
        in_transaction = True

    with cells.blocking_on_mongomock(mock_db, "") as cell:
        for session in (object(), InTransaction()):
            with pytest.raises(TypeError, match="mongomock has no transactions"):
                Core(cell).enqueue_many(Enqueue("a", **options), session=session)  # type: ignore[arg-type]  # on purpose
    assert mock_db.job.count_documents({}) == 0
