"""Failed jobs, in every cell: which there are, and how one runs again."""

from __future__ import annotations

from typing import Any

import pytest

from durabl_ext.core.replay import list_failed, retry
from durabl_ext.job import DurableJob, FailureKind
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import KeyBusy, NotFailed, NotFound, Retried
from simplequeue.states import Status
from tests.core.conftest import FAILURE, Core


def replay(core: Core, id: object) -> Any:
    return core.cell.do(retry(core.cell.jobs, id))


def failed(core: Core, action: str | None = None, kind: FailureKind | None = None, limit: int = 50) -> list[DurableJob]:
    jobs: list[DurableJob] = core.cell.do(list_failed(core.cell.jobs, action, kind, limit))
    return jobs


def test_a_replayed_job_has_all_its_attempts_and_its_journal(core: Core) -> None:
    id = core.enqueue(max_attempts=1, dedupe_key="k")
    core.settle(core.claim_one(), "fail")
    core.change(id, durable__steps=[{"name": "pay"}], durable__journal_bytes=20)
    assert replay(core, id) == Retried()
    job, stored = core.get(id), core.stored(id)
    assert (job.status, job.attempt, job.error, job.failure_kind) == (Status.QUEUED, 0, None, None)
    assert (job.started_at, job.finished_at) == (None, None)
    assert stored["durable"]["steps"] == [{"name": "pay"}]
    assert not {"token", "lease_expires_at"} & set(stored["durable"])
    assert core.claim_one()[0].attempt == 1


def test_a_failed_job_of_the_base_layer_is_replayed_by_the_extension(core: Core) -> None:
    plain = core.cell.queue.add("a")
    core.change(plain.id, status="failed", error=FAILURE)
    assert replay(core, plain.id) == Retried()
    job, _ = core.claim_one()
    assert (job.id, job.attempt, job.max_attempts, job.priority) == (plain.id, 1, 3, 0)


@pytest.mark.parametrize("scope", ["queued", "queued+running"])
@pytest.mark.parametrize("running", [False, True])
def test_a_busy_key_leaves_the_job_failed_and_names_the_holder(core: Core, scope: Any, running: bool) -> None:
    options: Any = {"dedupe_key": "k", "dedupe_scope": scope, "max_attempts": 1}
    id = core.enqueue(**options)
    core.settle(core.claim_one(), "fail")
    holder = core.enqueue(**options)
    if running:
        core.claim_one()
    outcome = replay(core, id)
    if running and scope == "queued":  # it may wait behind the run
        assert outcome == Retried()
    else:
        assert outcome == KeyBusy(str(holder))
        assert not outcome
        assert core.get(id).status is Status.FAILED


def test_a_job_that_has_not_failed_or_is_not_there_says_so(core: Core) -> None:
    id = core.enqueue()
    assert replay(core, id) == NotFailed(Status.QUEUED)
    core.cell.queue.cancel(id)
    assert replay(core, id) == NotFailed(Status.CANCELLED)
    for nothing in ("0198e15c-8200-7000-8000-000000000001", "no id", None, {"$ne": None}):
        assert replay(core, nothing) == NotFound()
        assert not replay(core, nothing)


def test_a_status_that_only_another_program_knows_is_told_as_it_is(core: Core) -> None:
    id = core.enqueue()
    core.change(id, status="lost")
    outcome = replay(core, id)
    assert isinstance(outcome, NotFailed)
    assert outcome.status == "lost"


def test_failed_jobs_are_listed_by_kind_and_action_the_latest_first(core: Core) -> None:
    ids = core.enqueue_many(Enqueue("a", max_attempts=1), Enqueue("b", max_attempts=1), Enqueue("a"), Enqueue("a"))
    claims = core.claim("a", "b", limit=4)
    for claimed, how in zip(claims, ("fail", "fail", "fail_fatal", "complete"), strict=True):
        core.settle(claimed, how)  # type: ignore[arg-type]  # a How each
    for n, id in enumerate(ids[:3]):
        core.change(id, finished_at=core.get(id).created_at.replace(year=2030 + n))
    assert [job.id for job in failed(core)] == [ids[2], ids[1], ids[0]]
    assert [job.id for job in failed(core, action="a")] == [ids[2], ids[0]]
    assert [job.id for job in failed(core, kind="fatal")] == [ids[2]]
    assert [job.id for job in failed(core, action="b", kind="fatal")] == []
    assert [job.id for job in failed(core, limit=1)] == [ids[2]]
