"""Which job a transaction of the caller has, so that a call which would wait for it can say so at once."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

job_here: ContextVar[str | None] = ContextVar("job_here", default=None)
"""The job that a transaction of the caller has, for it and for what it starts."""


def refuse_outside(id: object, session: Any = None) -> None:
    """Refuses a write to that job outside of the transaction.

    The server would let it wait for the transaction, which waits for it: until the server ends the transaction, after a
    minute or more.

    Args:
        id: The job that is to be written to.
        session: What the write is made in; None means in no session.

    Raises:
        RuntimeError: It is the caller's own job, and the session is in no transaction.
    """
    here = job_here.get()
    if here is not None and str(id) == here and not getattr(session, "in_transaction", False):
        raise RuntimeError(
            f"job {here} is written to by its own transaction, and a write beside that would wait for it for ever: "
            "give the transaction's session (session=), or write before or after the block"
        )
