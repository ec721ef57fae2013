"""A job, as the application sees it and as it is stored.

Here lives the shape of the document and nothing that moves it. A plain job has exactly nine root fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from uuid6 import uuid7

from simplequeue.failure import StoredError
from simplequeue.states import Status

Document = dict[str, Any]

FIELDS = frozenset(
    ("_id", "action", "status", "error", "created_at", "updated_at", "started_at", "finished_at", "data"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """Shows a job as it was when it was read; it does not follow later changes.

    Attributes:
        id: A UUIDv7 string. Ids sort by the time they were made.
        action: What is to be done, in the application's words.
        status: Where the job stands.
        error: None, or ``{"name", "message", "stack"}`` of what its handler raised.
        created_at: When it was added.
        updated_at: When it was last written.
        started_at: When it was claimed; None before.
        finished_at: When it ended; None before.
        data: The application's own fields.

    All times are time zone-aware, in UTC, with milliseconds.
    """

    id: str
    action: str
    status: Status
    error: StoredError | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    data: dict[str, Any]
    _beyond: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def document(self) -> Document:
        """The stored document, the fields of the extension included where the job has them."""
        return {
            "_id": self.id,
            "action": self.action,
            "status": self.status.value,
            "error": self.error,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "data": self.data,
            **self._beyond,
        }


def new_document(action: str, data: dict[str, Any], now: datetime) -> Document:
    """Makes the document of a new job; action and data have been checked."""
    return new_jobs([(action, data)], now)[0].document


def new_jobs(checked: Sequence[tuple[str, dict[str, Any]]], now: datetime) -> list[Job]:
    """Makes new jobs, in the order of pairs of action and data, which have been checked."""
    return [Job(str(uuid7()), action, Status.QUEUED, None, now, now, None, None, data) for action, data in checked]


def job_from(document: Mapping[str, Any]) -> Job:
    """Reads a stored document.

    A field that some other program left out reads as None, so that one such document does not stop what reads many.
    """
    beyond = {name: value for name, value in document.items() if name not in FIELDS}
    return Job(
        id=document["_id"],
        action=cast(str, document.get("action")),
        status=_status(document.get("status")),
        error=document.get("error"),
        created_at=cast(datetime, document.get("created_at")),
        updated_at=cast(datetime, document.get("updated_at")),
        started_at=document.get("started_at"),
        finished_at=document.get("finished_at"),
        data=cast(dict[str, Any], document.get("data")),
        _beyond=beyond,
    )


def _status(stored: Any) -> Status:
    try:
        return Status(stored)
    except ValueError:  # of another program, or of a later version: shown as it is
        return cast(Status, stored)
