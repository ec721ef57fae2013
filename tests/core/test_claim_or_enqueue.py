"""Claim or enqueue, in every cell: the whole table of scopes and of who holds the key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durabl_ext.core.claim import Terms
from durabl_ext.core.claim_or_enqueue import claim_or_enqueue
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.job import DurableJob
from durabl_ext.options import Enqueue, checked
from durabl_ext.outcomes import Completed
from simplequeue.states import Status
from tests.core.conftest import Core

QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}
BOTH: Any = {"dedupe_key": "k", "dedupe_scope": "queued+running"}


def ask(core: Core, token: str = "mine", action: str = "a", data: Any = None, **options: Any) -> DurableJob | None:
    request = checked(Enqueue(action, data, **options), core.cell.jobs.codec)
    terms = Terms(token, timedelta(seconds=60), {})
    job: DurableJob | None = core.cell.do(claim_or_enqueue(core.cell.jobs, request, terms))
    return job


def count(core: Core, status: str) -> int:
    found: int = core.cell.collection.count_documents({"status": status})
    return found


@pytest.mark.parametrize("options", [{}, QUEUED, BOTH], ids=["no key", "queued", "queued+running"])
def test_a_key_that_nobody_holds_makes_it_run_here(core: Core, options: Any) -> None:
    job = ask(core, data={"n": 1}, **options)
    assert job is not None
    assert job == core.get(job.id)
    assert (job.status, job.attempt, job.data) == (Status.RUNNING, 1, {"n": 1})
    assert job.started_at == job.created_at
    assert job.lease_expires_at == job.created_at + timedelta(seconds=60)
    assert core.settle((job, "mine"), "complete") == Completed()


def test_without_a_key_each_call_runs(core: Core) -> None:
    assert ask(core, "one") is not None
    assert ask(core, "two") is not None
    assert count(core, "running") == 2


@pytest.mark.parametrize("running", [False, True])
def test_in_the_default_scope_nothing_is_stored_while_the_key_is_held(core: Core, running: bool) -> None:
    core.enqueue(**BOTH)
    if running:
        core.claim_one()
    assert ask(core, **BOTH) is None
    assert core.cell.collection.count_documents({}) == 1


def test_in_scope_queued_one_follower_waits_behind_a_run(core: Core) -> None:
    assert ask(core, data={"v": 1}, **QUEUED) is not None
    assert ask(core, data={"v": 2}, **QUEUED) is None
    assert ask(core, data={"v": 3}, **QUEUED) is None
    assert (count(core, "running"), count(core, "queued")) == (1, 1)
    assert core.cell.collection.find_one({"status": "queued"})["data"] == {"v": 2}
    assert ask(core, data={"v": 4}, coalesce="latest", **QUEUED) is None
    assert core.cell.collection.find_one({"status": "queued"})["data"] == {"v": 4}
    assert core.cell.collection.find_one({"status": "running"})["data"] == {"v": 1}


def test_in_scope_queued_a_job_that_waits_and_does_not_run_is_left_to_others(core: Core) -> None:
    waiting = core.enqueue(data={"v": 1}, **QUEUED)
    assert ask(core, data={"v": 2}, **QUEUED) is None
    assert core.get(waiting).data == {"v": 1}
    assert ask(core, data={"v": 3}, coalesce="latest", **QUEUED) is None
    assert core.get(waiting).data == {"v": 3}
    assert (count(core, "running"), count(core, "queued")) == (0, 1)


@pytest.mark.parametrize(("held", "asked"), [(QUEUED, BOTH), (BOTH, QUEUED)])
@pytest.mark.parametrize("running", [False, True])
def test_a_key_of_the_other_scope_is_an_error(core: Core, held: Any, asked: Any, running: bool) -> None:
    core.enqueue(**held)
    if running:
        core.claim_one()
    with pytest.raises(DedupeScopeConflictError):
        ask(core, **asked)
    assert core.cell.collection.count_documents({}) == 1


def test_a_key_excludes_across_actions(core: Core) -> None:
    assert ask(core, action="a", **BOTH) is not None
    assert ask(core, action="b", **BOTH) is None
