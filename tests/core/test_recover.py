"""Recover, in every cell: what becomes of the jobs of dead runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durabl_ext.core.recover import Recovered
from durabl_ext.options import Enqueue
from simplequeue.states import Status
from tests.core.conftest import Core

QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}


def test_a_run_whose_lease_has_ended_spends_an_attempt_and_waits_like_after_a_failure(core: Core) -> None:
    id = core.enqueue(backoff="fixed", backoff_delay=30)
    core.claim_one()
    assert core.recover() == Recovered(0, saturated=False)
    core.expire(id)
    assert core.recover() == Recovered(1, saturated=False)
    job, stored = core.get(id), core.stored(id)
    assert (job.status, job.attempt, job.started_at) == (Status.QUEUED, 1, None)
    assert job.run_at - job.updated_at == timedelta(seconds=30)
    assert job.error is not None
    assert job.error["name"] == "Stalled"
    assert not {"token", "lease_expires_at"} & set(stored["durable"])


def test_a_job_that_kills_its_process_each_time_ends_as_stalled(core: Core) -> None:
    id = core.enqueue(max_attempts=3)
    for _ in range(3):
        core.make_due(id)
        core.claim_one()
        core.expire(id)
        assert core.recover().handled == 1
    job = core.get(id)
    assert (job.status, job.failure_kind, job.attempt) == (Status.FAILED, "stalled", 3)
    assert job.finished_at is not None
    assert not {"token", "lease_expires_at"} & set(core.stored(id)["durable"])
    assert core.claim() == []


def test_one_sweep_takes_so_many_and_says_whether_more_may_be_left(core: Core) -> None:
    core.enqueue_many(*[Enqueue("a")] * 25)
    for job, _ in core.claim(limit=25):
        core.expire(job.id)
    assert [core.recover(limit=10) for _ in range(3)] == [
        Recovered(10, saturated=True),
        Recovered(10, saturated=True),
        Recovered(5, saturated=False),
    ]


def test_a_dead_run_with_a_follower_of_its_action_ends_superseded(core: Core) -> None:
    id = core.enqueue(**QUEUED)
    core.claim_one()
    follower = core.enqueue(**QUEUED)
    core.expire(id)
    assert core.recover().handled == 1
    assert core.get(id).status is Status.SUPERSEDED
    assert [job.id for job, _ in core.claim()] == [follower]


def test_a_dead_run_with_a_follower_of_another_action_fails_and_says_why(core: Core) -> None:
    id = core.enqueue("a", **QUEUED)
    core.claim_one("a")
    follower = core.enqueue("b", **QUEUED)
    core.expire(id)
    assert core.recover().handled == 1
    job = core.get(id)
    assert (job.status, job.failure_kind) == (Status.FAILED, "stalled")
    assert job.error is not None
    assert f"job {follower} of another action waits" in job.error["message"]


@pytest.mark.parametrize(
    "spoil",
    [
        {"durable__attempt": "three"},
        {"durable__max_attempts": None},
        {"durable__backoff": "never"},
        {"durable__backoff": {"kind": "?", "delay": -1, "max_delay": "x"}},
        {"durable__dedupe": 7},
        {"error": 5},
    ],
)
def test_a_spoiled_document_does_not_stop_the_sweep(core: Core, spoil: dict[str, Any]) -> None:
    ids = core.enqueue_many(*[Enqueue("a")] * 5)
    for job, _ in core.claim(limit=5):
        core.expire(job.id)
    core.change(ids[0], **spoil)
    assert core.recover() == Recovered(5, saturated=False)
    assert {core.get(id).status for id in ids} == {Status.QUEUED}


def test_the_key_of_a_dead_run_is_free_again_after_its_last_attempt(core: Core) -> None:
    id = core.enqueue(dedupe_key="k", max_attempts=1)
    core.claim_one()
    core.expire(id)
    assert core.enqueue(dedupe_key="k") is None
    core.recover()
    assert core.enqueue(dedupe_key="k") is not None
