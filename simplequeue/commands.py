"""Every filter, update and index of the base layer, as functions that return plain documents.

Here lives what is sent, not when or how. The states come from the table; a filter repeats the evidence its write was
decided on, which for this layer is the status and the ``started_at`` that the claim wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simplequeue.failure import StoredError
from simplequeue.job import Document, Job
from simplequeue.states import CANCEL, CLAIM, COMPLETE, ENDED, FAIL, Move, Status

Keys = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Index:
    """An index, named after the question it answers."""

    name: str
    keys: Keys
    filter: Mapping[str, Any]
    unique: bool = False


_PLAIN_QUEUED = {"status": Status.QUEUED.value, "durable": None}
"""Jobs the base layer may claim. Spelled so, the server sees that the partial indexes below hold all of them."""

NEXT_PLAIN_JOB = Index("which_plain_job_is_next", (("status", 1), ("_id", 1)), _PLAIN_QUEUED)
"""Without it a claim walks over every queued job of the extension: 100,000 of them cost 100,000 keys instead of 0."""

NEXT_PLAIN_JOB_OF_ACTION = Index("which_plain_job_of_an_action_is_next", (("action", 1), ("_id", 1)), _PLAIN_QUEUED)
"""Without it a listener with ``actions=`` walks over the waiting jobs of all other actions at every look."""

ENDED_BEFORE = Index(
    "which_jobs_ended_before",
    (("status", 1), ("finished_at", 1), ("action", 1)),
    {"status": {"$in": [s.value for s in ENDED]}},
)
"""Without it every batch of a sweep reads the whole collection. The status comes first, so that the ended jobs of one
status are found in order too; the server merges the four. The action comes last, so that those of one action are told
from the others without their documents: 50,000 of 4 kB each were 50,000 reads instead of none."""


def next_index(actions: Iterable[str] | None) -> Index:
    """The index a listener of these actions (None: of all) finds its jobs with."""
    return NEXT_PLAIN_JOB if actions is None else NEXT_PLAIN_JOB_OF_ACTION


def queued_plain(actions: Iterable[str] | None) -> Document:
    """Jobs that a listener of these actions (None: of all) may claim."""
    return dict(_PLAIN_QUEUED) if actions is None else {**_PLAIN_QUEUED, "action": {"$in": list(actions)}}


def claim(id: str, now: datetime) -> tuple[Document, Document]:
    """Takes a job that is queued and not the extension's."""
    return {"_id": id, **_PLAIN_QUEUED}, _moved(CLAIM, now, started_at=now)


def complete(job: Job, now: datetime) -> tuple[Document, Document]:
    """Ends a run that went well, if it is still the run that ``job`` shows."""
    return _run(COMPLETE, job), _moved(COMPLETE, now, finished_at=now)


def fail(job: Job, error: StoredError | None, now: datetime) -> tuple[Document, Document]:
    """Ends a run that raised, if it is still the run that ``job`` shows."""
    return _run(FAIL, job), _moved(FAIL, now, finished_at=now, error=error)


def cancel(id: str, now: datetime) -> tuple[Document, Document]:
    """Ends a job that is still queued."""
    return {"_id": id, "status": CANCEL.source.value}, _moved(CANCEL, now, finished_at=now)


def set_data(id: str, values: Mapping[str, Any], now: datetime) -> tuple[Document, Document]:
    """Sets single fields beneath ``data``, whatever the job's state."""
    return {"_id": id}, {"$set": {**{f"data.{key}": value for key, value in values.items()}, "updated_at": now}}


def ended_before(before: datetime) -> Document:
    """Jobs that ended at or before a time."""
    return {"status": {"$in": [status.value for status in ENDED]}, "finished_at": {"$lte": before}}


def added_plain(actions: Iterable[str] | None) -> Document:
    """The change events that mean new work for a listener of these actions (None: of all)."""
    return {"operationType": "insert", **{f"fullDocument.{name}": is_ for name, is_ in queued_plain(actions).items()}}


def _run(move: Move, job: Job) -> Document:
    return {"_id": job.id, "status": move.source.value, "started_at": job.started_at}


def _moved(move: Move, now: datetime, **fields: Any) -> Document:
    return {"$set": {"status": move.target.value, "updated_at": now, **fields}}
