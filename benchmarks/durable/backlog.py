"""What a claim costs where much else is stored, beside the same claim where there is little.

The jobs that are claimed are stored just before and deleted right after, so that every claim finds the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

from benchmarks.documents import Document
from benchmarks.durable.documents import new_job
from benchmarks.durable.place import Place
from benchmarks.durable.report import Line, line
from benchmarks.durable.sizes import CLAIMED, Sizes
from benchmarks.pairs import Sample, alternate
from benchmarks.report import Target
from benchmarks.sizes import ACTION, SampleError
from durabl_ext import MongoJobQueue

FLAT = Target("at most", 1.1)

OTHER_ACTIONS = 50
PRIORITIES = 10


def backlog(place: Place, sizes: Sizes) -> Iterator[Line]:
    """Takes the pairs: the large backlog beside the small one, then the small one with ended jobs beside it."""
    with ExitStack() as stack:
        small, large, ended = (stack.enter_context(place.collection()) for _ in range(3))
        place.db.drop_collection(large)  # indexes are made at the end: filling is three times as fast
        place.db.drop_collection(ended)
        place.fill(small, (_other(number) for number in range(sizes.small)))
        place.fill(large, (_other(number) for number in range(sizes.large)))
        place.fill(ended, (_other(number) for number in range(sizes.small)))
        place.fill(ended, (_ended(number) for number in range(sizes.ended)))
        for name in (large, ended):
            place.index(name)
        # What was filled is written to the disk now, and not while claims are timed.
        place.db.client.admin.command("fsync")
        for measure, name in (
            (f"claim, {sizes.large:,} queued", large),
            (f"claim, {sizes.ended:,} ended", ended),
        ):
            pairs = alternate(_sample(place, sizes, name, small), *sizes.pairs["backlog"], warm_up=True)
            yield line(measure, "sync", "ms", f"{sizes.small:,} queued", pairs, FLAT, better="less")


def _sample(place: Place, sizes: Sizes, ours: str, other: str) -> Sample:
    backends = {"ours": MongoJobQueue(place.db, collection=ours), "loop": MongoJobQueue(place.db, collection=other)}
    names = {"ours": ours, "loop": other}
    return lambda side: [_claim(place, names[side], backends[side]) for _ in range(sizes.claims)]


def _claim(place: Place, name: str, backend: MongoJobQueue) -> float:
    """Milliseconds of one claim."""
    wanted = [new_job() for _ in range(CLAIMED)]
    place.fill(name, wanted)
    began = time.perf_counter()
    claims = backend.claim([ACTION], CLAIMED, lease=60)
    took = time.perf_counter() - began
    if [claim.job.id for claim in claims] != [job["_id"] for job in wanted]:
        raise SampleError(f"of {len(wanted)} jobs {len(claims)} were claimed, or in another order")
    place.db[name].delete_many({"_id": {"$in": [job["_id"] for job in wanted]}})
    return took * 1_000


def _other(number: int) -> Document:
    """A queued job that is not to be claimed: of another action, or of this one and less urgent."""
    other = number % OTHER_ACTIONS
    if other == 0:
        return new_job(ACTION, {"number": number}, 1 + number // OTHER_ACTIONS % PRIORITIES)
    return new_job(f"other-{other}", {"number": number}, number // OTHER_ACTIONS % PRIORITIES - PRIORITIES // 2)


def _ended(number: int) -> Document:
    """A job that has ended, of the action that is claimed; one in ten has failed."""
    now = datetime.now(UTC)
    job = new_job(ACTION, {"number": number})
    job["durable"] |= {"attempt": 1, "token": f"{number:032x}"}
    times = {"started_at": now, "finished_at": now}
    if number % 10:
        return {**job, **times, "status": "completed"}
    job["durable"]["failure_kind"] = "fatal"
    return {**job, **times, "status": "failed", "error": {"name": "ValueError", "message": "no", "stack": ""}}
