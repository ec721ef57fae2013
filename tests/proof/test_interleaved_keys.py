"""More pairs in every order of their calls: what is added, coalesced or swept beside the jobs of its key."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import Completed, KeyBusy, NotFailed, Retried
from simplequeue.states import Status
from tests.proof.lines import Fault
from tests.proof.scheduler import Decision
from tests.proof.test_interleavings import expired_run
from tests.proof.world import BOTH, QUEUED, Claim, World


def test_the_latest_payload_beside_a_claim_is_run_by_it_or_by_a_follower(world: World) -> None:
    def start() -> list[Decision]:
        world.add({"v": 1}, **QUEUED)
        return [world.enqueue(Enqueue("a", {"v": 2}, coalesce="latest", **QUEUED)), world.claim()]

    def check(ids: list[str | None], claims: list[Claim]) -> bool:
        (claim,) = claims
        same = ids[0] == claim.job.id
        assert claim.job.data == {"v": 2 if same else 1}
        assert world.held("queued") == (not same)
        assert world.stored(ids[0])["data"] == {"v": 2}
        return same

    assert set(world.play(start, check)) == {True, False}


def test_two_latest_payloads_leave_one_job_with_one_of_them(world: World) -> None:
    def start() -> list[Decision]:
        return [world.enqueue(Enqueue("a", {"v": v}, coalesce="latest", **QUEUED)) for v in (1, 2)]

    def check(first: list[str | None], second: list[str | None]) -> int:
        assert first == second
        assert world.held("queued") == 1
        left: int = world.stored(first[0])["data"]["v"]
        return left

    assert set(world.play(start, check)) == {1, 2}


@pytest.mark.parametrize("newer", ["latest", "update", "run"])
def test_a_latest_that_arrives_late_replaces_nothing_newer(world: World, newer: str) -> None:
    id = world.add({"v": 0}, backoff_delay=0, **QUEUED)
    late = world.line({2: Fault.LATE})
    with pytest.raises(AutoReconnect):
        world.do(world.enqueue(Enqueue("a", {"v": 1}, coalesce="latest", **QUEUED), line=late))
    assert late.names == ["insert_many", "find", "update_one"]
    if newer == "latest":  # in the same millisecond
        world.add({"v": 2}, coalesce="latest", **QUEUED)
    else:
        world.wait(0.001)
        if newer == "update":
            world.do(world.update(id, {"v": 2}))
        else:
            world.do(world.end(world.claim_one(), "fail"))
    stored = world.stored(id)
    late.deliver()
    assert world.stored(id) == stored
    world.drain()


@pytest.mark.parametrize("action", ["a", "b"])
def test_a_latest_beside_a_cancel_and_a_new_job_of_the_key_replaces_only_its_own_action(
    world: World, action: str
) -> None:
    async def instead(id: str | None) -> list[str | None]:
        assert await world.cancel(id) is not None
        return await world.enqueue(Enqueue(action, {"v": 3}, **QUEUED))

    def start() -> list[Decision]:
        id = world.add({"v": 1}, **QUEUED)
        return [world.enqueue(Enqueue("a", {"v": 2}, coalesce="latest", **QUEUED)), instead(id)]

    def check(latest: list[str | None], others: list[str | None]) -> bool:
        (waits,) = world.collection.find({"status": "queued"})
        if latest[0] == waits["_id"]:
            assert (waits["action"], waits["data"]) == ("a", {"v": 2})
        elif others[0] == waits["_id"]:
            assert (waits["action"], waits["data"]) == (action, {"v": 3})
        return latest[0] is None

    assert set(world.play(start, check)) == ({False} if action == "a" else {True, False})


def test_a_job_added_while_a_run_of_its_key_completes_is_never_swallowed(world: World) -> None:
    def start() -> list[Decision]:
        world.add({"v": 1}, **QUEUED)
        return [world.enqueue(Enqueue("a", {"v": 2}, **QUEUED)), world.end(world.claim_one(), "complete")]

    def check(ids: list[str | None], outcome: Any) -> None:
        assert outcome == Completed()
        assert world.stored(ids[0])["status"] == "queued"
        assert world.stored(ids[0])["data"] == {"v": 2}

    world.play(start, check)


def test_in_the_default_scope_a_key_is_refused_while_its_run_is_on_and_only_then(world: World) -> None:
    def start() -> list[Decision]:
        world.add(**BOTH)
        return [world.enqueue(Enqueue("a", **BOTH)), world.end(world.claim_one(), "complete")]

    def check(ids: list[str | None], outcome: Any) -> bool:
        assert outcome == Completed()
        assert world.held("queued") == (ids[0] is not None)
        return ids[0] is None  # then it was refused while the run was on, which the history has checked

    assert set(world.play(start, check)) == {True, False}


@pytest.mark.parametrize("coalesce", [None, "latest"])
def test_a_third_job_of_a_key_beside_the_start_of_its_follower_leaves_work_outstanding(
    world: World, coalesce: Any
) -> None:
    async def hand_over(claim: Claim) -> list[Claim]:
        assert await world.end(claim, "complete") == Completed()
        return await world.claim()

    def start() -> list[Decision]:
        world.add({"v": 1}, **QUEUED)
        claim = world.claim_one()
        world.add({"v": 2}, **QUEUED)
        third = Enqueue("a", {"v": 3}, coalesce=coalesce, **QUEUED)
        return [world.enqueue(third), hand_over(claim)]

    def check(ids: list[str | None], claims: list[Claim]) -> bool:
        (follower,) = claims
        waits = ids[0] not in (None, follower.job.id)
        assert world.held("queued") == waits
        assert follower.job.data == {"v": 3 if coalesce and not waits else 2}
        return waits

    assert set(world.play(start, check)) == {True, False}


@pytest.mark.parametrize("options", [BOTH, QUEUED], ids=["queued+running", "queued"])
def test_of_two_jobs_of_a_key_added_at_once_one_is_stored(world: World, options: Any) -> None:
    def start() -> list[Decision]:
        pair = Enqueue("a", **options), Enqueue("a")
        return [world.enqueue(*pair), world.enqueue(*pair)]

    def check(first: list[str | None], second: list[str | None]) -> bool:
        assert [first[0], second[0]].count(None) == 1
        assert None not in (first[1], second[1])
        assert world.held("queued") == 3
        return first[0] is None

    assert set(world.play(start, check)) == {True, False}


def test_a_follower_starts_when_its_run_has_ended_and_not_before(world: World) -> None:
    def start() -> list[Decision]:
        world.add(**QUEUED)
        running = world.claim_one()
        world.add(**QUEUED)
        world.add()
        return [world.claim(limit=2), world.end(running, "complete")]

    def check(claims: list[Claim], outcome: Any) -> int:
        assert outcome == Completed()
        assert None in [claim.job.dedupe_key for claim in claims]  # the free job is not held up
        return len(claims)

    assert set(world.play(start, check)) == {1, 2}


@pytest.mark.parametrize("options", [BOTH, QUEUED], ids=["queued+running", "queued"])
def test_of_two_sweeps_one_recovers_the_run(world: World, options: Any) -> None:
    def start() -> list[Decision]:
        expired_run(world, **options)
        return [world.recover(), world.recover()]

    def check(first: Any, second: Any) -> int:
        assert first.handled + second.handled == 1
        assert world.held("queued") == 1
        return int(first.handled)

    assert set(world.play(start, check)) == {0, 1}


@pytest.mark.parametrize("action", ["a", "b"])
def test_of_two_sweeps_one_ends_the_run_whose_place_a_follower_has(world: World, action: str) -> None:
    def start() -> list[Decision]:
        expired_run(world, **QUEUED)
        world.add(action=action, **QUEUED)
        return [world.recover(), world.recover()]

    def check(first: Any, second: Any) -> int:
        assert first.handled + second.handled == 1
        assert world.held("superseded" if action == "a" else "failed") == 1
        return int(first.handled)

    assert set(world.play(start, check)) == {0, 1}


@pytest.mark.parametrize("options", [BOTH, QUEUED], ids=["queued+running", "queued"])
def test_a_replay_beside_an_enqueue_of_its_key_waits_or_is_told_who_does(world: World, options: Any) -> None:
    def start() -> list[Decision]:
        id = world.add(**options)
        world.do(world.end(world.claim_one(), "fail_fatal"))
        return [world.retry(id), world.enqueue(Enqueue("a", **options))]

    def check(retried: Any, ids: list[str | None]) -> bool:
        assert world.held("queued") == 1
        assert retried == (Retried() if ids[0] is None else KeyBusy(str(ids[0])))
        return bool(retried)

    assert set(world.play(start, check)) == {True, False}


def test_of_two_replays_one_puts_the_job_back(world: World) -> None:
    def start() -> list[Decision]:
        id = world.add(**BOTH)
        world.do(world.end(world.claim_one(), "fail_fatal"))
        return [world.retry(id), world.retry(id)]

    def check(*retried: Any) -> int:
        assert set(retried) == {Retried(), NotFailed(Status.QUEUED)}
        return retried.index(Retried())

    assert set(world.play(start, check)) == {0, 1}


@pytest.mark.parametrize(("held", "asked"), [(BOTH, QUEUED), (QUEUED, BOTH)], ids=["held by both", "held by queued"])
def test_a_key_is_refused_to_the_other_scope_while_its_run_is_on_and_only_then(
    world: World, held: Any, asked: Any
) -> None:
    async def enqueue() -> Any:
        try:
            return await world.enqueue(Enqueue("a", **asked))
        except DedupeScopeConflictError as conflict:
            return conflict

    def start() -> list[Decision]:
        world.add(**held)
        return [enqueue(), world.end(world.claim_one(), "complete")]

    def check(answer: Any, outcome: Any) -> bool:
        assert outcome == Completed()
        refused = isinstance(answer, DedupeScopeConflictError)
        assert world.held("queued") == (not refused)
        return refused

    assert set(world.play(start, check)) == {True, False}
