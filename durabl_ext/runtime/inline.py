"""Running a job inside its enqueue, for unit tests on an ``ImmediateBackend``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.core.settle import Settlement
from durabl_ext.errors import is_fatal
from durabl_ext.events import JobClaimed, Sink, facts_of, of_end, told
from durabl_ext.job import LogLine
from durabl_ext.runtime.invoke import InvokeHere, call, finished
from durabl_ext.runtime.processors import Processor
from durabl_ext.runtime.runs import log_line
from durabl_ext.runtime.signal import Stop
from simplequeue.failure import stored_error
from simplequeue.handlers import is_async
from simplequeue.threads import LoopThread

T = TypeVar("T")


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
    began, stop = time.monotonic(), Stop()
    lines: list[LogLine] = []

    def log(message: str) -> None:
        lines.append(log_line(backend.now(), message))

    if is_async(processor.handler):
        error = _awaited(InvokeHere()(processor.handler, claim.job, stop, log))
    else:
        result, error = call(processor.handler, claim.job, stop, log)
        if inspect.isawaitable(result):
            error = _awaited(finished(processor.handler, result, stop))
    duration = time.monotonic() - began
    backend.log(claim, lines)
    end = _end(claim, error)
    (outcome,) = backend.settle([end])
    told(sink, of_end(facts_of(claim.job, backend.now()), end.how, outcome, type(error).__name__, duration))


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
    at, began = await backend.now(), time.monotonic()
    told(sink, JobClaimed(**facts_of(claim.job, at)))
    lines: list[LogLine] = []
    invoke = InvokeHere()
    error = await invoke(processor.handler, claim.job, Stop(), lambda message: lines.append(log_line(at, message)))
    invoke.close()
    duration = time.monotonic() - began
    await backend.log(claim, lines)
    end = _end(claim, error)
    (outcome,) = await backend.settle([end])
    told(sink, of_end(facts_of(claim.job, await backend.now()), end.how, outcome, type(error).__name__, duration))


def _awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    # A loop of its own: the caller may be on one already.
    loop = LoopThread("durabl-inline")
    try:
        return loop.call(coroutine)
    finally:
        loop.close()


def _end(claim: Claim, error: BaseException | None) -> Settlement:
    if error is None:
        return claim.settled("complete")
    return claim.settled("fail_fatal" if is_fatal(error) else "fail", stored_error(error))
