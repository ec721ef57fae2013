"""Transactional steps: what the function writes and its record in the journal commit together."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from durabl_ext.core.transaction import Transaction, is_transient
from durabl_ext.errors import TransactionsUnsupportedError
from durabl_ext.orchestrator.calls import Asked
from durabl_ext.orchestrator.watchdog import GRACE
from durabl_ext.outcomes import Appended
from durabl_ext.runtime.transactions import LIMIT, begin, opened
from simplequeue.handlers import is_async
from simplequeue.job import Document

if TYPE_CHECKING:
    from durabl_ext.orchestrator.execution import Execution

TRIES = 10
"""How often a transactional step is tried while others write to the same documents."""

PAUSE = 0.05
"""Seconds, at most, before the second try; before later ones up to as many times that."""


async def transacted(execution: Execution, asked: Asked) -> Document:
    """Calls a function and keeps its step in one transaction, again where others wrote to the same documents.

    Raises:
        TransactionsUnsupportedError: There are none here. The function was not called.
        PyMongoError: It did not commit, or not in time.
    """
    hold = execution.hold
    if not hold.waits and hold.in_thread() is None and not is_async(asked.fn):
        raise TransactionsUnsupportedError(
            asked.job_id,
            f"the function of its step {asked.name!r} cannot wait for an async driver",
            "make the function async def",
        )
    async with opened(hold) as made:
        until = time.monotonic() + LIMIT
        for left in reversed(range(TRIES)):
            await begin(hold, made)
            bounded = replace(asked, timeout=min(asked.timeout, max(until - time.monotonic(), GRACE)))
            try:
                return await _committed(execution, bounded, made)
            except BaseException as error:
                await execution.caller.finish(made.abort())
                if not left or not is_transient(error) or time.monotonic() >= until:
                    raise
            await hold.pause(_jitter.uniform(0, PAUSE * (TRIES - left)))
    raise AssertionError("a last try returns or raises")


async def _committed(execution: Execution, asked: Asked, made: Transaction) -> Document:
    result = await execution.caller.call(asked, made.session, execution.stop_of_step())

    async def committed() -> Document:
        step = await execution.record(asked, result)
        answer = await made.append(step)
        if isinstance(answer, Appended):
            await made.commit()
        return execution.taken(step, answer)

    return await execution.caller.finish(committed())


# Not the module's own generator: an application's seed must not make workers everywhere come back at once.
_jitter = random.Random()
