"""What the hand-written loops send, sync and async: the same documents, index and fences as the library's.

Spelled out once more on purpose. Taken from the library, a mistake there would be on both sides and show nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from uuid6 import uuid7

Document = dict[str, Any]

QUEUED: Document = {"status": "queued", "durable": None}
INDEX = "which_plain_job_is_next"
INDEX_KEYS = [("status", 1), ("_id", 1)]
ADDED: list[Document] = [{"$match": {"operationType": "insert", "fullDocument.status": "queued"}}]
POLL = 60.0
"""Seconds between looks without an event, the library's own default."""


def new(action: str, data: Document) -> Document:
    """A job that waits."""
    now = datetime.now(UTC)
    return {
        "_id": str(uuid7()),
        "action": action,
        "status": "queued",
        "error": None,
        "created_at": now,
        "updated_at": now,
        "started_at": None,
        "finished_at": None,
        "data": data,
    }


def new_ones(jobs: Iterable[tuple[str, Document]]) -> list[Document]:
    """Jobs that wait, in the order given."""
    return [new(action, data) for action, data in jobs]


def started() -> Document:
    """The update of a claim."""
    now = datetime.now(UTC)
    return {"$set": {"status": "running", "updated_at": now, "started_at": now}}


def this_run(job: Document) -> Document:
    """The fence around the end of a run: it has to be the one that this process claimed."""
    return {"_id": job["_id"], "status": "running", "started_at": job["started_at"]}


def ended(error: Exception | None) -> Document:
    """The update of an end."""
    now = datetime.now(UTC)
    if error is None:
        return {"$set": {"status": "completed", "updated_at": now, "finished_at": now}}
    described = {"name": type(error).__name__, "message": str(error), "stack": ""}
    return {"$set": {"status": "failed", "updated_at": now, "finished_at": now, "error": described}}
