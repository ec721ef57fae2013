"""What every backend does, in every cell."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durabl_ext import (
    BackendClosedError,
    Claim,
    Completed,
    DedupeScopeConflictError,
    Enqueue,
    FailedTerminal,
    JobHandle,
    KeyBusy,
    LeaseLost,
    LogLine,
    NotFailed,
    NotFound,
    PayloadError,
    Recovered,
    Released,
    Renewed,
    Retried,
    RetryScheduled,
    Step,
)
from durabl_ext.core.indexes import ALL
from simplequeue import Status
from tests.backends.conftest import LEASE, LONG_AGO, Face

NO_UUID = "not-a-uuid"
UNKNOWN = "0198e15c-8200-7000-8000-000000000001"
FAILURE: Any = {"name": "ValueError", "message": "no", "stack": "…"}


def test_startup_makes_the_indexes_and_may_be_called_again(backend: Face) -> None:
    backend.startup()
    backend.startup()
    assert {index.name for index in ALL} <= set(backend.cell.collection.index_information())


def test_a_job_is_enqueued_claimed_and_completed(backend: Face) -> None:
    first, second = backend.enqueue([Enqueue("a", {"n": 1}), Enqueue("a", {"n": 2})])
    claims = backend.start(limit=5)
    assert [(claim.job.id, claim.job.data, claim.job.attempt) for claim in claims] == [
        (first, {"n": 1}, 1),
        (second, {"n": 2}, 1),
    ]
    assert backend.start() == []
    outcomes = backend.settle([claims[0].settled("complete"), claims[1].settled("fail", FAILURE)])
    assert outcomes[0] == Completed()
    assert isinstance(outcomes[1], RetryScheduled)
    assert backend.get(first).status is Status.COMPLETED
    assert backend.get(second).error == FAILURE


def test_nothing_to_enqueue_stores_nothing(backend: Face) -> None:
    assert backend.enqueue([]) == []
    assert backend.cell.collection.count_documents({}) == 0


def test_a_job_is_claimed_by_its_id_once_it_is_due_and_its_key_is_free(backend: Face) -> None:
    later = backend.add(delay=1_000)
    first, waits = (backend.add(dedupe_key="k", dedupe_scope="queued"), None)
    assert backend.claim_by_id(later, lease=LEASE) is None
    running = backend.claim_by_id(first, lease=LEASE)
    assert running.job.id == first
    waits = backend.add(dedupe_key="k", dedupe_scope="queued")
    assert backend.claim_by_id(waits, lease=LEASE) is None
    assert backend.settle([running.settled("complete")]) == [Completed()]
    assert backend.claim_by_id(waits, lease=LEASE).job.id == waits
    assert backend.claim_by_id(UNKNOWN, lease=LEASE) is None
    assert backend.claim_by_id(NO_UUID, lease=LEASE) is None


def test_a_plain_job_is_claimed_by_its_id_too(backend: Face) -> None:
    job = backend.cell.queue.add("a", {"n": 1})
    claim = backend.claim_by_id(job.id, lease=LEASE)
    assert (claim.job.data, claim.job.attempt, claim.job.max_attempts) == ({"n": 1}, 1, 3)
    assert backend.settle([claim.settled("complete")]) == [Completed()]


def test_the_follower_of_a_key_is_claimed_by_it_and_by_its_own_action_only(backend: Face) -> None:
    first = backend.add(dedupe_key="k", dedupe_scope="queued")
    assert backend.claim_by_key("b", "k", lease=LEASE) is None
    running = backend.claim_by_key("a", "k", lease=LEASE)
    assert running.job.id == first
    waits = backend.add(dedupe_key="k", dedupe_scope="queued")
    assert backend.claim_by_key("a", "k", lease=LEASE) is None
    backend.settle([running.settled("complete")])
    assert backend.claim_by_key("a", "k", lease=LEASE).job.id == waits
    assert backend.claim_by_key("a", "other", lease=LEASE) is None


def test_claim_or_enqueue_runs_here_or_waits_behind_the_run(backend: Face) -> None:
    job = Enqueue("a", {"v": 1}, dedupe_key="k", dedupe_scope="queued")
    claim = backend.claim_or_enqueue(job, lease=LEASE)
    assert isinstance(claim, Claim)
    assert backend.claim_or_enqueue(Enqueue("a", {"v": 2}, dedupe_key="k", dedupe_scope="queued"), lease=LEASE) is None
    assert backend.has_outstanding("a", "k")
    with pytest.raises(DedupeScopeConflictError):
        backend.claim_or_enqueue(Enqueue("a", dedupe_key="k"), lease=LEASE)
    assert backend.settle([claim.settled("complete")]) == [Completed()]
    (follower,) = backend.start()
    assert follower.job.data == {"v": 2}


def test_a_plain_job_gets_as_many_attempts_as_its_action_is_given(backend: Face) -> None:
    backend.cell.queue.add("once")
    backend.cell.queue.add("thrice")
    claims = backend.claim(["once", "thrice"], 2, lease=LEASE, adopt={"once": 1})
    assert {claim.job.action: claim.job.max_attempts for claim in claims} == {"once": 1, "thrice": 3}


def test_a_run_that_shows_no_sign_of_life_is_recovered_and_its_claim_is_lost(backend: Face) -> None:
    id = backend.add()
    (claim,) = backend.start()
    assert isinstance(backend.heartbeat([claim], lease=LEASE)[0], Renewed)
    assert backend.recover() == Recovered(0, saturated=False)
    backend.change(id, durable__lease_expires_at=LONG_AGO)
    assert backend.recover() == Recovered(1, saturated=False)
    assert backend.heartbeat([claim], lease=LEASE) == [LeaseLost()]
    assert backend.settle([claim.settled("complete")]) == [LeaseLost()]
    assert backend.log(claim, [LogLine(claim.job.created_at, "late")]) == LeaseLost()
    assert backend.append_step(claim, Step("0", "late", {})) == LeaseLost()
    assert backend.get(id).status is Status.QUEUED


def test_a_release_spends_no_attempt_and_may_wait(backend: Face) -> None:
    id = backend.add(max_attempts=1)
    (claim,) = backend.start()
    assert backend.settle([claim.settled("release", delay=timedelta(seconds=100))]) == [Released()]
    assert backend.get(id).attempt == 0
    assert backend.start() == []
    backend.change(id, durable__run_at=LONG_AGO)
    assert len(backend.start()) == 1


def test_a_run_keeps_a_journal_and_a_log(backend: Face) -> None:
    id = backend.add()
    (claim,) = backend.start()
    assert backend.append_step(claim, Step("0", "charge", {"result": 7})).stored["result"] == 7
    assert backend.log(claim, [LogLine(claim.job.created_at, "charged")]).stored == {}
    assert [step["name"] for step in backend.read_steps(id)] == ["charge"]
    assert [line.message for line in backend.get(id).logs] == ["charged"]
    assert backend.read_steps(UNKNOWN) is None
    assert backend.read_steps(NO_UUID) is None


def test_a_failed_job_is_listed_and_put_back(backend: Face) -> None:
    id = backend.add(dedupe_key="k")
    (claim,) = backend.start()
    assert backend.settle([claim.settled("fail_fatal", FAILURE)]) == [FailedTerminal()]
    assert [job.id for job in backend.list_failed(action="a", failure_kind="fatal")] == [id]
    assert backend.list_failed(failure_kind="stalled") == []
    other = backend.add(dedupe_key="k")
    assert backend.retry(id) == KeyBusy(other)
    assert backend.cancel(other).status is Status.CANCELLED
    assert backend.retry(id) == Retried()
    assert backend.retry(id) == NotFailed(Status.QUEUED)
    assert backend.retry(UNKNOWN) == NotFound()
    assert backend.retry(NO_UUID) == NotFound()


def test_get_update_cancel_and_sweep_are_those_of_the_base_layer(backend: Face) -> None:
    id = backend.add(data={"n": 1}, priority=7)
    assert backend.update(id, {"m": 2}).matched_count == 1
    job = backend.get(id)
    assert (job.data, job.priority) == ({"n": 1, "m": 2}, 7)
    cancelled = backend.cancel(id)
    assert (cancelled.status, cancelled.priority) == (Status.CANCELLED, 7)
    assert backend.cancel(id) is None
    assert backend.get_stats().cancelled == 1
    assert backend.sweep().deleted_count == 1
    assert backend.get(id) is None
    assert backend.get(NO_UUID) is None


def test_a_handle_ends_and_renews_its_claim(backend: Face) -> None:
    ids = [backend.add() for _ in range(4)]
    handles = [JobHandle(backend, claim, timedelta(seconds=LEASE)) for claim in backend.start(limit=4)]
    assert [handle.job.id for handle in handles] == ids
    handles[0].log("begun")
    assert isinstance(handles[0].heartbeat(), Renewed)
    assert handles[0].complete() == Completed()
    assert isinstance(handles[1].fail("no luck"), RetryScheduled)
    assert handles[2].fail_fatal(ValueError("never")) == FailedTerminal()
    assert handles[3].release() == Released()
    assert backend.get(ids[0]).logs[0].message == "begun"
    assert backend.get(ids[1]).error == {"name": "Failed", "message": "no luck", "stack": ""}
    assert backend.get(ids[2]).error["name"] == "ValueError"
    assert handles[0].heartbeat() == LeaseLost()


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda backend: backend.claim("a", 1, lease=1), "actions"),
        (lambda backend: backend.claim([], 1, lease=1), "actions"),
        (lambda backend: backend.claim(["a", ""], 1, lease=1), "actions[1]"),
        (lambda backend: backend.claim(["a"], 0, lease=1), "limit"),
        (lambda backend: backend.claim(["a"], 1, lease=0), "lease"),
        (lambda backend: backend.claim(["a"], 1, lease=float("nan")), "lease"),
        (lambda backend: backend.claim(["a"], 1, lease=1, adopt={"a": 0}), "adopt['a']"),
        (lambda backend: backend.claim_by_key("a", "", lease=1), "dedupe_key"),
        (lambda backend: backend.claim_by_key("", "k", lease=1), "action"),
        (lambda backend: backend.claim_or_enqueue(Enqueue("a", priority="1"), lease=1), "priority"),  # type: ignore[arg-type]  # tested
        (lambda backend: backend.enqueue([Enqueue("a"), Enqueue("a", delay=-1)]), "jobs[1].delay"),
        (lambda backend: backend.heartbeat([], lease=-1), "lease"),
        (lambda backend: backend.recover(0), "limit"),
        (lambda backend: backend.list_failed(failure_kind="poison"), "failure_kind"),
        (lambda backend: backend.list_failed(limit=-1), "limit"),
        (lambda backend: backend.list_failed(action=""), "action"),
        (lambda backend: backend.get_stats(action=""), "action"),
        (lambda backend: backend.has_outstanding("a", ""), "dedupe_key"),
        (lambda backend: backend.sweep(limit=0), "limit"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(backend: Face, call: Any, path: str) -> None:
    backend.add()
    before = list(backend.cell.collection.find())
    with pytest.raises(PayloadError) as error:
        call(backend)
    assert error.value.path == path
    assert list(backend.cell.collection.find()) == before


@pytest.mark.parametrize(
    ("how", "delay", "path"),
    [
        ("completed", timedelta(0), "settlements[1].how"),
        ("", timedelta(0), "settlements[1].how"),
        (None, timedelta(0), "settlements[1].how"),
        ("release", timedelta(seconds=-1), "settlements[1].delay"),
        ("release", timedelta.max, "settlements[1].delay"),
        ("release", 5, "settlements[1].delay"),
    ],
)
def test_an_ending_that_there_is_not_is_named_and_ends_nothing(backend: Face, how: Any, delay: Any, path: str) -> None:
    ids = [backend.add(), backend.add()]
    one, other = backend.start(limit=2)
    with pytest.raises(PayloadError) as error:
        backend.settle([one.settled("complete"), other.settled(how, delay=delay)])
    assert error.value.path == path
    assert {backend.get(id).status for id in ids} == {Status.RUNNING}


def test_jobs_endings_and_lines_may_come_one_by_one(backend: Face) -> None:
    ids = backend.enqueue(Enqueue("a") for _ in range(2))
    claims = backend.start(limit=2)
    assert [claim.job.id for claim in claims] == ids
    backend.log(claims[0], (LogLine(LONG_AGO, text) for text in ("one", "two")))
    assert [line.message for line in backend.get(ids[0]).logs] == ["one", "two"]
    assert backend.settle(claim.settled("complete") for claim in claims) == [Completed(), Completed()]
    assert {backend.get(id).status for id in ids} == {Status.COMPLETED}


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (LogLine(LONG_AGO.replace(tzinfo=None), "x"), "lines[1].at"),
        (LogLine("now", "x"), "lines[1].at"),  # type: ignore[arg-type]  # that is what is tested
        (LogLine(LONG_AGO, 5), "lines[1].message"),  # type: ignore[arg-type]  # that is what is tested
    ],
)
def test_a_line_that_cannot_be_read_as_it_was_written_is_named(backend: Face, line: LogLine, path: str) -> None:
    id = backend.add()
    (claim,) = backend.start()
    with pytest.raises(PayloadError) as error:
        backend.log(claim, [LogLine(LONG_AGO, "x"), line])
    assert error.value.path == path
    assert backend.get(id).logs == ()


def test_the_end_of_a_lease_is_told_as_it_is_stored(backend: Face) -> None:
    claim = backend.claim_or_enqueue(Enqueue("a"), lease=60.123_456_7)
    assert claim.job.lease_expires_at == backend.get(claim.job.id).lease_expires_at
    (renewed,) = backend.heartbeat([claim], lease=90.123_456_7)
    assert renewed.until == backend.get(claim.job.id).lease_expires_at


@pytest.mark.parametrize("reason", [None, 5, b"no", ValueError])
def test_a_reason_that_is_no_text_and_no_exception_is_named(backend: Face, reason: Any) -> None:
    id = backend.add()
    handle = JobHandle(backend, backend.start()[0], timedelta(seconds=LEASE))
    for fail in (handle.fail, handle.fail_fatal):
        with pytest.raises(PayloadError, match="reason"):
            fail(reason)
    assert backend.get(id).status is Status.RUNNING


def test_after_a_shutdown_nothing_starts_and_what_runs_can_end(backend: Face) -> None:
    backend.add()
    (claim,) = backend.start()
    backend.shutdown()
    for call in (
        lambda: backend.enqueue([Enqueue("a")]),
        backend.start,
        lambda: backend.claim_by_id(claim.job.id, lease=LEASE),
        lambda: backend.claim_or_enqueue(Enqueue("a"), lease=LEASE),
    ):
        with pytest.raises(BackendClosedError):
            call()
    assert isinstance(backend.heartbeat([claim], lease=LEASE)[0], Renewed)
    assert backend.settle([claim.settled("complete")]) == [Completed()]


def test_each_action_gets_as_many_runs_as_are_wanted_of_it_whatever_waits_of_others(backend: Face) -> None:
    backend.enqueue([Enqueue("many", {"n": n}) for n in range(40)])
    backend.enqueue([Enqueue("few", {"n": n}, priority=1) for n in range(3)])
    backend.cell.queue.add("plain")
    claims = backend.claim({"many": 2, "few": 5, "plain": 2, "none": 4}, lease=LEASE)
    assert [(claim.job.action, claim.job.data.get("n")) for claim in claims] == [
        ("many", 0),
        ("many", 1),
        ("plain", None),
        ("few", 0),
        ("few", 1),
        ("few", 2),
    ]
    assert [claim.job.data["n"] for claim in backend.claim({"many": 3, "few": 1}, 2, lease=LEASE)] == [2, 3]
    with pytest.raises(PayloadError, match=r"actions\['many'\]"):
        backend.claim({"many": 0}, lease=LEASE)
    with pytest.raises(PayloadError, match="limit"):
        backend.claim(["many"], lease=LEASE)


def test_the_next_job_that_waits_for_its_time_is_told_of_whatever_its_priority(backend: Face) -> None:
    now = backend.now()
    assert backend.next_due(["a", "b"], now) is None
    backend.add("a")
    later = backend.add("a", delay=300, priority=-1)
    soonest = backend.add("b", delay=100, priority=3)
    backend.add("c", delay=50)
    backend.cell.queue.add("a")
    assert backend.next_due(["a", "b"], backend.now()) == backend.get(soonest).run_at
    assert backend.next_due(["a", "b"], backend.get(soonest).run_at) == backend.get(later).run_at
    assert backend.next_due(["none"], now) is None
    with pytest.raises(PayloadError, match="after"):
        backend.next_due(["a"], now.replace(tzinfo=None))
