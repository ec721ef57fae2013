"""Ends and claims in one write, in every cell: what ends makes room first, and no start changes what an end means."""

from __future__ import annotations

from typing import Any

import pytest

from durabl_ext.core import claim as claiming
from durabl_ext.core.claim import Claimed
from durabl_ext.core.plans import How, Settlement
from durabl_ext.core.settle import Ends
from durabl_ext.job import DurableJob
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import AlreadyTerminal, Completed, FailedTerminal, LeaseLost, RetryScheduled, Superseded
from simplequeue.states import Status
from tests.core.conftest import FAILURE, LEASE, Core

Run = tuple[DurableJob, str]


def key(name: str, scope: str = "queued") -> Any:
    return {"dedupe_key": name, "dedupe_scope": scope}


def turn(core: Core, endings: list[tuple[Run, How]], *actions: str, limit: int) -> tuple[list[Any], Claimed]:
    """Ends runs and claims up to ``limit`` of each action in their stead."""
    terms = claiming.Terms(next(core.tokens), LEASE, {})

    async def both() -> tuple[list[Any], Claimed]:
        jobs = core.cell.jobs
        settlements = [
            Settlement(*run, how, None if how in ("complete", "release") else FAILURE) for run, how in endings
        ]
        ends = Ends(settlements, await jobs.now(), core.uniform)
        wants = dict.fromkeys(actions or ("a",), limit)
        claimed = await claiming.claim(jobs, wants, limit * len(wants), terms, ends=ends)
        return await ends.became(jobs), claimed

    result: tuple[list[Any], Claimed] = core.cell.do(both())
    return result


def calls(core: Core, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls from now on."""
    made: list[str] = []
    for name in ("find", "write"):
        monkeypatch.setattr(core.cell.jobs, name, _noting(made, name, getattr(core.cell.jobs, name)))
    return made


def _noting(made: list[str], name: str, original: Any) -> Any:
    async def noting(*args: Any, **options: Any) -> Any:
        made.append(name)
        return await original(*args, **options)

    return noting


def test_runs_end_and_others_start_in_three_calls(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    first = core.enqueue_many(*[Enqueue("a")] * 3)
    runs = core.claim(limit=3)
    second = core.enqueue_many(*[Enqueue("a", {"v": 1})] * 3)
    made = calls(core, monkeypatch)
    outcomes, claimed = turn(core, [(run, "complete") for run in runs], limit=3)
    assert made == ["find", "write", "find"]
    assert outcomes == [Completed()] * 3
    assert [job.id for job in claimed.jobs] == second
    assert all(job.status is Status.RUNNING and job.data == {"v": 1} for job in claimed.jobs)
    assert all(core.get(id).status is Status.COMPLETED for id in first)


def test_where_nothing_waits_the_ends_are_written_by_themselves(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    core.enqueue()
    run = core.claim_one()
    made = calls(core, monkeypatch)
    outcomes, claimed = turn(core, [(run, "complete")], limit=1)
    assert made == ["find", "write"]
    assert (outcomes, claimed.jobs) == ([Completed()], [])


def test_the_follower_of_a_run_starts_in_the_write_that_ends_it(core: Core) -> None:
    core.enqueue(**key("k"))
    run = core.claim_one()
    follower = core.enqueue(**key("k"))
    outcomes, claimed = turn(core, [(run, "complete")], limit=1)
    assert outcomes == [Completed()]
    assert [job.id for job in claimed.jobs] == [follower]


def test_every_way_to_end_goes_with_a_claim(core: Core) -> None:
    core.enqueue_many(
        Enqueue("a"), Enqueue("a", max_attempts=1), Enqueue("a", backoff="fixed", backoff_delay=60), Enqueue("a")
    )
    complete, last, again, give_back = core.claim(limit=4)
    next_one = core.enqueue(priority=-1)
    ways: list[tuple[Run, How]] = [(complete, "complete"), (last, "fail"), (again, "fail"), (give_back, "release")]
    outcomes, claimed = turn(core, ways, limit=1)
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "Completed",
        "FailedTerminal",
        "RetryScheduled",
        "Released",
    ]
    assert [job.id for job in claimed.jobs] == [next_one]


def test_an_end_that_is_refused_starts_nothing_and_finds_another_way(core: Core) -> None:
    core.enqueue(action="a", backoff="fixed", backoff_delay=0, **key("k"))
    core.enqueue(action="a")
    keyed, plain = core.claim(limit=2)
    core.enqueue(action="a", delay=600, **key("k"))
    waits = core.enqueue_many(*[Enqueue("a")] * 2)
    outcomes, claimed = turn(core, [(keyed, "fail"), (plain, "complete")], limit=2)
    assert outcomes == [Superseded(), Completed()]
    assert claimed.jobs == []
    assert [job.id for job, _ in core.claim(limit=4)] == waits


def test_a_key_that_is_held_by_another_run_keeps_neither_ends_nor_other_starts(core: Core) -> None:
    core.enqueue(**key("held"))
    holder = core.claim_one()
    core.enqueue()
    run = core.claim_one()
    core.enqueue(priority=-1, **key("held"))
    free = core.enqueue()
    outcomes, claimed = turn(core, [(run, "complete")], limit=1)
    assert outcomes == [Completed()]
    assert [job.id for job in claimed.jobs] == [free]
    assert core.get(holder[0].id).status is Status.RUNNING


def test_a_run_that_was_lost_is_told_so_whatever_starts_beside_its_end(core: Core) -> None:
    core.enqueue(backoff="fixed", backoff_delay=0)
    core.enqueue()
    lost, kept = core.claim(limit=2)
    core.expire(lost[0].id)
    assert core.recover().handled == 1
    core.make_due(lost[0].id)
    outcomes, claimed = turn(core, [(lost, "complete"), (kept, "complete")], limit=1)
    assert outcomes == [LeaseLost(), Completed()]
    assert [(job.id, job.attempt) for job in claimed.jobs] == [(lost[0].id, 2)]


@pytest.mark.parametrize("how", ["complete", "fail"])
def test_candidates_that_are_gone_make_no_end_look_like_another(
    core: Core, monkeypatch: pytest.MonkeyPatch, how: How
) -> None:
    core.enqueue_many(*[Enqueue("a", max_attempts=2)] * 2)
    ended, runs = core.claim(limit=2)
    core.settle(ended, "complete")
    gone = core.enqueue()
    stays = core.enqueue()
    original = claiming.take

    async def cancelled_before(jobs: Any, *rest: Any) -> Claimed:
        await jobs.update_one({"_id": gone}, {"$set": {"status": "cancelled"}})
        return await original(jobs, *rest)

    monkeypatch.setattr(claiming, "take", cancelled_before)
    outcomes, claimed = turn(core, [(ended, how), (runs, how)], limit=2)
    assert [job.id for job in claimed.jobs] == [stays]
    assert outcomes[0] == (Completed() if how == "complete" else AlreadyTerminal(Status.COMPLETED))
    assert isinstance(outcomes[1], Completed if how == "complete" else RetryScheduled)


def test_plain_jobs_are_adopted_in_the_place_of_runs_that_end(core: Core) -> None:
    core.enqueue(max_attempts=1)
    run = core.claim_one()
    id = core.cell.queue.add("a", {"v": 1}).id
    outcomes, claimed = turn(core, [(run, "fail")], limit=1)
    assert outcomes == [FailedTerminal()]
    assert [(job.id, job.attempt, job.max_attempts) for job in claimed.jobs] == [(id, 1, 3)]
