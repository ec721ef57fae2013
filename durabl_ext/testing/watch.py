"""What happens to one run, and at which of its writes to the journal.

A run is interrupted in what it calls to reach the store, and nowhere else, so that what is tested is the step machine
as it is. A worker that has died does nothing more: every later call of its run raises the same.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pymongo.errors import OperationFailure

from durabl_ext.core.journal import Step
from durabl_ext.core.transaction import NONE_IN_PROGRESS
from durabl_ext.job import LogLine
from durabl_ext.orchestrator.history import START, History
from durabl_ext.orchestrator.orchestration import Body
from durabl_ext.runtime.runs import Run
from simplequeue.handlers import is_async

T = TypeVar("T")
Kind = Literal["crash before", "crash after", "lease lost before"]

NO_SUCH_TRANSACTION = 251


@dataclass(frozen=True, slots=True)
class Boundary:
    """A write to the journal.

    Attributes:
        seq: The step's place.
        name: The step's name.
        failed: It says that the step has failed, and that the body went on after that.
        transactional: It is the commit of the step's transaction.
    """

    seq: str
    name: str
    failed: bool = False
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen.

    Attributes:
        kind: What.
        step: At the write of a step of this name.
        occurrence: Of which of them, counted as they get into the journal.
        seq: Of the one at this place, whichever it is; None means by ``occurrence``.
    """

    kind: Kind
    step: str
    occurrence: int = 1
    seq: str | None = None

    def is_at(self, seq: str, name: str, occurrence: int) -> bool:
        """Whether it is to happen at this write."""
        if self.seq is not None:
            return (self.seq, self.step) == (seq, name)
        return seq != START and (self.step, self.occurrence) == (name, occurrence)

    def __str__(self) -> str:
        if self.seq is not None:
            return f"step {self.step!r} at {self.seq}"
        return f"step {self.step!r}" if self.occurrence == 1 else f"occurrence {self.occurrence} of step {self.step!r}"


class WorkerDied(BaseException):
    """Ends what a worker that has died would not do any more."""


class Watch:
    """Sees one run write, and has happen to it what is planned.

    Args:
        run: The run.
        journal: What is in its journal already.
        fault: What is to happen; None for nothing.
        succeed: Has another worker take the job and run it to its end.

    Attributes:
        writes: What it has written, or would have, by place.
        reached: Whether that has happened.
        died: What the run is told since its worker died.
        last_words: What it had logged until then.
    """

    def __init__(
        self,
        run: Run,
        journal: Iterable[Mapping[str, Any]],
        fault: Fault | None,
        succeed: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.writes: dict[str, Boundary] = {}
        self.reached = False
        self.died: WorkerDied | None = None
        self.last_words: list[LogLine] = []
        self._run = run
        self._fault = fault
        self._succeed = succeed
        self._succession: asyncio.Task[None] | None = None
        self._history: History | None = None
        self._counted = Counter(str(record.get("name")) for record in journal if record["seq"] != START)
        self._place: str | None = None
        self._lock = threading.Lock()  # the branches of a def body are threads

    def body(self, body: Body) -> Body:
        """The same body, seen from the start of its run."""
        if is_async(body):

            @functools.wraps(body)
            async def awaiting(job: Any, octx: Any) -> Any:
                self._history = octx._execution.history
                return await body(job, octx)

            return awaiting

        @functools.wraps(body)
        def waiting(job: Any, octx: Any) -> Any:
            self._history = octx._execution.history
            return body(job, octx)

        return waiting

    def check(self) -> None:
        """Raises once the worker has died."""
        if self.died is not None:
            raise self.died

    async def around(
        self,
        step: Step,
        write: Callable[[], Awaitable[T]],
        on_loop: Callable[[Coroutine[Any, Any, None]], Awaitable[None]],
        abort: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Makes a write, unless what is planned comes in between.

        Args:
            step: What is written.
            write: Writes it.
            on_loop: Has the loop of the runs do something, and waits for it.
            abort: Where the write is the commit of a transaction, ends that without.
        """
        self.check()
        kind = self._planned(step, transactional=abort is not None)
        if kind == "crash before":
            self._die(step, "before")
        if kind == "lease lost before":
            if abort is not None:
                # While the transaction has the job nobody can take it. What happens is that the server ends the
                # transaction of a process that is stuck, and that the lease ends after that.
                await abort()
            self.reached = True
            await on_loop(self._succeeded())
            if abort is not None:
                details = {"errorLabels": [NONE_IN_PROGRESS]}
                raise OperationFailure("the server has ended the transaction", NO_SUCH_TRANSACTION, details)
        answer = await write()
        if kind == "crash after":
            self._die(step, "after")
        return answer

    async def settled(self) -> None:
        """Waits until the other worker has ended, if there was one."""
        if self._succession is not None:
            await self._succession

    def _planned(self, step: Step, *, transactional: bool) -> Kind | None:
        with self._lock:
            fault = self._fault
            if step.seq not in self.writes:
                self.writes[step.seq] = Boundary(step.seq, step.name, "error" in step.record, transactional)
                self._counted[step.name] += step.seq != START
                if fault is not None and fault.is_at(step.seq, step.name, self._counted[step.name]):
                    self._place = step.seq
            # It may be written again, since an answer was lost or others wrote to the same documents.
            return None if fault is None or self.reached or step.seq != self._place else fault.kind

    def _die(self, step: Step, when: str) -> None:
        self.reached = True
        self.last_words = self._run.taken_lines()
        self.died = WorkerDied(f"the worker died {when} it had journaled step {step.name!r} at {step.seq}")
        if self._history is not None:
            self._history.note(self.died)
        # So that nothing hangs which a dead process would not go on with. Who hears it knows not to undo anything.
        self._run.stop.set("lease-lost")
        raise self.died

    async def _succeeded(self) -> None:
        self._succession = asyncio.create_task(self._succeed())
        await asyncio.shield(self._succession)
