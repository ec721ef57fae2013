"""Two decisions that meet at one job or one key, in every order that their calls can have."""

from __future__ import annotations

from typing import Any

import pytest

from durabl_ext.core.plans import How
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import (
    Completed,
    FailedTerminal,
    LeaseLost,
    Released,
    Renewed,
    RetryScheduled,
    Superseded,
)
from simplequeue.job import Job
from tests.proof.scheduler import Decision
from tests.proof.world import BOTH, LEASE, QUEUED, Claim, World

EXPIRED = LEASE.total_seconds() + 1
SLOW: Any = {"backoff": "fixed", "backoff_delay": 30}


def expired_run(world: World, **options: Any) -> Claim:
    """A run whose lease has ended."""
    world.add(**options)
    claim = world.claim_one()
    world.wait(EXPIRED)
    return claim


@pytest.mark.parametrize("options", [{}, BOTH, QUEUED], ids=["no key", "queued+running", "queued"])
def test_of_two_claims_one_gets_the_job(world: World, options: Any) -> None:
    def start() -> list[Decision]:
        world.add(**options)
        return [world.claim(), world.claim()]

    def check(first: list[Claim], second: list[Claim]) -> bool:
        assert len(first) + len(second) == 1
        assert (first + second)[0].job.attempt == 1
        return bool(first)

    assert set(world.play(start, check)) == {True, False}


def test_two_claims_of_a_plain_job_and_a_keyed_one_share_them_and_none_is_had_twice(world: World) -> None:
    def start() -> list[Decision]:
        world.do(world.add_plain())
        world.add(**BOTH)
        return [world.claim(limit=2), world.claim(limit=2)]

    def check(first: list[Claim], second: list[Claim]) -> None:
        assert len({claim.job.id for claim in first + second}) == len(first + second) == 2

    world.play(start, check)


@pytest.mark.parametrize("plain", [False, True])
def test_of_a_claim_and_a_cancel_one_gets_the_job(world: World, plain: bool) -> None:
    def start() -> list[Decision]:
        id = world.do(world.add_plain()) if plain else world.add()
        return [world.claim(), world.cancel(id)]

    def check(claims: list[Claim], cancelled: Job | None) -> bool:
        assert len(claims) + (cancelled is not None) == 1
        assert world.held("cancelled") == (cancelled is not None)
        return bool(claims)

    assert set(world.play(start, check)) == {True, False}


