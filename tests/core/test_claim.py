"""Claim, in every cell: which jobs start, in which order, and what they carry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durabl_ext.core import claim as claiming
from durabl_ext.options import Enqueue
from simplequeue.states import Status
from tests.core.conftest import LEASE, LONG_AGO, Core


def test_a_claimed_job_runs_under_a_token_and_a_lease_and_its_attempt_counts(core: Core) -> None:
    id = core.enqueue("a", {"n": 1}, max_attempts=2)
    job, token = core.claim_one()
    stored = core.stored(id)
    assert job == core.get(id)
    assert job.status is Status.RUNNING
    assert job.attempt == 1
    assert job.started_at == job.updated_at
    assert job.lease_expires_at is not None
    assert job.started_at is not None
    assert job.lease_expires_at - job.started_at == LEASE
    assert stored["durable"]["token"] == token
    assert core.claim() == []


def test_lower_priority_numbers_go_first_then_the_time_due_then_the_id(core: Core) -> None:
    late, first, urgent, second = core.enqueue_many(
        Enqueue("a", priority=1), Enqueue("a"), Enqueue("a", priority=-1), Enqueue("a")
    )
    core.change(second, durable__run_at=LONG_AGO)
    assert [job.id for job, _ in core.claim(limit=10)] == [urgent, second, first, late]


def test_no_more_are_taken_than_asked_for_and_only_of_the_given_actions(core: Core) -> None:
    core.enqueue_many(*[Enqueue("a")] * 5, *[Enqueue("b")] * 5, Enqueue("other"))
    assert len(core.claim("a", "b", limit=7)) == 7
    assert len(core.claim("a", "b", limit=7)) == 3
    assert core.cell.collection.count_documents({"action": "other", "status": "queued"}) == 1


def test_a_job_is_never_taken_before_its_time(core: Core) -> None:
    later = core.enqueue(delay=3_600)
    now = core.enqueue()
    assert [job.id for job, _ in core.claim(limit=10)] == [now]
    core.make_due(later)
    assert [job.id for job, _ in core.claim(limit=10)] == [later]


def test_plain_jobs_are_adopted_with_the_attempts_of_their_action(core: Core) -> None:
    plain = core.cell.queue.add("a", {"n": 1})
    other = core.cell.queue.add("b")
    claimed = {job.id: job for job, _ in core.claim("a", "b", limit=2, adopt={"a": 1})}
    adopted = claimed[plain.id]
    assert (adopted.attempt, adopted.max_attempts, adopted.priority) == (1, 1, 0)
    assert adopted.data == {"n": 1}
    assert claimed[other.id].max_attempts == 3
    assert set(core.stored(plain.id)["durable"]) == {
        "priority",
        "run_at",
        "attempt",
        "max_attempts",
        "backoff",
        "token",
        "lease_expires_at",
    }


def test_plain_jobs_count_as_priority_0_and_do_not_keep_an_urgent_one_waiting(core: Core) -> None:
    plain = [core.cell.queue.add("a").id for _ in range(20)]
    urgent, usual, late = core.enqueue_many(Enqueue("a", priority=-1), Enqueue("a"), Enqueue("a", priority=1))
    order = [job.id for job, _ in core.claim(limit=23)]
    assert order == [urgent, *plain, usual, late]


def test_running_plain_jobs_are_never_touched(core: Core) -> None:
    running = core.cell.queue.add("a")
    core.change(running.id, status="running", started_at=LONG_AGO)
    assert core.claim(limit=5) == []
    assert core.recover().handled == 0
    assert "durable" not in core.stored(running.id)


@pytest.mark.parametrize("blocked", [1, 21, 60])
def test_blocked_keys_at_the_head_do_not_stall_the_rest(core: Core, blocked: int) -> None:
    keyed: Any = [Enqueue("a", dedupe_key=f"k{n}", dedupe_scope="queued", priority=-9) for n in range(blocked)]
    core.enqueue_many(*keyed)
    assert len(core.claim(limit=blocked)) == blocked
    core.enqueue_many(*keyed)
    free = core.enqueue(priority=5)
    assert [job.id for job, _ in core.claim(limit=4)] == [free]
    assert core.claim(limit=4) == []


def test_a_blocked_key_in_a_batch_leaves_the_others_of_it_claimed(core: Core) -> None:
    core.enqueue(dedupe_key="k", dedupe_scope="queued")
    core.claim_one()
    follower = core.enqueue(dedupe_key="k", dedupe_scope="queued")
    others = core.enqueue_many(*[Enqueue("a")] * 3)
    assert {job.id for job, _ in core.claim(limit=4)} == set(others)
    assert core.get(follower).status is Status.QUEUED
    assert core.get(follower).attempt == 0


def test_two_jobs_of_one_key_never_run_at_once_whichever_is_claimed(core: Core) -> None:
    core.enqueue(dedupe_key="k", dedupe_scope="queued")
    claimed = core.claim_one()
    follower = core.enqueue(dedupe_key="k", dedupe_scope="queued")
    terms = claiming.Terms("by-id", LEASE, {})
    assert core.cell.do(claiming.claim_where(core.cell.jobs, {"_id": follower}, terms)).jobs == []
    core.settle(claimed, "complete")
    (job,) = core.cell.do(claiming.claim_where(core.cell.jobs, {"_id": follower}, terms)).jobs
    assert job.id == follower


def test_the_payload_is_the_newest_at_the_moment_of_the_claim(core: Core) -> None:
    id = core.enqueue(data={"v": 1})
    core.cell.queue.update(id, {"v": 2})
    assert core.claim_one()[0].data == {"v": 2}


def test_a_cancelled_job_is_never_claimed(core: Core) -> None:
    core.cell.queue.cancel(core.enqueue())
    assert core.claim(limit=5) == []


def test_a_claim_of_one_broken_document_leaves_the_others_claimed(core: Core) -> None:
    broken = core.enqueue(priority=-1)
    core.change(broken, durable__attempt="three")
    others = core.enqueue_many(*[Enqueue("a")] * 3)
    assert {job.id for job, _ in core.claim(limit=4)} == set(others)


def test_a_lease_of_its_own_length_is_on_the_job(core: Core) -> None:
    core.enqueue()
    ((job, _),) = core.claim(lease=timedelta(seconds=7))
    assert job.started_at is not None
    assert job.lease_expires_at == job.started_at + timedelta(seconds=7)
