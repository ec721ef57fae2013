"""What became of a claim, as values to branch on.

``match`` them exhaustively; only what cannot be handled where it happens is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from simplequeue.states import Status


@dataclass(frozen=True, slots=True)
class Completed:
    """The run is completed."""


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """The run failed and the job is queued again, due at ``run_at``."""

    run_at: datetime


@dataclass(frozen=True, slots=True)
class FailedTerminal:
    """The job has failed for good."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """The job has ended since a job of the same action waits under its key and covers its work."""


@dataclass(frozen=True, slots=True)
class Released:
    """The job is queued again and the attempt does not count."""


@dataclass(frozen=True, slots=True)
class AlreadyTerminal:
    """The job had ended before, in this status; nothing was changed."""

    status: Status


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The claim is no longer this one's: the job was recovered, and perhaps claimed by another. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no such job."""

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease now ends at ``until``."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Appended:
    """The journal has this step, or the log its lines; ``stored`` is the step as it is there."""

    stored: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The job's document has no room for more lines beside what its end needs; they are dropped."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The failed job is queued again. The only one of the four outcomes of a retry that is true."""


@dataclass(frozen=True, slots=True)
class KeyBusy:
    """The job stays failed: its key is held by the job ``holder``."""

    holder: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class NotFailed:
    """The job was left alone: it is in this status."""

    status: Status

    def __bool__(self) -> bool:
        return False


Settled = Completed | RetryScheduled | FailedTerminal | Superseded | Released | AlreadyTerminal | LeaseLost | NotFound
"""What ``settle`` gives."""
