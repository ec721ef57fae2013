"""What a run writes beside its work: the steps it has finished, and its log.

Both are fenced by the claim's token, and both leave the room that the end of the job needs: the server itself checks
the size of the document in the write. The journal has a budget of its own that no log can use up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bson

from durabl_ext.errors import JournalTooLarge
from durabl_ext.job import LogLine
from durabl_ext.outcomes import Appended, LeaseLost, NoRoom, NotFound
from simplequeue.failure import clip
from simplequeue.job import Document
from simplequeue.jobs import Jobs, Session, WholeRoom
from simplequeue.payload import MAX_DOCUMENT_BYTES, checked_count
from simplequeue.states import CLAIM

JOURNAL_BYTES = "durable.journal_bytes"
STEPS = "durable.steps"
ELEMENT_BYTES = 12
"""What an element of an array takes beside its value: its type, its index as text, a NUL."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job's document may gather beside its payload.

    Attributes:
        journal_soft_limit: How many encoded bytes the steps of one job may take.
        max_log_entries: How many lines of log a job keeps, the newest.
        max_log_message_bytes: What a longer line is cut to.
    """

    journal_soft_limit: int = 8_000_000
    max_log_entries: int = 1_000
    max_log_message_bytes: int = 4_000

    def __post_init__(self) -> None:
        for name in ("journal_soft_limit", "max_log_entries", "max_log_message_bytes"):
            checked_count(getattr(self, name), name)


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step, as it is in the journal.

    Attributes:
        seq: Its place, unique in the job.
        name: What the body called it.
        record: What else is kept of it.
    """

    seq: str
    name: str
    record: Document

    def document(self) -> Document:
        """The step as it is stored."""
        return {"seq": self.seq, "name": self.name, **self.record}


async def read_steps(jobs: Jobs, id: str) -> list[Document] | None:
    """Gives the steps a job has finished, oldest first; None when there is no such job."""
    document = await jobs.find_one({"_id": id}, fields=("_id", STEPS))
    return None if document is None else list((document.get("durable") or {}).get("steps", ()))


async def append_step(
    jobs: Jobs, id: str, token: str, step: Step, soft_limit: int, session: Session | None = None
) -> Appended | LeaseLost | NotFound:
    """Adds a finished step to the journal of a run.

    The answer has the step as ``read_steps`` will give it. A step that is there already is not added again: the answer
    has the one that is stored, which after a lost answer is this one, and otherwise tells the caller that its code has
    changed.

    Args:
        jobs: Where.
        id: The job.
        token: The claim's token.
        step: What has been finished.
        soft_limit: How many encoded bytes the journal may take.
        session: The transaction it is part of; None means at once.

    Raises:
        JournalTooLarge: With this step the journal, or the document, would outgrow its limit. Nothing was written.
        PyMongoError: It is not known whether it was written. Appending the same again is safe.
    """
    encoded = bson.encode(step.document(), codec_options=jobs.codec)
    stored: Document = bson.decode(encoded, codec_options=jobs.codec)
    size = len(encoded) + ELEMENT_BYTES
    filter = {
        **_run(id, token),
        f"{STEPS}.seq": {"$ne": step.seq},
        JOURNAL_BYTES: {"$not": {"$gt": soft_limit - size}},
    }
    update = {"$push": {STEPS: stored}, "$inc": {JOURNAL_BYTES: size}, "$set": {"updated_at": await jobs.now()}}
    room = WholeRoom(size + 100, MAX_DOCUMENT_BYTES)
    if size <= soft_limit and (await jobs.update_one(filter, update, room=room, session=session)).matched_count:
        return Appended(stored)
    fields = ("_id", "status", "durable.token", STEPS, JOURNAL_BYTES)
    document = await jobs.find_one({"_id": id}, fields=fields, session=session)
    if document is None:
        return NotFound()
    durable = document.get("durable") or {}
    if document["status"] != CLAIM.target or durable.get("token") != token:
        return LeaseLost()
    for earlier in durable.get("steps", ()):
        if earlier["seq"] == step.seq:
            return Appended(earlier)
    raise JournalTooLarge(id, step.name, size, int(durable.get("journal_bytes", 0)), soft_limit)


async def log(
    jobs: Jobs, id: str, token: str, lines: Sequence[LogLine], limits: Limits, session: Session | None = None
) -> Appended | LeaseLost | NoRoom:
    """Adds lines to the log of a run; the oldest make way for the newest.

    Args:
        jobs: Where.
        id: The job.
        token: The claim's token.
        lines: What to add, oldest first.
        limits: How many lines the job keeps, and what a longer one is cut to.
        session: The transaction it is part of; None means at once.

    Raises:
        PyMongoError: It is not known whether they were written; writing them again may double them.
    """
    keep, most = limits.max_log_entries, limits.max_log_message_bytes
    entries: list[Any] = [{"at": line.at, "message": clip(line.message, most)} for line in lines[-keep:]]
    size = len(bson.encode({"": entries}, codec_options=jobs.codec)) + ELEMENT_BYTES * len(entries)
    update = {"$push": {"durable.logs": {"$each": entries, "$slice": -keep}}}
    room = WholeRoom(size, MAX_DOCUMENT_BYTES)
    if (await jobs.update_one(_run(id, token), update, room=room, session=session)).matched_count:
        return Appended({})
    alive = await jobs.find_one(_run(id, token), fields=("_id",), session=session)
    return LeaseLost() if alive is None else NoRoom()


def _run(id: str, token: str) -> Document:
    return {"_id": id, "status": CLAIM.target.value, "durable.token": token}
