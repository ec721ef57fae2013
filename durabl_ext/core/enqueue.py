"""Enqueue: what becomes of a request whose key may be taken.

The indexes decide, never a read: a job is inserted, and only what they refuse is looked at. Inside a caller's
transaction it is the other way round, since there a refused insert has already aborted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pymongo.errors import DuplicateKeyError

from durabl_ext.core.indexes import KEY, SCOPE
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.job import new_durable
from durabl_ext.options import Dedupe, Request
from simplequeue.job import Document
from simplequeue.jobs import Jobs, Session
from simplequeue.states import Status

ROUNDS = 32
"""How often a key may change hands under an enqueue before it gives up. Each round needs a whole job to come or go
between two calls; a test with 32 producers on one key needs three."""

LIVE = (Status.QUEUED.value, Status.RUNNING.value)


async def enqueue(jobs: Jobs, requests: Sequence[Request], session: Session | None = None) -> list[str | None]:
    """Stores jobs, and gives for each its id, the id of the waiting job it was coalesced into, or None for a taken key.

    Ids and times are fixed before anything is tried, so that a second attempt stores the same job or finds it stored.

    Raises:
        DedupeScopeConflictError: A key is held in the other scope. Of the others, those before it are stored.
    """
    now = await jobs.now()
    documents = [new_durable(request, now) for request in requests]
    if session is not None:
        return [await _in_transaction(jobs, *pair, session) for pair in zip(requests, documents, strict=True)]
    refused = await jobs.insert_each(documents) if documents else set()
    return [
        await _taken(jobs, request, document) if index in refused else document["_id"]
        for index, (request, document) in enumerate(zip(requests, documents, strict=True))
    ]


async def holders(jobs: Jobs, keys: Iterable[str], session: Session | None = None) -> list[Document]:
    """Gives the queued and running jobs of some keys.

    One branch for each status, since only so does the server see that the partial indexes hold all of them.
    """
    found = {"$in": list(keys)}
    return await jobs.find(
        {"$or": [{"status": status, KEY: found} for status in LIVE]},
        fields=("_id", "action", "status", KEY, SCOPE),
        session=session,
    )


def check_scope(dedupe: Dedupe, held: Iterable[Document]) -> None:
    """Raises when a holder lives under the other scope."""
    for holder in held:
        scope = holder["durable"]["dedupe"]["scope"]
        if scope != dedupe.scope:
            raise DedupeScopeConflictError(dedupe.key, scope, dedupe.scope, str(holder["_id"]))


def blocks(dedupe: Dedupe, held: Iterable[Document]) -> bool:
    """Whether these holders leave no place for one more queued job."""
    return any(dedupe.scope == "queued+running" or holder["status"] == Status.QUEUED for holder in held)


async def coalesce(
    jobs: Jobs, request: Request, held: Iterable[Document], session: Session | None = None
) -> str | None:
    """Gives the waiting job this request's data and makes it a new request; None when it no longer waits.

    What a run has already been given never changes: only a queued job is written.
    """
    for holder in held:
        if holder["status"] == Status.QUEUED:
            now = await jobs.now()
            filter = {"_id": holder["_id"], "status": Status.QUEUED.value, SCOPE: "queued"}
            update = {
                "$set": {"data": request.data, "error": None, "updated_at": now, "durable.attempt": 0},
                "$unset": {"durable.steps": "", "durable.journal_bytes": "", "durable.failure_kind": ""},
            }
            if (await jobs.update_one(filter, update, session=session)).matched_count:
                return str(holder["_id"])
    return None


async def _taken(jobs: Jobs, request: Request, document: Document) -> str | None:
    """Settles a request that an index has refused, until the answer is true of one moment."""
    dedupe = request.dedupe
    assert dedupe is not None, "only a key can be refused"
    for _ in range(ROUNDS):
        held = await holders(jobs, (dedupe.key,))
        if any(holder["_id"] == document["_id"] for holder in held):
            return str(document["_id"])  # an earlier attempt had stored it
        check_scope(dedupe, held)
        if not blocks(dedupe, held):  # whoever held it has ended or has been claimed
            try:
                await jobs.insert_one(document)
            except DuplicateKeyError:
                continue
            return str(document["_id"])
        if not dedupe.latest:
            return None
        if (id := await coalesce(jobs, request, held)) is not None:
            return id
    raise RuntimeError(
        f"dedupe key {dedupe.key!r} changed hands {ROUNDS} times under one enqueue; nothing was stored, try again"
    )


async def _in_transaction(jobs: Jobs, request: Request, document: Document, session: Session) -> str | None:
    # A rival that commits after this transaction's snapshot makes the insert a write conflict, which the driver's
    # with_transaction runs again; a duplicate key would be final.
    if request.dedupe is not None:
        held = await holders(jobs, (request.dedupe.key,), session)
        check_scope(request.dedupe, held)
        if blocks(request.dedupe, held):
            return await coalesce(jobs, request, held, session) if request.dedupe.latest else None
    await jobs.insert_one(document, session=session)
    return str(document["_id"])
