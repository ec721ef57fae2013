"""Several workers at one queue: who meets others looks elsewhere, and the most urgent jobs stay first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durabl_ext import AsyncMongoJobQueue, Enqueue
from durabl_ext.core import claim as claiming
from durabl_ext.core.candidates import HEAD, Reach
from durabl_ext.core.claim import Claimed
from tests.core.conftest import LEASE, Core

LAST = Reach(4, lambda among, count: list(among[len(among) - count :]))
"""Picks those that are furthest from the head."""


def claimed(core: Core, *actions: str, limit: int, reach: Reach = HEAD) -> Claimed:
    terms = claiming.Terms(next(core.tokens), LEASE, {})
    wants = dict.fromkeys(actions or ("a",), limit)
    result: Claimed = core.cell.do(claiming.claim(core.cell.jobs, wants, limit, terms, reach))
    return result


def ids(result: Claimed) -> list[str]:
    return [job.id for job in result.jobs]


def test_a_claim_that_looks_further_picks_among_so_many_times_as_many(core: Core) -> None:
    added = core.enqueue_many(*[Enqueue("a")] * 20)
    assert ids(claimed(core, limit=3, reach=LAST)) == added[9:12]
    assert ids(claimed(core, limit=3)) == added[:3]


def test_a_claim_that_looks_further_takes_the_more_urgent_ones_first(core: Core) -> None:
    low = core.enqueue_many(*[Enqueue("a", priority=5)] * 20)
    urgent = core.enqueue_many(*[Enqueue("a", priority=-1)] * 2)
    assert ids(claimed(core, limit=5, reach=LAST)) == [*urgent, *low[15:18]]


def test_a_claim_that_looks_further_takes_all_there_is_of_the_last_ones(core: Core) -> None:
    added = core.enqueue_many(*[Enqueue("a")] * 3, *[Enqueue("b")] * 2)
    assert ids(claimed(core, "a", "b", limit=6, reach=LAST)) == added


def test_where_nobody_can_start_what_is_left_a_claim_that_looks_further_ends_as_well(
    core: Core, monkeypatch: Any
) -> None:
    core.enqueue_many(*[Enqueue("a")] * 12)
    takes = 0

    async def too_late(jobs: Any, found: Sequence[Any], *rest: Any) -> Claimed:
        nonlocal takes
        takes += 1
        return Claimed([], lost=tuple(job["_id"] for job in found))

    monkeypatch.setattr(claiming, "take", too_late)
    assert ids(claimed(core, limit=3, reach=Reach(4, lambda among, count: list(among[takes : takes + count])))) == []
    assert takes <= claiming.OUTRUNS + 2


def beyond(backend: AsyncMongoJobQueue) -> int:
    return backend._reach


def test_a_worker_looks_further_where_others_were_quicker_and_comes_back(core: Core, monkeypatch: Any) -> None:
    backend, rival = (AsyncMongoJobQueue.on(core.cell.jobs) for _ in range(2))
    core.enqueue_many(*[Enqueue("a")] * 200)
    take, race = claiming.take, True

    async def with_a_rival(jobs: Any, found: Any, *rest: Any) -> Claimed:
        nonlocal race
        if race:
            race = False
            assert len(await rival.claim(["a"], 2, lease=300)) == 2
            race = True
        return await take(jobs, found, *rest)

    with monkeypatch.context() as racing:
        racing.setattr(claiming, "take", with_a_rival)
        assert len(core.cell.do(backend.claim(["a"], 4, lease=300))) == 2
    assert beyond(backend) == 2
    for _ in range(8):
        core.cell.do(backend.claim(["a"], 4, lease=300))
    assert beyond(backend) == 1


def test_jobs_that_are_cancelled_under_a_claim_do_not_disturb_the_order(core: Core, monkeypatch: Any) -> None:
    backend = AsyncMongoJobQueue.on(core.cell.jobs)
    added = core.enqueue_many(*[Enqueue("a")] * 6)
    take = claiming.take

    async def after_a_cancel(jobs: Any, found: Any, *rest: Any) -> Claimed:
        await backend.cancel(str(added[0]))
        return await take(jobs, found, *rest)

    with monkeypatch.context() as cancelling:
        cancelling.setattr(claiming, "take", after_a_cancel)
        assert [claim.job.id for claim in core.cell.do(backend.claim(["a"], 3, lease=300))] == added[1:3]
    assert beyond(backend) == 1
