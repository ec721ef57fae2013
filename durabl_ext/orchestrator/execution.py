"""One run of a body: how its steps are called, kept and given.

Written once, as coroutines. Those of a ``def`` body never suspend; ``Caller`` is what differs.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from pymongo.errors import PyMongoError

from durabl_ext.core.journal import Step
from durabl_ext.errors import JournalTooLarge, NonSerializableStepResult
from durabl_ext.options import Seconds
from durabl_ext.orchestrator import records
from durabl_ext.orchestrator.calls import Asked, Caller, checked_positive, checked_text
from durabl_ext.orchestrator.history import START, Failed, History, Scope
from durabl_ext.orchestrator.transacted import transacted
from durabl_ext.outcomes import Appended, LeaseLost, NotFound
from durabl_ext.runtime.access import codec
from durabl_ext.runtime.hold import Hold
from durabl_ext.runtime.signal import RunAborted, Stop
from simplequeue.job import Document
from simplequeue.payload import PayloadError, cut, shown

T = TypeVar("T")

RETRY_FIRST = 0.05
RETRY_MOST = 2.0
"""Seconds between attempts to store a step that has ended."""

USE_BRANCHES = (
    "Steps are numbered in the order they are called, which between tasks is left to chance: give each its own numbers "
    "with octx.all(branch, branch), and call no step inside of a step"
)
NOT_INSIDE = "A step is done or not done as a whole: call the function itself, or make it a step of the body"


class Execution:
    """One run of a body.

    Args:
        hold: The run's way to its job.
        caller: How its steps are called.
        step_timeout: What a step has, in seconds, unless it says otherwise.
        seed: Makes what ``uuid`` goes by.

    Attributes:
        stop: Tells the body to end.
        caller: As given.
    """

    def __init__(self, hold: Hold, caller: Caller, step_timeout: float, seed: Callable[[], str]) -> None:
        self.hold = hold
        self.job = hold.claim.job
        stored = self.job.document.get("durable") or {}
        self.history = History(self.job.id, stored.get("steps") or ())
        self.stop = Stop()
        self.step_timeout = step_timeout
        self.caller = caller
        self._seed = seed
        hold.run.stop.when_set(self.stopped)

    def stopped(self) -> None:
        """Tells the body that its run is to end; before it is cancelled, since it may swallow that and go on."""
        self.stop.set(self.hold.run.stop.reason or "shutdown")

    def asked(
        self,
        scope: Scope,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        key: str | None,
        timeout: Seconds | None,
        transactional: bool,
    ) -> tuple[Asked, Document | None, Sequence[Failed]]:
        """Takes the next place for a step; gives it with what the journal has of it, and what is to be kept before.

        Raises:
            PayloadError, TypeError: An argument is none.
            NondeterminismError: The body does not do what its journal says, or leaves an order to chance.
            RunAborted: The run is to end.
        """
        self.check(scope, name)
        checked_text(name, "name")
        if not callable(fn):
            raise TypeError(f"step {name!r}: expected a function that takes the step, found {fn!r:.100}")
        if key is not None:
            checked_text(key, "idempotency_key")
        seconds = self.step_timeout if timeout is None else checked_positive(timeout, f"timeout of step {name!r}")
        seq = scope.take()
        record = self.history.step(seq, name)
        if record is None and scope.group is not None:
            scope.group.check(seq, f"calls step {name!r}")
        key = key or f"{self.job.id}:{seq}:{name}"
        asked = Asked(self.job.id, seq, name, fn, args, key, seconds, bool(transactional), scope.beside)
        # A step that is there has been started before: what failed before it was kept then, or did not matter yet.
        return asked, record, scope.failures() if record is None else ()

    def grouped(self, scope: Scope, branches: int) -> tuple[str, Sequence[Failed]]:
        """Takes the next place for a group of branches; gives it with what is to be kept before.

        Raises:
            As ``asked``.
        """
        self.check(scope, "all")
        seq = scope.take()
        self.history.group(seq, branches)
        if scope.group is not None and not self.history.has_branches(seq):
            scope.group.check(seq, f"calls {branches} branches")
        return seq, scope.failures()

    async def keep_failures(self, failures: Sequence[Failed]) -> None:
        """Keeps that steps have failed, and that the body went on after that."""
        try:
            for failed in failures:
                stored = await self.keep(records.of_failure(failed, await self.now()))
                if "error" not in stored:  # its commit, whose answer was lost, has arrived all the same
                    self.history.fail(failed.error)
        except JournalTooLarge as error:
            self.history.fail(error)  # the body has gone on after that, and the journal cannot say so
        self.history.check()

    def check(self, scope: Scope, called: str) -> None:
        """Raises what ends the run, and for a call that is not made by the body itself."""
        self.history.check()
        running = next(iter(scope.running.values()), None)
        if scope.owner != self.caller.me():
            self._refuse_call(scope, f"calls {called!r} from another task or thread than its own", USE_BRANCHES)
        if self.hold.waits and running is not None:
            self._refuse_call(scope, f"calls {called!r} inside of {running[1]!r}", NOT_INSIDE)
        if self.stop.reason is not None:
            self.history.fail(RunAborted(self.stop.reason))

    async def perform(self, scope: Scope, asked: Asked, record: Document | None, failures: Sequence[Failed]) -> Any:
        """Gives the result of a step: what the journal has of it, or what its function returns once that is kept."""
        if record is not None:
            return records.value_of(self.job.id, record)
        try:
            await self.keep_failures(failures)
            stored = await (transacted(self, asked) if asked.transactional else self._performed(asked))
            return stored["result"]
        except asyncio.CancelledError:
            if self.stop.reason is not None:  # a body that swallows it must not end as if the step had been done
                self.history.note(RunAborted(self.stop.reason))
            raise
        except Exception as error:
            scope.failed.append(Failed(asked.seq, asked.name, error, asked.beside))
            if isinstance(error, JournalTooLarge | NonSerializableStepResult):
                self.history.fail(error)  # its function has run, and the journal cannot say so
            raise

    async def keep(self, step: Step) -> Document:
        """Adds to the journal until it is there; gives it as it is there.

        Raises:
            RunAborted: The claim is no longer this run's, or may not be.
            JournalTooLarge: There is no room.
            PyMongoError: It is refused, and was for as long as a lease.
        """
        return self.taken(step, await self._insisted(lambda: self.hold.access.append_step(self.hold.claim, step)))

    async def start(self) -> Document:
        """What ``now`` and ``uuid`` go by: set once in the life of a job."""
        self.history.check()
        if (record := self.history.start) is None:
            step = Step(START, START, {"now": await self.now(), "seed": self._seed()})
            record = await self.caller.finish(self.keep(step))
        return record

    async def time(self) -> datetime:
        """When the job's first run asked for the time."""
        at: datetime = (await self.start())["now"]
        return at

    async def uuid(self, label: str) -> str:
        """An id that is this job's alone, and each time the same for the same label."""
        if not isinstance(label, str):
            raise PayloadError("label", f"expected a text, found {shown(label)}")
        return str(uuid.uuid5(uuid.UUID(hex=(await self.start())["seed"]), label))

    async def now(self) -> datetime:
        """The store's time. A step whose function has run needs it as well, so it is insisted upon."""
        return cut((await self._insisted(self.hold.access.now)).astimezone(UTC))

    async def _insisted(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a call until it is answered, or the lease may have ended.

        One that is refused all the same is given up after a lease: heartbeats go on meanwhile, and nobody else would
        ever get the job.
        """
        failures, until = 0, time.monotonic() + self.hold.keeper.lease.total_seconds()
        while True:
            try:
                return await call()
            except PyMongoError as trouble:
                run = self.hold.run
                if run.orphaned or run.stop.reason in ("lease-lost", "deadline") or run.expired():
                    self.history.fail(RunAborted("deadline"))
                if time.monotonic() >= until:
                    self.history.fail(trouble)
            failures += 1
            await self.hold.pause(_jitter.uniform(RETRY_FIRST, min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(failures, 10))))

    def _refuse_call(self, scope: Scope, called: str, remedy: str) -> NoReturn:
        self.history.refuse(f"{scope.prefix}*", None, called, remedy)

    def taken(self, step: Step, answer: Appended | LeaseLost | NotFound) -> Document:
        """Takes note of what has been added to the journal, and gives it as it is there.

        Raises:
            RunAborted: The claim is no longer this run's.
        """
        if not isinstance(answer, Appended):
            self.history.fail(self.hold.lost())
        record = dict(answer.stored)
        self.history.add(record)
        return record

    async def _performed(self, asked: Asked) -> Document:
        result = await self.caller.call(asked, None, self.stop_of_step())

        async def kept() -> Document:
            return await self.keep(await self.record(asked, result))

        return await self.caller.finish(kept())

    def stop_of_step(self) -> Stop:
        """Tells a step to end when its run is to."""
        stop = Stop()
        self.stop.when_set(lambda: stop.set(self.stop.reason or "shutdown"))
        return stop

    async def record(self, asked: Asked, result: object) -> Step:
        """The record of a step that has ended well."""
        at = await self.now()
        return records.of_result(self.job.id, asked.seq, asked.name, result, at, asked.beside, codec(self.hold.access))


# Not the module's own generator: an application's seed must not make workers everywhere come back at once.
_jitter = random.Random()
