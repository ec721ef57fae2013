"""Each decision in a scene in which it has all its calls to make, for what breaks them.

A scene prepares a world, decides, and says what an answer must be. A decision that got no answer is made again by its
caller, or not: the rest is the lease's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from durabl_ext.core.plans import How
from durabl_ext.errors import JournalTooLarge
from durabl_ext.options import Enqueue
from durabl_ext.outcomes import (
    Appended,
    Completed,
    FailedTerminal,
    LeaseLost,
    NotFailed,
    Released,
    Renewed,
    Retried,
    RetryScheduled,
    Settled,
    Superseded,
)
from simplequeue.states import Status
from tests.proof.lines import Line
from tests.proof.scheduler import Decision
from tests.proof.world import BOTH, LEASE, QUEUED, Claim, World

ENDINGS: tuple[How, ...] = ("complete", "complete", "fail", "fail_fatal", "release", "fail", "release", "complete")
OUTCOMES = (Completed, Completed, RetryScheduled, FailedTerminal, Released, Superseded, FailedTerminal, Completed)


def nothing(world: World) -> None:
    """Prepares nothing."""


def whatever(world: World, prepared: Any, answer: Any) -> None:
    """Takes any answer that the history accepts."""


@dataclass(frozen=True)
class Scene:
    """A decision and what belongs to it.

    Attributes:
        name: What the tests call it.
        decide: Makes the decision, over a line.
        prepare: Makes what it is about.
        answered: Judges an answer and does what its receiver would.
        patient: Whether no job may lose an attempt by an error that its worker survives.
    """

    name: str
    decide: Callable[[World, Any, Line], Decision]
    prepare: Callable[[World], Any] = nothing
    answered: Callable[[World, Any, Any], None] = whatever
    patient: bool = False


def key(name: str, scope: str = "queued") -> Any:
    return {"dedupe_key": name, "dedupe_scope": scope}


def _hold_keys(world: World) -> None:
    world.add({"v": 1}, **key("runs"))
    world.add({"v": 2}, **key("waits"), priority=1)
    world.add({"v": 3}, **key("alone", "queued+running"), priority=2)
    world.claim_one()


def _enqueue_many(world: World, prepared: Any, line: Line) -> Decision:
    return world.enqueue(
        Enqueue("a", {"v": 4}),
        Enqueue("a", {"v": 5}, **key("runs")),
        Enqueue("a", {"v": 6}, **key("waits")),
        Enqueue("a", {"v": 7}, coalesce="latest", **key("waits")),
        Enqueue("a", {"v": 8}, **key("alone", "queued+running")),
        Enqueue("a", {"v": 9}, **key("free", "queued+running")),
        Enqueue("a", {"v": 10}, **key("free", "queued+running")),
        line=line,
    )


def _block_a_key(world: World) -> Claim:
    world.add(**QUEUED)
    running = world.claim_one()
    world.add(priority=-1, **QUEUED)
    world.do(world.add_plain({"v": 1}))
    world.add({"v": 2}, max_attempts=1)
    world.add({"v": 3}, **key("other", "queued+running"))
    world.add({"v": 4}, priority=1)
    return running


def _complete(world: World, running: Claim, claims: list[Claim]) -> None:
    assert running.token not in {claim.token for claim in claims}
    for claim in claims:
        assert world.do(world.end(claim, "complete")) == Completed()


def _complete_one(world: World, prepared: Any, claim: Claim | None) -> None:
    if claim is not None:
        assert world.do(world.end(claim, "complete")) == Completed()


def _run_a_mix(world: World) -> list[Claim]:
    for n in range(5):
        world.add({"v": n})
    world.add(**key("x"))
    world.add(**key("y"))
    claims = world.do(world.claim(limit=7))
    world.add()
    claims += world.do(world.claim())
    world.add(**key("x"))
    world.add(action="b", **key("y"))
    return claims


def _settle_a_mix(world: World, claims: list[Claim], line: Line) -> Decision:
    return world.settle(*[claim.ending(how) for claim, how in zip(claims, ENDINGS, strict=True)], line=line)


def _ended_as_asked(world: World, claims: list[Claim], outcomes: list[Any]) -> None:
    lost = {LeaseLost} if world.expired else set()
    for outcome, expected in zip(outcomes, OUTCOMES, strict=True):
        assert type(outcome) in {expected} | lost, outcomes


def _run_two(world: World) -> list[Claim]:
    world.add()
    world.add()
    return world.do(world.claim(limit=2))


def _completed(world: World, claims: list[Claim], outcomes: list[Any]) -> None:
    assert {*outcomes} <= {Completed(), LeaseLost() if world.expired else Completed()}


def _end_before_others(world: World) -> list[Claim]:
    world.add(**key("runs"))
    world.add(max_attempts=1)
    world.add(**key("x"))
    claims = world.do(world.claim(limit=3))
    world.add(priority=-1, **key("runs"))
    world.add({"v": 1}, **key("x"))
    world.do(world.add_plain({"v": 2}))
    world.add({"v": 3}, priority=1)
    return claims


def _turn(*ways: How) -> Callable[[World, list[Claim], Line], Decision]:
    return lambda world, claims, line: world.turn(
        *[claim.ending(how) for claim, how in zip(claims[1:], ways, strict=True)], limit=2, line=line
    )


def _turned(*expected: type[Settled]) -> Callable[[World, list[Claim], Any], None]:
    def turned(world: World, claims: list[Claim], answer: Any) -> None:
        outcomes, started = answer
        if outcomes is not None:
            for outcome, kind in zip(outcomes, expected, strict=True):
                assert isinstance(outcome, (kind, LeaseLost) if world.expired else kind), outcomes
        assert not {claim.job.id for claim in started} & {claim.job.id for claim in claims}
        for claim in started:
            assert world.do(world.end(claim, "complete")) == Completed()

    return turned


def _run_three(world: World) -> list[Claim]:
    world.add()
    gone = world.claim_one()
    world.wait(LEASE.total_seconds() + 1)
    world.do(world.recover())
    world.add()
    world.add()
    return [gone, *world.do(world.claim()), *world.do(world.claim())]


def _renewed(world: World, claims: list[Claim], answers: list[Any]) -> None:
    kinds = [type(answer) for answer in answers]
    assert kinds == [LeaseLost, Renewed, Renewed] or (world.expired and set(kinds) == {LeaseLost})


def _let_runs_expire(world: World) -> None:
    world.do(world.add_plain())
    world.add(max_attempts=1)
    world.add()
    world.add(**key("x"))
    world.add(**key("y"))
    assert len(world.do(world.claim(limit=5))) == 5
    world.add(**key("x"))
    world.add(action="b", **key("y"))
    world.wait(LEASE.total_seconds() + 1)


def _fail(world: World) -> str | None:
    id = world.add(**BOTH)
    world.do(world.end(world.claim_one(), "fail_fatal"))
    return id


def _fail_beside_another(world: World) -> str | None:
    id = _fail(world)
    world.add(**BOTH)
    return id


def _retried(world: World, id: str | None, answer: Any) -> None:
    assert answer in (Retried(), NotFailed(Status.QUEUED))


def _busy(world: World, id: str | None, answer: Any) -> None:
    assert answer.holder != id
    assert world.status(id) == "failed"


def _journal_one(world: World) -> Claim:
    world.add()
    claim = world.claim_one()
    world.do(world.append(claim, "0", "first"))
    return claim


def _journaled(world: World, claim: Claim, answer: Any) -> None:
    if world.expired:
        assert answer in (LeaseLost(), Appended({"seq": "1", "name": "step", "by": claim.token, "result": "second"}))
    else:
        assert answer.stored["result"] == "second"
        assert [step["seq"] for step in world.stored(claim.job.id)["durable"]["steps"]] == ["0", "1"]
        assert world.do(world.end(claim, "complete")) == Completed()


def _unjournaled(world: World, claim: Claim, answer: Any) -> None:
    assert isinstance(answer, LeaseLost if world.expired and answer == LeaseLost() else JournalTooLarge)
    assert len(world.stored(claim.job.id)["durable"]["steps"]) == 1


def _journal_as_lost(world: World) -> Claim:
    claim = _journal_one(world)
    world.wait(LEASE.total_seconds() + 1)
    world.do(world.recover())
    world.wait(60)
    newer = world.claim_one()
    assert world.do(world.append(newer, "1", "newer")).stored["by"] == newer.token  # type: ignore[union-attr]  # it has
    return claim


def _is_lost(world: World, claim: Claim, answer: Any) -> None:
    assert answer == LeaseLost()


def _logged(world: World, claim: Claim, answer: Any) -> None:
    assert answer == Appended({}) or (world.expired and answer == LeaseLost())


def _claim_or_enqueue(options: Any) -> Callable[[World, Any, Line], Decision]:
    return lambda world, prepared, line: world.claim_or_enqueue(Enqueue("a", {"v": 0}, **options), line=line)


SCENES = (
    Scene("enqueue", lambda world, _, line: world.enqueue(Enqueue("a", {"v": 1}), line=line)),
    Scene("enqueue many under keys", _enqueue_many, _hold_keys),
    Scene("claim", lambda world, _, line: world.claim(limit=3, line=line), _block_a_key, _complete, patient=True),
    Scene("claim or enqueue without a key", _claim_or_enqueue({}), nothing, _complete_one),
    Scene("claim or enqueue a free key", _claim_or_enqueue(BOTH), nothing, _complete_one),
    Scene("claim or enqueue behind a run", _claim_or_enqueue(key("runs")), _hold_keys, _complete_one),
    Scene("claim or enqueue a latest", _claim_or_enqueue({**key("waits"), "coalesce": "latest"}), _hold_keys),
    Scene("settle a mix", _settle_a_mix, _run_a_mix, _ended_as_asked),
    Scene(
        "settle completions",
        lambda world, claims, line: world.settle(*[claim.ending("complete") for claim in claims], line=line),
        _run_two,
        _completed,
    ),
    Scene(
        "settle completions and claim",
        _turn("complete", "complete"),
        _end_before_others,
        _turned(Completed, Completed),
    ),
    Scene("settle a mix and claim", _turn("fail", "release"), _end_before_others, _turned(FailedTerminal, Superseded)),
    Scene("heartbeat", lambda world, claims, line: world.heartbeat(*claims, line=line), _run_three, _renewed),
    Scene("recover", lambda world, _, line: world.recover(line=line), _let_runs_expire),
    Scene(
        "journal", lambda world, claim, line: world.append(claim, "1", "second", line=line), _journal_one, _journaled
    ),
    Scene(
        "journal that is full",
        lambda world, claim, line: world.append(claim, "1", "x" * 100, limit=200, line=line),
        _journal_one,
        _unjournaled,
    ),
    Scene(
        "journal of a lost run",
        lambda world, claim, line: world.append(claim, "2", "late", line=line),
        _journal_as_lost,
        _is_lost,
    ),
    Scene("log", lambda world, claim, line: world.log(claim, "line", line=line), _journal_one, _logged),
    Scene("retry", lambda world, failed, line: world.retry(failed, line=line), _fail, _retried),
    Scene(
        "retry of a busy key", lambda world, failed, line: world.retry(failed, line=line), _fail_beside_another, _busy
    ),
)
