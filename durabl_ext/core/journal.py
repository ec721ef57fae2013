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
from simplequeue.jobs import Jobs, WholeRoom
from simplequeue.payload import MAX_DOCUMENT_BYTES
from simplequeue.states import CLAIM

JOURNAL_BYTES = "durable.journal_bytes"
STEPS = "durable.steps"
ELEMENT_BYTES = 12
"""What an element of an array takes beside its value: its type, its index as text, a NUL."""


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


async def append_step(jobs: Jobs, id: str, token: str, step: Step, soft_limit: int) -> Appended | LeaseLost | NotFound:
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
    if size <= soft_limit and (await jobs.update_one(filter, update, room=room)).matched_count:
        return Appended(stored)
    document = await jobs.find_one({"_id": id}, fields=("_id", "status", "durable.token", STEPS, JOURNAL_BYTES))
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
    jobs: Jobs, id: str, token: str, lines: Sequence[LogLine], *, keep: int, message_bytes: int
) -> Appended | LeaseLost | NoRoom:
    """Adds lines to the log of a run; the oldest make way for the newest.

    Args:
        jobs: Where.
        id: The job.
        token: The claim's token.
        lines: What to add, oldest first.
        keep: How many lines the job keeps.
        message_bytes: What a longer message is cut to.

    Raises:
        PyMongoError: It is not known whether they were written; writing them again may double them.
    """
    entries: list[Any] = [{"at": line.at, "message": clip(line.message, message_bytes)} for line in lines[-keep:]]
    size = len(bson.encode({"": entries}, codec_options=jobs.codec)) + ELEMENT_BYTES * len(entries)
    update = {"$push": {"durable.logs": {"$each": entries, "$slice": -keep}}}
    room = WholeRoom(size, MAX_DOCUMENT_BYTES)
    if (await jobs.update_one(_run(id, token), update, room=room)).matched_count:
        return Appended({})
    alive = await jobs.find_one(_run(id, token), fields=("_id",))
    return LeaseLost() if alive is None else NoRoom()


def _run(id: str, token: str) -> Document:
    return {"_id": id, "status": CLAIM.target.value, "durable.token": token}
