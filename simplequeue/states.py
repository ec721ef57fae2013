"""The states of a job and every move between them.

Here lives the one table that filters, updates, the documentation's diagram and the tests derive from. A move that
is not in it cannot be written. Nothing here knows of a database.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Status(StrEnum):
    """Says where a job stands.

    * ``queued``: added, and nobody has it. Left by a claim, or by a cancel.
    * ``running``: one worker has claimed it. The base layer leaves it only by that worker's word; a job whose process
      died stays here.
    * ``completed``, ``failed``, ``cancelled``: ended, kept until swept.
    * ``superseded``: ended because a newer job of the same key covers its work. Only the extension writes it.
    """

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Move:
    """One row of the table: who takes a job from where to where."""

    name: str
    source: Status
    target: Status
    layer: Literal["base", "extension"]


CLAIM = Move("claim", Status.QUEUED, Status.RUNNING, "base")
CANCEL = Move("cancel", Status.QUEUED, Status.CANCELLED, "base")
COMPLETE = Move("complete", Status.RUNNING, Status.COMPLETED, "base")
FAIL = Move("fail", Status.RUNNING, Status.FAILED, "base")
RETRY = Move("retry", Status.RUNNING, Status.QUEUED, "extension")
RELEASE = Move("release", Status.RUNNING, Status.QUEUED, "extension")
RECOVER = Move("recover", Status.RUNNING, Status.QUEUED, "extension")
SUPERSEDE = Move("supersede", Status.RUNNING, Status.SUPERSEDED, "extension")
REPLAY = Move("replay", Status.FAILED, Status.QUEUED, "extension")

MOVES = (CLAIM, CANCEL, COMPLETE, FAIL, RETRY, RELEASE, RECOVER, SUPERSEDE, REPLAY)
ENDED = tuple(status for status in Status if status not in (Status.QUEUED, Status.RUNNING))
