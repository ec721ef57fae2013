"""Settle, in every cell: how claims end, together and alone, and who is told that it lost."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from durabl_ext.core.plans import RECEIPTS, How
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import (
    AlreadyTerminal,
    Completed,
    FailedTerminal,
    LeaseLost,
    NotFound,
    Released,
    RetryScheduled,
    Superseded,
)
from simplequeue.states import Status
from tests.core.conftest import FAILURE, LONG_AGO, Core

QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}


def test_a_completed_run_keeps_its_token_and_has_no_lease(core: Core) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    assert core.settle(claimed, "complete") == Completed()
    stored = core.stored(id)
    assert stored["status"] == "completed"
    assert stored["error"] is None
    assert stored["finished_at"] == stored["updated_at"] >= stored["started_at"]
    assert stored["durable"]["token"] == claimed[1]
    assert "lease_expires_at" not in stored["durable"]


def test_a_failed_run_waits_for_its_next_attempt_and_keeps_its_error_meanwhile(core: Core) -> None:
    id = core.enqueue(backoff="fixed", backoff_delay=30)
    outcome = core.settle(core.claim_one(), "fail")
    job, stored = core.get(id), core.stored(id)
    assert outcome == RetryScheduled(job.run_at)
    assert job.status is Status.QUEUED
    assert job.run_at - job.updated_at == timedelta(seconds=30)
    assert job.error == FAILURE
    assert job.attempt == 1
    assert job.started_at is None
    assert not {"token", "lease_expires_at"} & set(stored["durable"])
    assert core.claim() == []
    core.make_due(id)
    again = core.claim_one()
    assert again[0].attempt == 2
    assert core.settle(again, "complete") == Completed()
    assert core.get(id).error is None


def test_the_last_attempt_that_fails_ends_the_job_as_exhausted(core: Core) -> None:
    id = core.enqueue(max_attempts=1)
    assert core.settle(core.claim_one(), "fail") == FailedTerminal()
    job = core.get(id)
    assert (job.status, job.failure_kind, job.error) == (Status.FAILED, "retries-exhausted", FAILURE)


def test_a_fatal_failure_ends_the_job_at_once(core: Core) -> None:
    id = core.enqueue(max_attempts=9)
    assert core.settle(core.claim_one(), "fail_fatal") == FailedTerminal()
    assert core.get(id).failure_kind == "fatal"


def test_releases_spend_no_attempt(core: Core) -> None:
    id = core.enqueue(max_attempts=3, backoff_delay=0)
    for _ in range(5):
        assert core.settle(core.claim_one(), "release") == Released()
        core.make_due(id)
    for _ in range(2):
        assert isinstance(core.settle(core.claim_one(), "fail"), RetryScheduled)
        core.make_due(id)
    assert core.settle(core.claim_one(), "complete") == Completed()
    assert core.get(id).attempt == 3


def test_a_release_can_wait_a_little(core: Core) -> None:
    id = core.enqueue()
    assert core.settle(core.claim_one(), "release", delay=timedelta(seconds=5)) == Released()
    job = core.get(id)
    assert job.run_at - job.updated_at == timedelta(seconds=5)


@pytest.mark.parametrize("how", ["complete", "fail", "fail_fatal", "release"])
def test_the_same_ending_twice_gives_the_same_answer_and_changes_nothing(core: Core, how: How) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    first = core.settle(claimed, how)
    stored = core.stored(id)
    assert core.settle(claimed, how) == first
    assert core.stored(id) == stored


@pytest.mark.parametrize("how", ["fail", "release"])
def test_a_receipt_outlives_the_next_claim(core: Core, how: How) -> None:
    id = core.enqueue()
    first = core.claim_one()
    outcome = core.settle(first, how)
    core.make_due(id)
    second = core.claim_one()
    assert core.settle(first, how) == outcome
    assert core.get(id).status is Status.RUNNING
    assert core.settle(second, "complete") == Completed()
    assert core.settle(first, how) == outcome


def test_receipts_are_kept_in_a_bounded_number(core: Core) -> None:
    id = core.enqueue()
    for _ in range(RECEIPTS + 3):
        core.settle(core.claim_one(), "release")
        core.make_due(id)
    assert len(core.stored(id)["durable"]["receipts"]) == RECEIPTS


@pytest.mark.parametrize("how", ["complete", "fail", "fail_fatal", "release"])
@pytest.mark.parametrize("newer", ["running", "completed", "queued"])
def test_a_late_finisher_is_told_that_it_lost_and_changes_nothing_of_the_newer_run(
    core: Core, how: How, newer: str
) -> None:
    id = core.enqueue()
    late = core.claim_one()
    core.expire(id)
    assert core.recover().handled == 1
    core.make_due(id)
    if newer != "queued":
        second = core.claim_one()
        if newer == "completed":
            core.settle(second, "complete")
    stored = core.stored(id)
    assert core.settle(late, how) == LeaseLost()
    assert core.heartbeat(late) == [LeaseLost()]
    assert core.stored(id) == stored


def test_another_ending_than_the_first_is_told_what_that_was(core: Core) -> None:
    core.enqueue()
    claimed = core.claim_one()
    core.settle(claimed, "complete")
    for how in ("fail", "fail_fatal", "release"):
        assert core.settle(claimed, how) == AlreadyTerminal(Status.COMPLETED)


def test_a_deleted_job_is_not_found_and_not_brought_back(core: Core) -> None:
    id = core.enqueue()
    claimed = core.claim_one()
    core.cell.collection.delete_one({"_id": id})
    for how in ("complete", "fail", "fail_fatal", "release"):
        assert core.settle(claimed, how) == NotFound()
    assert core.cell.collection.count_documents({}) == 0


@pytest.mark.parametrize("how", ["complete", "fail", "fail_fatal", "release"])
def test_a_worker_that_wakes_after_its_job_was_swept_brings_nothing_back(core: Core, how: How) -> None:
    id = core.enqueue(dedupe_key="k")
    late = core.claim_one()
    core.expire(id)
    core.recover()
    core.make_due(id)
    assert core.cell.queue.sweep(before=LONG_AGO).deleted_count == 0  # while the stale worker still runs
    core.settle(core.claim_one(), "complete")
    assert core.heartbeat(late) == [LeaseLost()]
    assert core.cell.queue.sweep().deleted_count == 1
    assert core.settle(late, how) == NotFound()
    assert core.heartbeat(late) == [LeaseLost()]
    assert core.cell.collection.count_documents({}) == 0
    assert core.enqueue(dedupe_key="k") is not None


def test_a_sweep_deletes_no_run_however_old_and_no_job_that_waits(core: Core) -> None:
    ids = core.enqueue_many(Enqueue("a"), Enqueue("b", delay=60))
    running = core.claim_one()
    for id in ids:
        core.change(id, updated_at=LONG_AGO, created_at=LONG_AGO)
    core.expire(ids[0])
    assert core.cell.queue.sweep().deleted_count == 0
    assert core.settle(running, "complete") == Completed()


@pytest.mark.parametrize("how", ["fail", "release"])
def test_a_run_that_cannot_go_back_behind_a_follower_of_its_action_is_superseded(core: Core, how: How) -> None:
    id = core.enqueue(**QUEUED)
    claimed = core.claim_one()
    follower = core.enqueue(**QUEUED)
    assert core.settle(claimed, how) == Superseded()
    assert core.settle(claimed, how) == Superseded()
    job = core.get(id)
    assert job.status is Status.SUPERSEDED
    assert job.error == (FAILURE if how == "fail" else None)
    assert [job.id for job, _ in core.claim()] == [follower]


@pytest.mark.parametrize("how", ["fail", "release"])
def test_a_run_behind_a_follower_of_another_action_fails_and_says_why(core: Core, how: How) -> None:
    id = core.enqueue("a", **QUEUED)
    claimed = core.claim_one("a")
    follower = core.enqueue("b", **QUEUED)
    assert core.settle(claimed, how) == FailedTerminal()
    assert core.settle(claimed, how) == FailedTerminal()
    job = core.get(id)
    assert job.status is Status.FAILED
    assert job.error is not None
    assert f"job {follower} of action 'b' waits" in job.error["message"]
    assert [job.id for job, _ in core.claim("b")] == [follower]


def test_many_claims_end_in_one_write_for_each_token_and_each_is_answered(core: Core) -> None:
    core.enqueue_many(*[Enqueue("a", {"n": n}, max_attempts=2) for n in range(12)])
    one, two = core.claim(limit=6), core.claim(limit=6)
    lost, gone = one[5], two[5]
    core.change(lost[0].id, durable__token="somebody else's")
    core.cell.collection.delete_one({"_id": gone[0].id})
    endings: list[tuple[Any, How]] = [(claimed, "complete") for claimed in one + two]
    endings[1], endings[7] = (one[1], "fail"), (two[1], "fail_fatal")
    endings[2] = (one[2], "release")
    outcomes = core.settle_all(endings)
    assert isinstance(outcomes[1], RetryScheduled)
    assert outcomes[2] == Released()
    assert outcomes[5] == LeaseLost()
    assert outcomes[7] == FailedTerminal()
    assert outcomes[11] == NotFound()
    assert Counter(map(type, outcomes))[Completed] == 7
    assert core.get(lost[0].id).status is Status.RUNNING
    assert core.settle_all([]) == []


def test_ids_of_one_claim_never_end_under_the_token_of_another(core: Core) -> None:
    """The fault that one write with ids in a list and tokens in a list would have."""
    a, b = core.enqueue_many(Enqueue("a"), Enqueue("a"))
    stale_a = core.claim_one()
    core.expire(a)
    core.recover()
    core.make_due(a)
    fresh = core.claim(limit=2)
    assert {job.id for job, _ in fresh} == {a, b}
    fresh_b = next(claimed for claimed in fresh if claimed[0].id == b)
    assert core.settle_all([(stale_a, "complete"), (fresh_b, "complete")]) == [LeaseLost(), Completed()]
    assert core.get(a).status is Status.RUNNING


def test_a_heartbeat_renews_what_is_still_ours_and_never_shortens_a_lease(core: Core) -> None:
    core.enqueue_many(Enqueue("a"), Enqueue("a"))
    first, second = core.claim(limit=2)
    core.change(second[0].id, durable__token="somebody else's")
    renewed, lost = core.heartbeat(first, second, lease=timedelta(hours=1))
    assert lost == LeaseLost()
    assert core.get(first[0].id).lease_expires_at == renewed.until
    core.heartbeat(first, lease=timedelta(seconds=1))
    assert core.get(first[0].id).lease_expires_at == renewed.until
    core.settle(first, "complete")
    assert core.heartbeat(first) == [LeaseLost()]
    assert core.heartbeat() == []
