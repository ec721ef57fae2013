"""A job, as the application sees it and as it is stored.

Here lives the shape of the document and nothing that moves it. A plain job has exactly nine root fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from uuid6 import uuid7

from simplequeue.failure import StoredError
from simplequeue.states import Status

Document = dict[str, Any]
J = TypeVar("J", bound="Job")

FIELDS = frozenset(
    ("_id", "action", "status", "error", "created_at", "updated_at", "started_at", "finished_at", "data"),
)


@dataclass(frozen=True)
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


def job_from(document: Mapping[str, Any]) -> Job:
    """Reads a stored document.

    A field that some other program left out reads as None, so that one such document does not stop what reads many.
    """
    return made(Job, values_from(document))


def job_of(stored: Document) -> Job:
    """Makes the job of a new document that has been stored; the dictionary becomes the job's own."""
    return made(Job, _as_values(stored, Status.QUEUED, _NOTHING_ELSE))


def values_from(document: Mapping[str, Any]) -> Document:
    """The attributes of a job as a stored document has them."""
    values = dict(document)
    beyond = _NOTHING_ELSE
    if len(values) != len(FIELDS) or not FIELDS.issuperset(values):
        beyond = {name: values.pop(name) for name in document.keys() - FIELDS}
        values = {**_NOTHING, **values}
    return _as_values(values, _status(values["status"]), beyond)


def made(kind: type[J], values: Document) -> J:
    """Makes a job of all its attributes, which become its own."""
    # Past the constructor of a frozen class, which makes a call for each field: for a batch of adds that was a third of
    # what they cost beside the driver's own work.
    job = object.__new__(kind)
    object.__setattr__(job, "__dict__", values)
    return job


def _as_values(values: Document, status: Status, beyond: Mapping[str, Any]) -> Document:
    values["id"] = values.pop("_id")
    values["status"] = status
    values["_beyond"] = beyond
    return values


def _status(stored: Any) -> Status:
    try:
        return _STATUSES[stored]
    except (KeyError, TypeError):  # of another program, or of a later version: shown as it is
        return cast(Status, stored)


_NOTHING_ELSE: Mapping[str, Any] = {}
_NOTHING = dict.fromkeys(FIELDS - {"_id"})
_STATUSES = {status.value: status for status in Status}
