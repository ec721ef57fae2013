"""Requests under one key while its jobs start and complete, in orders that a seed decides: none is swallowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from durabl_ext.options import Enqueue
from tests.proof.documents import must
from tests.proof.scheduler import at_random
from tests.proof.world import QUEUED, World

SEEDS = 500
AT_ONCE = 50
GROUPS = [range(first, first + AT_ONCE) for first in range(0, SEEDS, AT_ONCE)]
PRODUCERS = 3
REQUESTS = 2
LOOKS = 4
"""How often the worker looks for a job."""


@dataclass(frozen=True)
class Told:
    """What the producer of a request was told, and between which moments."""

    n: int
    latest: bool
    began: int
    ended: int
    id: str | None


async def produce(world: World, first: int, told: list[Told]) -> None:
    for n in range(first, first + REQUESTS):
        latest: Any = world.random.choice((None, "latest"))
        began = world.history.now
        (id,) = await world.enqueue(Enqueue("a", {"n": n}, coalesce=latest, **QUEUED))
        told.append(Told(n, bool(latest), began, world.history.now, id))


async def work(world: World) -> None:
    for _ in range(LOOKS):
        for claim in await world.claim():
            await world.end(claim, "complete")


def runs(world: World) -> list[tuple[int, int]]:
    """For each run the moment at which it began, and whose data it was given."""
    began: dict[str, tuple[int, int]] = {}
    for moment, jobs in enumerate(world.history.moments):
        for job in jobs.values():
            if job["status"] == "running":
                began.setdefault(job["durable"]["token"], (moment, job["data"]["n"]))
    return list(began.values())


def judge(told: Sequence[Told], runs: Sequence[tuple[int, int]]) -> None:
    """After every request comes a run; after one for the latest, a run of its data or of no older one's."""
    ended = {one.n: one.ended for one in told}
    for one in told:
        later = [n for began, n in runs if began > one.began]
        must(later, "a request was swallowed: no run came after it", one, runs)
        if one.latest:
            no_older = [n for n in later if ended[n] > one.began or n == one.n]
            must(no_older, "a request for the latest was swallowed: only older data was run after it", one, runs)


def play(world: World, seed: int) -> list[str | None]:
    """Lets producers and a worker meet as the seed says, and gives what the producers were told."""
    world.begin(seed)
    told: list[Told] = []
    try:
        with world.ids():
            producers = [produce(world, producer * REQUESTS, told) for producer in range(PRODUCERS)]
            at_random([*producers, work(world)], world.random)
            world.drain()
            judge(told, runs(world))
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return [one.id for one in told]


@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_no_request_made_while_jobs_of_its_key_start_and_complete_is_swallowed(world: World, seeds: range) -> None:
    ids = [play(world, seed) for seed in seeds]
    assert any(None in some for some in ids), "no key was ever taken"
    assert any(len(set(some)) < len(some) - some.count(None) for some in ids), "none was ever coalesced"
