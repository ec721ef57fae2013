"""Every decision, broken at each of its calls in every way that a call can break, and then made again or left to its
lease. Whatever happened, all that was acknowledged ends, and ends once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

import pytest
from pymongo.errors import PyMongoError

from tests.proof.lines import Fault, Line, Stopped, faults_of
from tests.proof.scenes import SCENES, Scene
from tests.proof.scheduler import finish
from tests.proof.world import LEASE, World

STOPS = (Fault.STOP_BEFORE, Fault.STOP_AFTER)


class Then(Enum):
    """What follows. A call that comes late arrives before anything else, except where it says otherwise."""

    AGAIN = auto()
    """The caller decides again."""
    AGAIN_AND_AGAIN = auto()
    """The caller decides again, meets the same fault at the same call, and decides once more."""
    AGAIN_BEFORE_IT_ARRIVES = auto()
    """The caller has decided again when the first call arrives."""
    LAPSE = auto()
    """Nobody does anything; leases end, and a sweep finds what they leave."""
    LAPSE_BEFORE_IT_ARRIVES = auto()
    """The same, and then the call arrives."""


ONLY_LATE = (Then.AGAIN_BEFORE_IT_ARRIVES, Then.LAPSE_BEFORE_IT_ARRIVES)


def schedules(names: list[str]) -> Iterator[tuple[int, Fault, Then]]:
    """Every call, every way in which it can break, everything that may follow."""
    for call, name in enumerate(names):
        for fault in faults_of(name):
            for then in Then:
                if fault is Fault.LATE or then not in ONLY_LATE:
                    yield call, fault, then


def decide(world: World, scene: Scene, prepared: Any, plan: Mapping[int, Fault]) -> tuple[Line, bool]:
    """Makes a decision over a line with faults, and says whether it was answered."""
    line = world.line(plan)
    try:
        answer = finish(scene.decide(world, prepared, line))
    except (Stopped, PyMongoError):
        return line, False
    finally:
        world.fail_over()
    scene.answered(world, prepared, answer)
    return line, True


def run(world: World, scene: Scene, call: int, fault: Fault, then: Then) -> None:
    """Breaks one call, lets follow what follows, and judges the end."""
    world.begin(0)
    prepared = scene.prepare(world)
    line, answered = decide(world, scene, prepared, {call: fault})
    if then not in ONLY_LATE:
        line.deliver()
    if then in (Then.LAPSE, Then.LAPSE_BEFORE_IT_ARRIVES):
        world.wait(LEASE.total_seconds() + 1)
        world.do(world.recover())
    elif not answered:
        second = {call: fault} if then is Then.AGAIN_AND_AGAIN else {}
        again, answered = decide(world, scene, prepared, second)
        again.deliver()
        if not answered:
            _, answered = decide(world, scene, prepared, {})
        assert answered, "a decision without a fault gave no answer"
    line.deliver()
    if scene.patient and fault not in STOPS and then not in (Then.LAPSE, Then.LAPSE_BEFORE_IT_ARRIVES):
        world.release_doubtful()
        runs = world.collection.count_documents({"status": "running", "durable.token": {"$ne": prepared.token}})
        assert runs == 0, "a worker that lives has forgotten a run, which spends an attempt"
    world.drain()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_whatever_breaks_at_any_call_all_that_was_acknowledged_ends_once(world: World, scene: Scene) -> None:
    with world.ids():
        line, answered = decide(world, scene, scene.prepare(world), {})
        assert answered
        world.drain()
        for schedule in schedules(line.names):
            try:
                run(world, scene, *schedule)
            except Exception as error:
                error.add_note(f"{scene.name}: {line.names}, broken at {schedule}")
                raise