def test_a_cancel_beside_a_failure_wins_once_the_job_waits_again_and_only_then(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add(**SLOW)
        return [world.end(world.claim_one(), "fail"), world.cancel(id)]

    def check(outcome: Any, cancelled: Job | None) -> bool:
        assert isinstance(outcome, RetryScheduled)
        assert world.held("cancelled" if cancelled else "queued") == 1
        return cancelled is None

    assert set(world.play(start, check)) == {True, False}


@pytest.mark.parametrize("plain", [False, True])
def test_a_claim_gives_the_newest_payload_that_was_acknowledged_before_it(world: World, plain: bool) -> None:
    def start() -> list[Decision]:
        id = world.do(world.add_plain({"v": 1})) if plain else world.add({"v": 1})
        return [world.update(id, {"v": 2}), world.claim()]

    def check(updated: bool, claims: list[Claim]) -> int:
        assert updated
        (claim,) = claims
        assert world.stored(claim.job.id)["data"] == {"v": 2}
        given: int = claim.job.data["v"]
        return given

    # Only an update after the last call of the claim is not in what it gives: one order of four, or of five.
    assert sorted(world.play(start, check)) == [1, 2, 2, 2] + [2] * plain


def test_a_job_that_failed_beside_a_claim_does_not_start_inside_its_backoff(world: World) -> None:
    async def claim_and_fail() -> Any:
        claims = await world.claim()
        return await world.end(claims[0], "fail") if claims else None

    def start() -> list[Decision]:
        world.add(**SLOW)
        return [claim_and_fail(), world.claim()]

    def check(failed: Any, claims: list[Claim]) -> bool:
        assert (failed is None) == bool(claims)
        return bool(claims)

    assert set(world.play(start, check)) == {True, False}


def test_a_heartbeat_beside_a_recovery_keeps_the_run_or_learns_that_it_is_lost(world: World) -> None:
    def start() -> list[Decision]:
        claim = expired_run(world, **SLOW)
        return [world.heartbeat(claim), world.recover()]

    def check(renewed: list[Any], recovered: Any) -> int:
        assert isinstance(renewed[0], LeaseLost if recovered.handled else Renewed)
        assert world.held("queued") == recovered.handled
        assert world.held("running") == 1 - recovered.handled
        return int(recovered.handled)

    assert set(world.play(start, check)) == {0, 1}


@pytest.mark.parametrize(
    ("how", "outcome", "status"),
    [
        ("complete", Completed, "completed"),
        ("fail", RetryScheduled, "queued"),
        ("fail_fatal", FailedTerminal, "failed"),
        ("release", Released, "queued"),
    ],
)
def test_an_ending_beside_a_recovery_counts_or_is_told_that_it_lost(
    world: World, how: How, outcome: type, status: str
) -> None:
    def start() -> list[Decision]:
        claim = expired_run(world, **SLOW)
        return [world.end(claim, how), world.recover()]

    def check(ended: Any, recovered: Any) -> int:
        assert isinstance(ended, LeaseLost if recovered.handled else outcome)
        (job,) = world.collection.find()
        assert job["status"] == ("queued" if recovered.handled else status)
        assert job["durable"]["attempt"] == (0 if how == "release" and not recovered.handled else 1)
        return int(recovered.handled)

    assert set(world.play(start, check)) == {0, 1}


def test_a_recovery_leaves_alone_what_was_released_and_claimed_by_another_since_it_read(world: World) -> None:
    async def hand_over(claim: Claim) -> Any:
        return await world.end(claim, "release"), await world.claim()

    def start() -> list[Decision]:
        claim = expired_run(world, **SLOW)
        return [hand_over(claim), world.recover()]

    def check(handed: Any, recovered: Any) -> int:
        outcome, claims = handed
        assert (outcome, len(claims)) == ((LeaseLost(), 0) if recovered.handled else (Released(), 1))
        assert world.held("running") == len(claims)
        return int(recovered.handled)

    assert set(world.play(start, check)) == {0, 1}


def test_a_late_finisher_beside_a_newer_run_changes_nothing_of_it(world: World) -> None:
    def start() -> list[Decision]:
        late = expired_run(world)
        world.do(world.recover())
        world.wait(60)
        return [world.end(late, "complete"), world.end(world.claim_one(), "fail_fatal")]

    def check(old: Any, new: Any) -> None:
        assert (old, new) == (LeaseLost(), FailedTerminal())
        assert world.held("failed") == 1

    world.play(start, check)


def test_a_release_beside_a_claim_spends_no_attempt(world: World) -> None:
    def start() -> list[Decision]:
        world.add(max_attempts=1)
        return [world.end(world.claim_one(), "release"), world.claim()]

    def check(outcome: Any, claims: list[Claim]) -> int:
        assert outcome == Released()
        assert [claim.job.attempt for claim in claims] in ([], [1])
        return len(claims)

    assert set(world.play(start, check)) == {0, 1}


@pytest.mark.parametrize("action", ["a", "b"])
@pytest.mark.parametrize("how", ["fail", "release", "recover"])
def test_of_a_run_that_goes_back_and_a_new_job_of_its_key_one_waits(world: World, how: Any, action: str) -> None:
    given_way = "superseded" if action == "a" else "failed"

    def start() -> list[Decision]:
        claim = expired_run(world, **QUEUED, **SLOW)
        enqueue = world.enqueue(Enqueue(action, **QUEUED))
        return [world.recover() if how == "recover" else world.end(claim, how), enqueue]

    def check(outcome: Any, ids: list[str | None]) -> bool:
        new = ids[0] is not None
        assert world.held("queued") == 1
        assert world.held(given_way) == new
        if how == "recover":
            assert outcome.handled == 1
        else:
            back: Any = RetryScheduled if how == "fail" else Released
            assert isinstance(outcome, (Superseded if action == "a" else FailedTerminal) if new else back)
        return new

    assert set(world.play(start, check)) == {True, False}


def test_a_run_that_fails_while_its_follower_is_cancelled_gives_way_or_waits_again(world: World) -> None:
    def start() -> list[Decision]:
        world.add(**QUEUED)
        claim = world.claim_one()
        return [world.end(claim, "fail"), world.cancel(world.add(**QUEUED))]

    def check(outcome: Any, cancelled: Job | None) -> type:
        assert cancelled is not None
        assert isinstance(outcome, Superseded | RetryScheduled)
        assert world.held("queued") == isinstance(outcome, RetryScheduled)
        return type(outcome)

    assert set(world.play(start, check)) == {Superseded, RetryScheduled}


@pytest.mark.parametrize("options", [BOTH, QUEUED], ids=["queued+running", "queued"])
def test_of_two_that_claim_or_enqueue_one_key_one_runs(world: World, options: Any) -> None:
    def start() -> list[Decision]:
        asked = Enqueue("a", **options)
        return [world.claim_or_enqueue(asked), world.claim_or_enqueue(asked)]

    def check(first: Claim | None, second: Claim | None) -> bool:
        assert [first, second].count(None) == 1
        assert world.held("running") == 1
        assert world.held("queued") == (options is QUEUED)
        return first is None

    assert set(world.play(start, check)) == {True, False}


@pytest.mark.parametrize("options", [BOTH, QUEUED], ids=["queued+running", "queued"])
def test_a_job_that_is_added_beside_a_claim_or_enqueue_is_covered(world: World, options: Any) -> None:
    def start() -> list[Decision]:
        return [world.claim_or_enqueue(Enqueue("a", **options)), world.enqueue(Enqueue("a", **options))]

    def check(claim: Claim | None, ids: list[str | None]) -> tuple[int, int]:
        held = world.held("running"), world.held("queued")
        assert held[0] == (claim is not None)
        assert held[1] == (ids[0] is not None)
        return held

    assert set(world.play(start, check)) == ({(1, 0), (0, 1)} if options is BOTH else {(1, 1), (0, 1)})


def test_a_batch_that_holds_a_stale_claim_ends_nothing_of_the_newer_run_of_the_same_worker(world: World) -> None:
    def start() -> list[Decision]:
        stale = expired_run(world)
        world.do(world.recover())
        world.wait(60)
        world.add()
        fresh = world.do(world.claim(limit=2))
        other = next(claim for claim in fresh if claim.job.id != stale.job.id)
        batch = world.settle(stale.ending("complete"), other.ending("complete"))
        return [batch, world.heartbeat(*fresh)]

    def check(outcomes: list[Any], renewed: list[Any]) -> int:
        assert outcomes == [LeaseLost(), Completed()]
        assert world.held("running") == 1
        return sum(isinstance(one, Renewed) for one in renewed)

    assert set(world.play(start, check)) == {1, 2}
