"""The errors of the extension, by who must act.

    Exception
    ├── FatalJobError              a handler says: another attempt cannot succeed
    │   └── JournalTooLarge        the handler's steps return more than a document can keep
    ├── ValueError
    │   └── PayloadError           the caller passed what cannot be stored (from simplequeue)
    └── RuntimeError
        ├── DedupeScopeConflictError   the application uses one key in two ways
        ├── IndexConflictError         the operator must drop an old index (from simplequeue)
        ├── BackendClosedError         the application uses a backend after its shutdown
        ├── QueueShutdownError         the application starts work on a queue that is shut down
        └── LeaseLostError             a run was done, and what became of its job is for another to say

Outcomes a caller must branch on are values, in ``outcomes``; nothing here is one.
"""

from __future__ import annotations

from simplequeue.collection import IndexConflictError
from simplequeue.payload import PayloadError

__all__ = [
    "BackendClosedError",
    "DedupeScopeConflictError",
    "FatalJobError",
    "IndexConflictError",
    "JournalTooLarge",
    "LeaseLostError",
    "PayloadError",
    "QueueShutdownError",
]


class FatalJobError(Exception):
    """Says, raised by a handler, that no further attempt can succeed: the job fails now, whatever is left to it.

    Raise it ``from`` the error that showed it; the cause is kept in the stored stack.
    """


def is_fatal(error: BaseException) -> bool:
    """Whether an error says that no further attempt can succeed, be it as one of a group that tasks raised together."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(FatalJobError) is not None
    return isinstance(error, FatalJobError)


class DedupeScopeConflictError(RuntimeError):
    """Says that a key is held by a job of the other scope, where the two would not exclude each other as asked.

    A key names one resource and lives under one scope at a time. Use the same scope wherever the key is used, or wait
    until the jobs of the other scope have ended.

    Attributes:
        key: The dedupe key.
        held: The scope of the job that holds it.
        asked: The scope that was asked for.
        holder: That job's id.
    """

    def __init__(self, key: str, held: str, asked: str, holder: str) -> None:
        super().__init__(key, held, asked, holder)
        self.key, self.held, self.asked, self.holder = key, held, asked, holder

    def __str__(self) -> str:
        return (
            f"dedupe key {self.key!r} is held by job {self.holder} in scope {self.held!r}, and was asked for in scope "
            f"{self.asked!r}: use one scope for a key, or wait until that job has ended"
        )


class BackendClosedError(RuntimeError):
    """Says that a backend was used after its shutdown."""


class QueueShutdownError(RuntimeError):
    """Says that a queue is shut down, or about to be, and starts no more work. Jobs can still be enqueued."""


class LeaseLostError(RuntimeError):
    """Says that the lease of a run was lost before its end was stored: another worker may run the job again.

    Attributes:
        job_id: The job.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"the lease of job {self.job_id} was lost before its end was stored: another worker may run it again, so "
            "its work must stand being done twice"
        )


class JournalTooLarge(FatalJobError):  # noqa: N818  # the name users know it by
    """Says that a job's journal, or its document, has no room for one more step. Nothing was written.

    Steps should return ids and references, not what they stand for.

    Attributes:
        job_id: The job.
        step: The step's name.
        size: What the step would add, in encoded bytes.
        used: What the journal takes already.
        limit: What it may take.
    """

    def __init__(self, job_id: str, step: str, size: int, used: int, limit: int) -> None:
        super().__init__(job_id, step, size, used, limit)
        self.job_id, self.step, self.size, self.used, self.limit = job_id, step, size, used, limit

    def __str__(self) -> str:
        return (
            f"step {self.step!r} of job {self.job_id} would add {self.size:,} bytes to a journal of {self.used:,}; it "
            f"may take {self.limit:,}, and the document must keep room to end: return an id instead of the thing itself"
        )
