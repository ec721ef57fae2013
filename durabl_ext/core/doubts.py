"""Claims whose answer was lost: what turns up under their token is given back.

A request that its sender gave up may still arrive. The runs it starts belong to nobody, and without this they would
wait for the end of a lease, with their keys held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from durabl_ext.core.indexes import EXPIRED
from durabl_ext.core.plans import Settlement, Uniform
from durabl_ext.core.settle import settle
from durabl_ext.job import durable_from
from simplequeue.jobs import Jobs
from simplequeue.states import RELEASE

FIELDS = (
    "_id",
    "action",
    "status",
    "created_at",
    "durable.token",
    "durable.attempt",
    "durable.max_attempts",
    "durable.dedupe",
    "durable.run_at",
)
"""All that giving back needs; the payload of a stray may be large."""


async def release_strays(jobs: Jobs, doubts: Mapping[str, Collection[Any]], uniform: Uniform) -> int:
    """Gives back the runs under some tokens that their sender has not heard of, and says how many there were.

    Args:
        jobs: Where.
        doubts: The tokens of claims whose answer was lost, each with the ids that it is known to have started.
        uniform: As for ``settle``.

    Raises:
        PyMongoError: Some may have been given back. Doing it again is safe.
    """
    found = await jobs.find(
        {"status": RELEASE.source.value, "durable.token": {"$in": list(doubts)}}, fields=FIELDS, hint=EXPIRED.name
    )
    strays = [document for document in found if document["_id"] not in doubts[document["durable"]["token"]]]
    await settle(
        jobs,
        [Settlement(durable_from(document), document["durable"]["token"], "release") for document in strays],
        uniform,
    )
    return len(strays)
