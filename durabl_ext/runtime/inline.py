"""Running a job inside its enqueue, for unit tests on an ``ImmediateBackend``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.core.settle import Settlement
from durabl_ext.errors import FatalJobError
from durabl_ext.job import LogLine
from durabl_ext.runtime.invoke import InvokeHere, call
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.signal import Stop
from simplequeue.failure import stored_error
from simplequeue.handlers import is_async
from simplequeue.threads import LoopThread


def run_inline(backend: Backend, id: str, processors: Mapping[str, Processor], lease: timedelta) -> None:
    """Runs a job of a registered action here and now; what the handler raises is stored and not raised."""
    job = backend.get(id)
    if job is None or (processor := processors.get(job.action)) is None:
        return
    claim = backend.claim_by_id(id, lease=lease)
    if claim is None:
        return
    lines: list[LogLine] = []
    stop = Stop()

    def log(message: str) -> None:
        lines.append(LogLine(backend.now(), str(message)))

    if is_async(processor.handler):
        # A loop of its own: the caller may be on one already.
        loop = LoopThread("durabl-inline")
        try:
            error = loop.call(InvokeHere()(processor.handler, claim.job, stop, log))
        finally:
            loop.close()
    else:
        result, error = call(processor.handler, claim.job, stop, log)
        if inspect.iscoroutine(result):
            result.close()
            error = TypeError(f"the handler {processor.handler!r} returned a coroutine; make it an async def")
    backend.log(claim, lines)
    backend.settle([_end(claim, error)])


async def run_inline_async(
    backend: AsyncBackend, id: str, processors: Mapping[str, Processor], lease: timedelta
) -> None:
    """Runs a job of a registered action here and now, as ``run_inline`` does."""
    job = await backend.get(id)
    if job is None or (processor := processors.get(job.action)) is None:
        return
    claim = await backend.claim_by_id(id, lease=lease)
    if claim is None:
        return
    at = await backend.now()
    lines: list[LogLine] = []
    invoke = InvokeHere()
    error = await invoke(processor.handler, claim.job, Stop(), lambda message: lines.append(LogLine(at, str(message))))
    invoke.close()
    await backend.log(claim, lines)
    await backend.settle([_end(claim, error)])


def _end(claim: Claim, error: BaseException | None) -> Settlement:
    if error is None:
        return claim.settled("complete")
    return claim.settled("fail_fatal" if isinstance(error, FatalJobError) else "fail", stored_error(error))
