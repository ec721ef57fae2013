"""Leases: how a run shows that it is alive, for all runs of a process at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from durabl_ext.outcomes import LeaseLost, Renewed
from simplequeue.jobs import BY_ID, Jobs, Write
from simplequeue.states import CLAIM


async def heartbeat(jobs: Jobs, claims: Sequence[tuple[str, str]], lease: timedelta) -> list[Renewed | LeaseLost]:
    """Renews leases, one write for each token, and says of each whether it is still this claim's.

    A lease only ever grows: one that was extended on purpose is not cut by a heartbeat that was on its way.

    Args:
        jobs: Where.
        claims: Pairs of id and token.
        lease: From now, how long the runs are taken to be alive.

    Raises:
        PyMongoError: It is not known whether they were renewed.
    """
    if not claims:
        return []
    until = await jobs.now() + lease
    ids: dict[str, list[str]] = {}
    for id, token in claims:
        ids.setdefault(token, []).append(id)
    renewal = {"$max": {"durable.lease_expires_at": until}}
    running = CLAIM.target.value
    writes = [
        Write({"_id": {"$in": own}, "status": running, "durable.token": token}, renewal, many=True)
        for token, own in ids.items()
    ]
    if (await jobs.write(writes)).matched == len(claims):
        return [Renewed(until) for _ in claims]
    asked = {"_id": {"$in": [id for id, _ in claims]}, "status": running}
    found = await jobs.find(asked, fields=("_id", "durable.token"), hint=BY_ID)
    alive = {(document["_id"], (document.get("durable") or {}).get("token")) for document in found}
    return [Renewed(until) if claim in alive else LeaseLost() for claim in claims]
