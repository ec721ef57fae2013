"""What anybody may do to a job, in every order of its calls with what its worker and its producers do: one wins."""

from __future__ import annotations

from typing import Any

import pytest

from durabl_ext.core.plans import How
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import Completed, NotFailed, Retried
from simplequeue.job import Job
from simplequeue.states import Status
from tests.proof.scheduler import Decision
from tests.proof.test_interleavings import expired_run
from tests.proof.world import BOTH, QUEUED, Claim, World


@pytest.mark.parametrize("how", ["complete", "fail_fatal"])
def test_a_cancel_never_wins_over_a_run_that_ends(world: World, how: How) -> None:
    def start() -> list[Decision]:
        id = world.add(**BOTH)
        return [world.end(world.claim_one(), how), world.cancel(id)]

    def check(outcome: Any, cancelled: Job | None) -> None:
        assert cancelled is None
        assert world.held("completed" if how == "complete" else "failed") == 1

    world.play(start, check)


def test_of_a_cancel_and_the_claim_of_a_retry_that_has_come_due_one_gets_the_job(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add(backoff="fixed", backoff_delay=5)
        world.do(world.end(world.claim_one(), "fail"))
        world.wait(5)
        return [world.claim(), world.cancel(id)]

    def check(claims: list[Claim], cancelled: Job | None) -> bool:
        assert len(claims) + (cancelled is not None) == 1
        assert world.held("cancelled") == (cancelled is not None)
        return bool(claims)

    assert set(world.play(start, check)) == {True, False}


def test_a_cancel_beside_a_recovery_wins_once_the_job_waits_again_and_only_then(world: World) -> None:
    def start() -> list[Decision]:
        claim = expired_run(world)
        return [world.recover(), world.cancel(claim.job.id)]

    def check(recovered: Any, cancelled: Job | None) -> bool:
        assert recovered.handled == 1
        assert world.held("cancelled" if cancelled else "queued") == 1
        return cancelled is None

    assert set(world.play(start, check)) == {True, False}


def test_a_cancel_beside_a_replay_wins_once_the_job_waits_again_and_only_then(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add(**BOTH)
        world.do(world.end(world.claim_one(), "fail_fatal"))
        return [world.retry(id), world.cancel(id)]

    def check(retried: Any, cancelled: Job | None) -> bool:
        assert retried == Retried()
        assert world.held("cancelled" if cancelled else "queued") == 1
        return cancelled is None

    assert set(world.play(start, check)) == {True, False}


def test_of_two_cancels_one_is_told_that_it_won(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add()
        return [world.cancel(id), world.cancel(id)]

    def check(*cancelled: Job | None) -> int:
        assert cancelled.count(None) == 1
        return cancelled.index(None)

    assert set(world.play(start, check)) == {0, 1}


def test_a_latest_beside_a_cancel_is_in_what_was_cancelled_or_in_a_new_job(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add({"v": 1}, **QUEUED)
        return [world.enqueue(Enqueue("a", {"v": 2}, coalesce="latest", **QUEUED)), world.cancel(id)]

    def check(ids: list[str | None], cancelled: Job | None) -> bool:
        assert cancelled is not None
        same = ids[0] == cancelled.id
        assert cancelled.data == {"v": 2 if same else 1}
        assert world.held("queued") == (not same)
        assert world.stored(ids[0])["data"] == {"v": 2}
        return same

    assert set(world.play(start, check)) == {True, False}


@pytest.mark.parametrize("how", ["complete", "fail", "release"])
def test_an_update_beside_the_end_of_a_run_is_kept_and_moves_nothing(world: World, how: How) -> None:
    status = "completed" if how == "complete" else "queued"

    def start() -> list[Decision]:
        id = world.add({"v": 1})
        return [world.end(world.claim_one(), how), world.update(id, {"progress": 9})]

    def check(outcome: Any, updated: bool) -> None:
        assert updated
        (job,) = world.collection.find()
        assert (job["status"], job["data"]) == (status, {"v": 1, "progress": 9})

    world.play(start, check)


def test_updates_of_different_keys_beside_each_other_are_all_kept(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add({"v": 1})
        world.claim_one()
        return [world.update(id, {f"key{n}": n}) for n in range(3)]

    def check(*updated: bool) -> None:
        assert all(updated)
        (job,) = world.collection.find()
        assert job["data"] == {"v": 1, "key0": 0, "key1": 1, "key2": 2}

    world.play(start, check)


def test_a_cancelled_job_is_not_replayed(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add()
        return [world.cancel(id), world.retry(id)]

    def check(cancelled: Job | None, retried: Any) -> None:
        assert cancelled is not None
        assert retried in (NotFailed(Status.QUEUED), NotFailed(Status.CANCELLED))
        assert world.held("cancelled") == 1

    world.play(start, check)


def test_the_end_of_a_run_beside_an_update_and_a_cancel_is_the_only_end(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add(**QUEUED)
        claim = world.claim_one()
        return [world.end(claim, "complete"), world.update(id, {"v": 2}), world.cancel(id)]

    def check(outcome: Any, updated: bool, cancelled: Job | None) -> None:
        assert (outcome, updated, cancelled) == (Completed(), True, None)

    world.play(start, check)
