"""Running a job inside its enqueue, for unit tests on an ``ImmediateBackend``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.core.plans import Settlement
from durabl_ext.errors import is_fatal
from durabl_ext.events import JobClaimed, Sink, facts_of, of_end, told
from durabl_ext.runtime.access import accesses, async_accesses
from durabl_ext.runtime.context import Handler
from durabl_ext.runtime.hold import Managed
from durabl_ext.runtime.invoke import InvokeHere, call, follow, outcome
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.runs import Owner, Run
from simplequeue.failure import stored_error
from simplequeue.handlers import is_async
from simplequeue.threads import LoopThread

T = TypeVar("T")


class Unkept:
    """Keeps a run whose lease nobody renews and whose log is written at its end."""

    def __init__(self, lease: timedelta) -> None:
        self.lease = lease

    async def leave_alone(self, run: Run, owner: Owner) -> None:
        """Takes note of the owner."""
        run.alone = owner

    def take_back(self, run: Run, owner: Owner) -> None:
        """Takes note that there is none."""
        run.alone = None

    def lost(self, run: Run, op: object) -> None:
        """Has the handler told."""
        run.stop.set("lease-lost")


def unkept(claim: Claim, lease: timedelta, at: datetime) -> Managed:
    """A run that is managed by whoever calls its handler."""
    run = Run(claim, time.monotonic(), lease, None, at - datetime.now(UTC))
    return Managed(run, Unkept(lease), run.log, None)


def run_inline(
    backend: Backend, id: str, processors: Mapping[str, Processor], lease: timedelta, sink: Sink | None
) -> None:
    """Runs a job of a registered action here and now; what the handler raises is stored and not raised."""
    job = backend.get(id)
    if job is None or (processor := processors.get(job.action)) is None:
        return
    claim = backend.claim_by_id(id, lease=lease)
    if claim is None:
        return
    told(sink, JobClaimed(**facts_of(claim.job, backend.now())))
    managed = unkept(claim, lease, backend.now())
    invoke = InvokeHere(partial(accesses, backend))
    error = _here(processor.handler, managed, invoke)
    invoke.close()
    duration = time.monotonic() - managed.run.began
    backend.log(claim, managed.run.taken_lines())
    end = end_of(claim, error)
    (became,) = backend.settle([end])
    told(sink, of_end(facts_of(claim.job, backend.now()), end.how, became, type(error).__name__, duration))


async def run_inline_async(
    backend: AsyncBackend, id: str, processors: Mapping[str, Processor], lease: timedelta, sink: Sink | None
) -> None:
    """Runs a job of a registered action here and now, as ``run_inline`` does."""
    job = await backend.get(id)
    if job is None or (processor := processors.get(job.action)) is None:
        return
    claim = await backend.claim_by_id(id, lease=lease)
    if claim is None:
        return
    at = await backend.now()
    told(sink, JobClaimed(**facts_of(claim.job, at)))
    managed = unkept(claim, lease, at)
    invoke = InvokeHere(lambda _: async_accesses(backend))
    error = await outcome(invoke, processor.handler, managed)
    invoke.close()
    duration = time.monotonic() - managed.run.began
    await backend.log(claim, managed.run.taken_lines())
    end = end_of(claim, error)
    (became,) = await backend.settle([end])
    told(sink, of_end(facts_of(claim.job, await backend.now()), end.how, became, type(error).__name__, duration))


def _here(handler: Handler, managed: Managed, invoke: InvokeHere) -> BaseException | None:
    """Calls a handler in this thread, a ``def`` handler outside of any loop; gives what it raised."""
    if is_async(handler):
        return _awaited(outcome(invoke, handler, managed))
    try:
        result = call(handler, managed, invoke.accesses)
    except BaseException as error:
        return error
    if result is None:
        return None

    async def followed() -> BaseException | None:
        answer: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        follow(handler, result, managed.run, answer.set_result)
        return await answer

    return _awaited(followed())


def _awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    # A loop of its own: the caller may be on one already.
    loop = LoopThread("durabl-inline")
    try:
        return loop.call(coroutine)
    finally:
        loop.close()


def end_of(claim: Claim, error: BaseException | None) -> Settlement:
    """How a claim ends whose handler returned (None) or raised something."""
    if error is None:
        return claim.settled("complete")
    return claim.settled("fail_fatal" if is_fatal(error) else "fail", stored_error(error))
