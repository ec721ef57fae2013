"""The documents of the extension and its updates, as the floor sends them.

Spelled out once more on purpose. Taken from the library, a mistake there would be on both sides and show nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.documents import Document, new
from benchmarks.sizes import ACTION, DATA

LEASE = timedelta(seconds=300)
"""The library's own default."""

BY_ID = "_id_"
ORDER = [("durable.priority", 1), ("durable.run_at", 1), ("_id", 1)]
ADDED: list[Document] = [
    {"$match": {"operationType": "insert", "fullDocument.status": "queued"}},
    {"$project": {"_id": 1, "documentKey._id": 1, "fullDocument.action": 1}},
]


def new_job(action: str = ACTION, data: Document = DATA, priority: int = 0) -> Document:
    """A job of the extension that waits and is due."""
    plain = new(action, data)
    durable = {
        "priority": priority,
        "run_at": plain["created_at"],
        "attempt": 0,
        "max_attempts": 3,
        "backoff": {"kind": "exponential", "delay": 1.0, "max_delay": 60.0},
    }
    return {**plain, "durable": durable}


def due(now: datetime, action: str) -> Document:
    """Which jobs may start."""
    return {"status": "queued", "action": action, "durable.run_at": {"$lte": now}}


def claim(ids: Sequence[str], token: str, now: datetime) -> tuple[Document, Document]:
    """Starts those of some jobs that are still queued and due."""
    started = {
        "status": "running",
        "started_at": now,
        "updated_at": now,
        "durable.token": token,
        "durable.lease_expires_at": now + LEASE,
    }
    still_due = {"_id": {"$in": list(ids)}, "status": "queued", "durable.run_at": {"$lte": now}}
    return still_due, {"$set": started, "$inc": {"durable.attempt": 1}}


def run_of(ids: Sequence[str], token: str) -> Document:
    """The fence around a claim's jobs."""
    return {"_id": {"$in": list(ids)}, "status": "running", "durable.token": token}


def completed() -> Document:
    """The update of an end."""
    now = datetime.now(UTC)
    return {
        "$set": {"status": "completed", "finished_at": now, "updated_at": now, "error": None},
        "$unset": {"durable.lease_expires_at": ""},
    }
