"""The errors of the extension, by who must act.

    Exception
    ├── FatalJobError              a handler says: another attempt cannot succeed
    ├── ValueError
    │   └── PayloadError           the caller passed what cannot be stored (from simplequeue)
    └── RuntimeError
        ├── DedupeScopeConflictError   the application uses one key in two ways
        ├── IndexConflictError         the operator must drop an old index (from simplequeue)
        └── BackendClosedError         the application uses a backend after its shutdown

Outcomes a caller must branch on are values, in ``outcomes``; nothing here is one.
"""

from __future__ import annotations

from simplequeue.collection import IndexConflictError
from simplequeue.payload import PayloadError

__all__ = ["BackendClosedError", "DedupeScopeConflictError", "FatalJobError", "IndexConflictError", "PayloadError"]


class FatalJobError(Exception):
    """Says, raised by a handler, that no further attempt can succeed: the job fails now, whatever is left to it.

    Raise it ``from`` the error that showed it; the cause is kept in the stored stack.
    """


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
