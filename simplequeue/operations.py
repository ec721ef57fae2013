"""What can be done with jobs from outside their runs: add, get, update, cancel, sweep.

Decisions only, over ``Jobs``: each is written once and runs blocking, in a thread, awaited or in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import bson
from pymongo.results import DeleteResult, UpdateResult

from simplequeue import commands, payload
from simplequeue.job import Job, job_from, job_of, new_document
from simplequeue.jobs import BY_ID, Jobs, Room, Session
from simplequeue.payload import PayloadError

SWEEP_BATCH = 1_000


async def add(jobs: Jobs, action: str, data: Mapping[str, Any] | None, session: Session | None) -> Job:
    """Stores one new job."""
    checked = payload.checked_action(action), payload.checked_data(data, jobs.codec)
    document = new_document(*checked, await jobs.now())
    await jobs.insert_one(document, session=session)
    return job_of(document)


async def add_many(
    jobs: Jobs, items: Iterable[tuple[str, Mapping[str, Any] | None]], session: Session | None
) -> list[Job]:
    """Stores new jobs, in order, after all have been checked."""
    checked = payload.checked_jobs(items, jobs.codec)
    if not checked:
        return []
    now = await jobs.now()
    documents = [new_document(action, data, now) for action, data in checked]
    await jobs.insert_many(documents, session=session)
    return [job_of(document) for document in documents]


async def get(jobs: Jobs, id: object) -> Job | None:
    """Reads one job."""
    if (known := known_id(id)) is None:
        return None
    document = await jobs.find_one({"_id": known})
    return None if document is None else job_from(document)


async def update(jobs: Jobs, id: object, values: Mapping[str, Any], session: Session | None) -> UpdateResult:
    """Sets fields of one job's data, unless the job would outgrow what can still be ended."""
    checked = payload.checked_values(values, jobs.codec)
    if (known := known_id(id)) is None:
        return UpdateResult({"n": 0, "nModified": 0}, acknowledged=True)
    size = len(bson.encode(checked, codec_options=jobs.codec))
    room = Room("data", checked, size, payload.MAX_DATA_BYTES, payload.MAX_DOCUMENT_BYTES)
    result = await jobs.update_one(*commands.set_data(known, checked, await jobs.now()), room=room, session=session)
    if result.matched_count == 0 and await jobs.find_one({"_id": known}, fields=("_id",), session=session):
        raise PayloadError(
            "data",
            f"of job {known} would take more than {payload.MAX_DATA_BYTES:,} bytes with these values, or leave its "
            "document no room for the job's end",
        )
    return result


async def cancel(jobs: Jobs, id: object, session: Session | None) -> Job | None:
    """Ends one job that nobody has claimed."""
    if (known := known_id(id)) is None:
        return None
    document = await jobs.find_one_and_update(*commands.cancel(known, await jobs.now()), session=session)
    return None if document is None else job_from(document)


async def sweep(jobs: Jobs, before: datetime | None, limit: int | None) -> DeleteResult:
    """Deletes ended jobs, oldest first, in batches that repeat the condition they were read with."""
    left = None if limit is None else payload.checked_count(limit, "limit")
    now = await jobs.now()
    ended = commands.ended_before(now if before is None else payload.checked_time(before, "before"))
    await jobs.ensure_index(commands.ENDED_BEFORE)
    deleted = 0
    while True:
        size = SWEEP_BATCH if left is None else min(SWEEP_BATCH, left - deleted)
        batch = await jobs.find(ended, fields=("_id",), sort=(("finished_at", 1),), limit=size) if size else []
        if batch:
            # Left to itself the server walks over all ended jobs for the first batch: 300,000 instead of 1,000.
            result = await jobs.delete_many({"_id": {"$in": [job["_id"] for job in batch]}, **ended}, hint=BY_ID)
            deleted += result.deleted_count
        if len(batch) < SWEEP_BATCH:
            return DeleteResult({"n": deleted}, acknowledged=True)


def known_id(id: object) -> str | None:
    """Gives an id in the form it is stored in, or None for what cannot be one, which is then simply not found.

    A filter document that came in from outside in the place of an id must never reach the server.
    """
    if isinstance(id, UUID):
        return str(id)
    if not isinstance(id, str):
        return None
    try:
        return id if str(UUID(id)) == id else None
    except ValueError:
        return None
