"""Enqueue: what becomes of a request whose key may be taken.

The indexes decide, never a read: a job is inserted, and only what they refuse is looked at. Inside a caller's
transaction it is the other way round, since there a refused insert has already aborted it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from pymongo.errors import DuplicateKeyError

from durabl_ext.core.indexes import KEY, SCOPE
from durabl_ext.errors import DedupeScopeConflictError
from durabl_ext.job import new_durable
from durabl_ext.options import Dedupe, Request
from simplequeue.job import Document
from simplequeue.jobs import Jobs, Session
from simplequeue.states import Status

ROUNDS = 1_000
"""How often a key may change hands under an enqueue before it gives up. Each round needs a job to come or go, or a
rival to be coalesced, between two calls, so that somebody gets on in each. Of 24 processes that did nothing but
coalesce into one job, on two cores, some needed more than 32."""

KEYS_A_LOOK = 500
"""Keys looked for together: of the longest, and named twice, they take a quarter of what a command may."""

COALESCED = "durable.coalesced"
"""How many requests a job has taken in while it waited; absent for none."""

LIVE = (Status.QUEUED.value, Status.RUNNING.value)

InsertEach = Callable[[list[Document]], Awaitable[set[int]]]
"""``Jobs.insert_each``, or what does as it does."""


async def enqueue(
    jobs: Jobs, requests: Sequence[Request], session: Session | None = None, insert_each: InsertEach | None = None
) -> list[str | None]:
    """Stores jobs, and gives for each its id, the id of the waiting job it was coalesced into, or None for a taken key.

    Ids and times are fixed before anything is tried, so that a second attempt stores the same job or finds it stored.

    In a transaction an answer is true of its snapshot: a job that held a taken key then may have started, or ended,
    when the transaction commits.

    Args:
        jobs: Where.
        requests: What is asked for.
        session: The caller's session.
        insert_each: What inserts outside of a session. None means a call of its own.

    Raises:
        DedupeScopeConflictError: A key is held in the other scope; jobs of other keys may have been stored. A
            transaction stays usable.
        PyMongoError: It is not known what was stored. In a transaction, where a rival was first with a key, it has the
            label that makes the driver's ``with_transaction`` run it again.
    """
    now = await jobs.now()
    documents = [new_durable(request, now) for request in requests]
    pairs = list(zip(requests, documents, strict=True))
    if getattr(session, "in_transaction", False):
        return await _in_transaction(jobs, pairs, session)
    if insert_each is None or session is not None:
        insert_each = partial(jobs.insert_each, session=session)
    ids: list[str | None] = [document["_id"] for document in documents]
    for places in _in_turns(requests):
        turn = [pairs[place] for place in places]
        refused = await insert_each([document for _, document in turn])
        seen = await _seen(jobs, [turn[index][0] for index in refused], session)
        for index in sorted(refused):
            ids[places[index]] = await _taken(jobs, *turn[index], seen, session)
    return ids


async def holders(jobs: Jobs, keys: Iterable[str], session: Session | None = None) -> list[Document]:
    """Gives the queued and running jobs of some keys.

    One branch for each status, since only so does the server see that the partial indexes hold all of them.
    """
    found = {"$in": list(keys)}
    return await jobs.find(
        {"$or": [{"status": status, KEY: found} for status in LIVE]},
        fields=("_id", "action", "status", "updated_at", KEY, SCOPE, COALESCED),
        session=session,
    )


def check_scope(dedupe: Dedupe, held: Iterable[Document]) -> None:
    """Raises when a holder lives under the other scope.

    One whose scope another program left out holds the slot of its status only, as one of scope ``queued`` does.
    """
    for holder in held:
        scope = holder["durable"]["dedupe"].get("scope", "queued")
        if scope != dedupe.scope:
            raise DedupeScopeConflictError(dedupe.key, scope, dedupe.scope, str(holder["_id"]))


def blocks(dedupe: Dedupe, held: Iterable[Document]) -> bool:
    """Whether these holders leave no place for one more queued job."""
    return any(dedupe.scope == "queued+running" or holder["status"] == Status.QUEUED for holder in held)


def replaceable(request: Request, held: Iterable[Document]) -> Document | None:
    """Gives the waiting job that a request replaces: none of another action, since the request is not for its work."""
    latest = request.dedupe is not None and request.dedupe.latest
    for holder in held:
        if latest and holder["status"] == Status.QUEUED and holder.get("action") == request.action:
            return holder
    return None


async def coalesce(jobs: Jobs, request: Request, waiting: Document, session: Session | None = None) -> str | None:
    """Gives the waiting job this request's data and makes it a new request; None when it has changed since it was read.

    What a run has already been given never changes: only a queued job is written. The log of the request before goes
    too, since the document must have all the room of a new one.
    """
    now = await jobs.now()
    gone = ("durable.steps", "durable.journal_bytes", "durable.logs", "durable.failure_kind")
    update = {
        "$set": {"data": request.data, "error": None, "updated_at": now, "durable.attempt": 0},
        "$unset": dict.fromkeys(gone, ""),
        "$min": {"durable.run_at": request.due(now)},
        "$inc": {COALESCED: 1},
    }
    changed = (await jobs.update_one(_read(waiting), update, session=session)).matched_count
    return str(waiting["_id"]) if changed else None


def _read(waiting: Document) -> Document:
    """The evidence: that it waits and is as it was read, so that a write that comes late replaces nothing newer.

    The count tells of every other request, the time of any other change; by itself it could be the same by chance.
    """
    return {
        "_id": waiting["_id"],
        "status": Status.QUEUED.value,
        "updated_at": waiting.get("updated_at"),
        COALESCED: waiting["durable"].get("coalesced"),
    }


def _in_turns(requests: Sequence[Request]) -> list[list[int]]:
    """The places of requests, those of one key in turns of their own, so that each finds what the one before has done.

    Inserted together, the first could be refused and the second not, as the key's job was claimed in between; the first
    would then have replaced the newer data of the second.
    """
    turns: list[list[int]] = []
    before: Counter[str] = Counter()
    for place, request in enumerate(requests):
        turn = 0 if request.dedupe is None else before[request.dedupe.key]
        if request.dedupe is not None:
            before[request.dedupe.key] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(place)
    return turns


async def _seen(jobs: Jobs, refused: Sequence[Request], session: Session | None) -> dict[str, list[Document]]:
    """Gives the holders of the keys of requests that an index has refused, looked for together.

    A nightly enqueue_many of which most keys are taken made a call for each: 482 ms for 500.
    """
    keys = list({request.dedupe.key for request in refused if request.dedupe is not None})
    seen: dict[str, list[Document]] = {key: [] for key in keys}
    for begin in range(0, len(keys), KEYS_A_LOOK):
        for holder in await holders(jobs, keys[begin : begin + KEYS_A_LOOK], session):
            seen[holder["durable"]["dedupe"]["key"]].append(holder)
    return seen


async def _taken(
    jobs: Jobs,
    request: Request,
    document: Document,
    seen: Mapping[str, list[Document]],
    session: Session | None,
) -> str | None:
    """Settles a request that an index has refused, until the answer is true of one moment.

    Args:
        jobs: Where.
        request: The request.
        document: The job it would become.
        seen: Who held its key after it was refused.
        session: The caller's session.
    """
    dedupe = request.dedupe
    assert dedupe is not None, "only a key can be refused"
    for round in range(ROUNDS):
        held = await holders(jobs, (dedupe.key,), session) if round else seen[dedupe.key]
        if any(holder["_id"] == document["_id"] for holder in held):
            return str(document["_id"])  # an earlier attempt had stored it
        check_scope(dedupe, held)
        if not blocks(dedupe, held):  # whoever held it has ended or has been claimed
            try:
                await jobs.insert_one(document, session=session)
            except DuplicateKeyError:
                continue
            return str(document["_id"])
        if (waiting := replaceable(request, held)) is None:
            return None
        if (id := await coalesce(jobs, request, waiting, session)) is not None:
            return id
    raise RuntimeError(
        f"dedupe key {dedupe.key!r} changed hands {ROUNDS} times under one enqueue; nothing was stored, try again"
    )


async def _in_transaction(
    jobs: Jobs, pairs: Sequence[tuple[Request, Document]], session: Session | None
) -> list[str | None]:
    """Stores jobs in the caller's transaction, those without a key in one call."""
    if free := [document for request, document in pairs if request.dedupe is None]:
        await jobs.insert_many(free, session=session)
    return [
        document["_id"] if request.dedupe is None else await _keyed(jobs, request, request.dedupe, document, session)
        for request, document in pairs
    ]


async def _keyed(
    jobs: Jobs, request: Request, dedupe: Dedupe, document: Document, session: Session | None
) -> str | None:
    # A rival that commits after this transaction's snapshot makes the insert a write conflict, which the driver's
    # with_transaction runs again; a duplicate key would be final.
    held = await holders(jobs, (dedupe.key,), session)
    check_scope(dedupe, held)
    if blocks(dedupe, held):
        waiting = replaceable(request, held)
        return await coalesce(jobs, request, waiting, session) if waiting else None
    await jobs.insert_one(document, session=session)
    return str(document["_id"])
