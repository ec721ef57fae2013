"""Each command that a run sends, at its end or before, and each of the reaper finds its jobs by their ids or leases."""

from __future__ import annotations

from typing import Any

import pytest

from durabl_ext.core.doubts import release_strays
from durabl_ext.core.indexes import EXPIRED, QUEUED_SLOT
from durabl_ext.core.journal import Limits, Step, append_step, log, read_steps
from durabl_ext.job import LogLine
from simplequeue.runs import unanswered
from tests.core.conftest import BATCH, LONG_AGO, Explained
from tests.core.crowds import add_queued
from tests.plans import keys, names


@pytest.mark.parametrize("lost", [False, True])
def test_heartbeats_examine_a_key_or_two_for_each_run(on_server: Explained, lost: bool) -> None:
    core = on_server.core
    add_queued(core, 500)
    claims = core.claim(limit=500)[:BATCH]
    if lost:
        core.settle(claims[0], "complete")
    plans = on_server.costs(lambda: core.heartbeat(*claims))
    assert names(plans) == ["update", "find"][: 1 + lost]
    for plan in plans:
        assert plan.indexes == {"_id_"}
        assert plan.keys <= 2 * BATCH


@pytest.mark.parametrize("how", ["complete", "fail", "fail_fatal", "release"])
def test_endings_examine_a_key_or_two_for_each_run_told_once_or_twice(on_server: Explained, how: Any) -> None:
    core = on_server.core
    add_queued(core, 500)
    claims = core.claim(limit=500)[:BATCH]
    writes = ["update"] * (1 if how == "complete" else BATCH)
    for expected in (writes, [*writes, "find"]):
        plans = on_server.costs(lambda: core.settle_all([(claimed, how) for claimed in claims]))
        assert names(plans) == expected
        for plan in plans:
            assert plan.indexes == {"_id_"}
            assert plan.keys <= (1 if plan.command == "update" and how != "complete" else 2 * BATCH)


def test_the_base_layer_finds_its_unanswered_claims_by_their_ids(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 500)
    claims = [(job.id, LONG_AGO) for job, _ in core.claim(limit=500)]
    (plan,) = on_server.do(unanswered(core.cell.jobs, claims[:BATCH]))
    assert plan.indexes == {"_id_"}
    assert plan.keys <= 2 * BATCH


def test_runs_of_a_claim_whose_answer_was_lost_are_found_among_the_runs(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    core.claim(limit=100)
    strays = core.claim(limit=BATCH)
    found, *released = on_server.do(release_strays(core.cell.jobs, {strays[0][1]: []}, core.uniform))
    assert found.indexes == {EXPIRED.name}
    assert found.keys <= 100 + BATCH
    assert names(released) == ["update"] * BATCH
    assert keys(released) == [1] * BATCH


def test_a_job_that_fails_behind_its_follower_finds_it_by_its_key(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    core.enqueue("k", dedupe_key="k", dedupe_scope="queued")
    claimed = core.claim_one("k")
    core.enqueue("k", dedupe_key="k", dedupe_scope="queued")
    plans = on_server.costs(lambda: core.settle(claimed, "fail"))
    assert names(plans) == ["update", "find", "update", "find", "update"]
    assert keys(plans) == [1] * 5
    assert plans[3].indexes == {QUEUED_SLOT.name}


def test_the_journal_and_the_log_of_a_run_examine_a_key(on_server: Explained) -> None:
    core, jobs = on_server.core, on_server.core.cell.jobs
    add_queued(core, 500)
    job, token = core.claim(limit=500)[0]
    step, line = Step("0", "pay", {}), LogLine(LONG_AGO, "paid")
    told = log(jobs, job.id, token, [line], Limits(max_log_entries=10))
    lost = log(jobs, job.id, "another", [line], Limits(max_log_entries=10))
    for decision, expected in (
        (append_step(jobs, job.id, token, step, 10_000), ["update"]),
        (append_step(jobs, job.id, token, step, 10_000), ["update", "find"]),  # it is there already
        (read_steps(jobs, job.id), ["find"]),
        (told, ["update"]),
        (lost, ["update", "find"]),
    ):
        plans = on_server.do(decision)
        assert names(plans) == expected
        assert keys(plans) == [1] * len(expected)


def test_a_sweep_for_dead_runs_examines_a_key_for_each_that_it_takes(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    claims = core.claim(limit=500)
    for job, _ in claims[:10]:
        core.expire(job.id)
    plans = on_server.costs(core.recover)
    assert names(plans) == ["find", *["update"] * 10]
    assert plans[0].indexes == {EXPIRED.name}
    assert plans[0].keys <= 11
    assert keys(plans[1:]) == [1] * 10


def test_a_dead_run_behind_its_follower_finds_it_by_its_key(on_server: Explained) -> None:
    core = on_server.core
    add_queued(core, 2_000)
    core.enqueue("k", dedupe_key="k", dedupe_scope="queued")
    core.expire(core.claim_one("k")[0].id)
    core.enqueue("k", dedupe_key="k", dedupe_scope="queued")
    plans = on_server.costs(core.recover)
    assert names(plans) == ["find", "update", "find", "update"]
    assert max(keys(plans)) <= 2
    assert plans[2].indexes == {QUEUED_SLOT.name}
