"""An end and a claim in one write, in every order of its calls with what others do."""

from __future__ import annotations

from typing import Any

from durabl_ext.outcomes import Completed, FailedTerminal, LeaseLost, Settled
from tests.proof.scheduler import Decision
from tests.proof.test_interleavings import expired_run
from tests.proof.world import Claim, World


def test_an_end_with_a_claim_beside_a_recovery_ends_its_run_or_learns_that_it_is_lost(world: World) -> None:
    def start() -> list[Decision]:
        claim = expired_run(world)
        world.add({"v": 1}, priority=-1)
        return [world.turn(claim.ending("complete")), world.recover()]

    def check(turned: tuple[list[Settled], list[Claim]], recovered: Any) -> bool:
        (outcome,), (started,) = turned
        assert started.job.data == {"v": 1}
        assert (outcome, recovered.handled) in ((Completed(), 0), (LeaseLost(), 1))
        return outcome == Completed()

    assert set(world.play(start, check)) == {True, False}


def test_of_an_end_with_a_claim_and_another_claim_one_gets_the_job(world: World) -> None:
    def start() -> list[Decision]:
        world.add()
        claim = world.claim_one()
        world.add({"v": 1})
        return [world.turn(claim.ending("complete")), world.claim()]

    def check(turned: tuple[list[Settled], list[Claim]], claims: list[Claim]) -> int:
        outcomes, started = turned
        assert outcomes == [Completed()]
        assert [claim.job.data for claim in started + claims] == [{"v": 1}]
        return len(started)

    assert set(world.play(start, check)) == {0, 1}


def test_of_two_ends_with_a_claim_each_starts_another_job(world: World) -> None:
    def start() -> list[Decision]:
        world.add()
        world.add()
        first, second = world.do(world.claim(limit=2))
        world.add({"v": 1})
        world.add({"v": 2})
        return [world.turn(first.ending("complete")), world.turn(second.ending("fail_fatal"))]

    def check(*turned: tuple[list[Settled], list[Claim]]) -> None:
        assert [outcomes for outcomes, _ in turned] == [[Completed()], [FailedTerminal()]]
        started = [claim.job.data["v"] for _, claims in turned for claim in claims]
        assert len(started) == len(set(started)) >= 1

    world.play(start, check)
