"""Recover, in every cell: what becomes of the jobs of dead runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS

from durabl_ext.core.recover import Recovered
from durabl_ext.options import Enqueue
from simplequeue.states import Status
from tests.core.conftest import LONG_AGO, Core

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
    core.enqueue_many(*[Enqueue("a")] * 250)
    assert len(core.claim(limit=250)) == 250
    core.cell.collection.update_many({}, {"$set": {"durable.lease_expires_at": LONG_AGO}})
    assert [core.recover(limit=100) for _ in range(3)] == [
        Recovered(100, saturated=True),
        Recovered(100, saturated=True),
        Recovered(50, saturated=False),
    ]


def five_dead_runs(core: Core, **options: Any) -> list[str | None]:
    """Five runs whose leases have ended, the first of them, which has these options, before the others."""
    ids = core.enqueue_many(Enqueue("a", **options), *[Enqueue("a")] * 4)
    for job, _ in core.claim(limit=5):
        core.expire(job.id)
    core.change(ids[0], durable__lease_expires_at=LONG_AGO - timedelta(days=1))
    return ids


@pytest.mark.parametrize(("action", "status"), [("a", Status.SUPERSEDED), ("b", Status.FAILED)])
def test_a_dead_run_that_cannot_go_back_does_not_stop_the_sweep(core: Core, action: str, status: Status) -> None:
    first, *others = five_dead_runs(core, **QUEUED)
    core.enqueue(action, **QUEUED)
    assert core.recover() == Recovered(5, saturated=False)
    assert core.get(first).status is status
    assert {core.get(id).status for id in others} == {Status.QUEUED}


@pytest.mark.parametrize("spare", [0, 400])
def test_a_dead_run_whose_document_is_full_does_not_stop_the_sweep(core: Core, spare: int) -> None:
    first, *others = five_dead_runs(core, max_attempts=2)
    core.change(first, data__x="")
    room = 16 * 1024 * 1024 - len(bson.encode(core.stored(first)))
    core.change(first, data__x="x" * (room - spare))
    assert core.recover() == Recovered(5, saturated=False)
    assert {core.get(id).status for id in others} == {Status.QUEUED}
    job = core.get(first)
    if core.cell.real and spare == 0:  # not even the reason fits
        assert (job.status, job.failure_kind, job.error) == (Status.FAILED, "stalled", None)
    else:
        assert job.status is Status.QUEUED
        assert job.error is not None


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
        {"durable__backoff": {"kind": ["fixed"], "delay": {"seconds": 1}, "max_delay": [1]}},
        {"durable__backoff": {"kind": "exponential", "delay": 1e300, "max_delay": 1e300}},
        {"durable__dedupe": 7},
        {"durable__logs": 7},
        {"durable__lease_expires_at": [LONG_AGO]},
        {"error": 5},
    ],
)
def test_a_spoiled_document_does_not_stop_the_sweep(core: Core, spoil: dict[str, Any]) -> None:
    ids = five_dead_runs(core)
    core.change(ids[0], **spoil)
    assert core.recover() == Recovered(5, saturated=False)
    assert {core.get(id).status for id in ids} == {Status.QUEUED}


def test_a_lease_before_all_datetimes_does_not_stop_the_sweep(real_core: Core) -> None:
    ids = five_dead_runs(real_core)
    real_core.change(ids[0], durable__lease_expires_at=DatetimeMS(-(10**15)))
    assert real_core.recover() == Recovered(5, saturated=False)
    assert {real_core.get(id).status for id in ids} == {Status.QUEUED}


def test_a_document_with_a_list_of_runs_is_left_alone_and_does_not_stop_the_sweep(core: Core) -> None:
    first, *others = five_dead_runs(core)
    core.change(first, durable=[{"lease_expires_at": LONG_AGO}])
    assert core.recover() == Recovered(4, saturated=False)
    assert {core.get(id).status for id in others} == {Status.QUEUED}


def test_a_sweep_reads_no_payload_and_no_journal(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    five_dead_runs(core, data={"large": "x"})
    find, read = core.cell.jobs.find, list[Any]()

    async def noted(*args: Any, **options: Any) -> Any:
        read.extend(found := await find(*args, **options))
        return found

    monkeypatch.setattr(core.cell.jobs, "find", noted)
    assert core.recover().handled == 5
    assert len(read) == 5
    for document in read:
        assert not {"data", "error"} & set(document)
        assert not {"logs", "steps", "receipts"} & set(document["durable"])


@pytest.mark.parametrize("lacks", ["attempt", "max_attempts", "backoff", "priority", "run_at", "dedupe", "token"])
def test_a_document_that_lacks_a_field_does_not_stop_the_sweep(core: Core, lacks: str) -> None:
    ids = five_dead_runs(core, dedupe_key="k")
    core.cell.collection.update_one({"_id": ids[0]}, {"$unset": {f"durable.{lacks}": ""}})
    assert core.recover() == Recovered(5, saturated=False)
    assert {core.get(id).status for id in ids} == {Status.QUEUED}


def test_the_key_of_a_dead_run_is_its_own_until_it_runs_again(core: Core) -> None:
    id = core.enqueue(dedupe_key="k", backoff_delay=30)
    core.claim_one()
    core.expire(id)
    core.recover()
    assert core.enqueue(dedupe_key="k") is None
    assert core.claim() == []  # not within its backoff
    core.make_due(id)
    again = core.claim_one()
    assert again[0].id == id
    core.settle(again, "complete")
    assert core.enqueue(dedupe_key="k") is not None


def test_the_key_of_a_dead_run_is_free_again_after_its_last_attempt(core: Core) -> None:
    id = core.enqueue(dedupe_key="k", max_attempts=1)
    core.claim_one()
    core.expire(id)
    assert core.enqueue(dedupe_key="k") is None
    core.recover()
    assert core.enqueue(dedupe_key="k") is not None
