"""Claim or enqueue: a caller runs a job itself, unless its key is taken; then one may wait behind the run.

The indexes decide here too. What is read before only spares a round trip: whoever loses the race between the two is
told by the insert.
"""

from __future__ import annotations

from collections.abc import Iterable

from durabl_ext.core.claim import Terms
from durabl_ext.core.enqueue import ROUNDS, check_scope, coalesce, holders, replaceable
from durabl_ext.job import DurableJob, durable_from, new_durable
from durabl_ext.options import Request
from simplequeue.job import Document
from simplequeue.jobs import Jobs
from simplequeue.states import CLAIM, Status


async def claim_or_enqueue(jobs: Jobs, request: Request, terms: Terms) -> DurableJob | None:
    """Stores a job that already runs under the token and gives it, or leaves the work to others and gives None.

    Without a key, and under a key that nobody holds, the job runs. Under a key that is held:

    * scope ``queued+running``: nothing is stored.
    * scope ``queued``, a run and nothing waiting: a job is stored that waits.
    * scope ``queued``, something waiting: nothing is stored; with ``coalesce="latest"`` what waits becomes this request
      if it is of the same action.

    Raises:
        DedupeScopeConflictError: The key is held in the other scope.
        PyMongoError: The server could not be reached, or refused. A run that was stored all the same is recovered
            like any whose process died.
    """
    now = await jobs.now()
    waiting = new_durable(request, now)
    running = _started(waiting, terms)
    if request.dedupe is None:
        await jobs.insert_one(running)
        return durable_from(running)
    for _ in range(ROUNDS):
        held = await holders(jobs, (request.dedupe.key,))
        check_scope(request.dedupe, held)
        if not held:
            if not await jobs.insert_each([running]):
                return durable_from(running)
        elif request.dedupe.scope == "queued+running":
            return None
        elif not _in(held, Status.QUEUED):
            if not await jobs.insert_each([waiting]):
                return None
        elif (replaced := replaceable(request, held)) is None or await coalesce(jobs, request, replaced) is not None:
            return None
    raise RuntimeError(
        f"dedupe key {request.dedupe.key!r} changed hands {ROUNDS} times under one call; nothing was stored, try again"
    )


def _in(held: Iterable[Document], status: Status) -> bool:
    return any(holder["status"] == status for holder in held)


def _started(waiting: Document, terms: Terms) -> Document:
    """The same job, as if it had been claimed the moment it was added."""
    now = waiting["created_at"]
    durable = {**waiting["durable"], "run_at": now, "attempt": 1, "token": terms.token}
    return {
        **waiting,
        "status": CLAIM.target.value,
        "started_at": now,
        "durable": {**durable, "lease_expires_at": now + terms.lease},
    }
