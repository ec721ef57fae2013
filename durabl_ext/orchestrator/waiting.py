"""``def`` bodies: their steps run in the body's own thread, their branches in threads of their own."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple

from durabl_ext.errors import StepTimeout
from durabl_ext.options import Seconds
from durabl_ext.orchestrator.calls import Asked
from durabl_ext.orchestrator.context import StepContext
from durabl_ext.orchestrator.execution import Execution
from durabl_ext.orchestrator.history import BranchStopped, Group, Scope
from durabl_ext.orchestrator.watchdog import Limit, Watchdog
from durabl_ext.outcomes import LeaseLost, Renewed
from durabl_ext.runtime.signal import Signal, Stop
from simplequeue.handlers import checked_handler, refuse_unstarted
from simplequeue.jobs import Session, run

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

Branch = Callable[["OrchestrationContext"], R]


class WaitingCaller:
    """Calls steps in the thread that asks for them.

    Args:
        watchdog: What tells a step that it takes too long.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog

    def me(self) -> object:
        """This thread."""
        return threading.get_ident()

    async def call(self, asked: Asked, session: Session | None, stop: Stop) -> Any:
        """Calls it here."""
        late = StepTimeout(asked.job_id, asked.name, asked.timeout)
        limit = Limit(asked.timeout, late, lambda: stop.set("deadline"))
        self._watchdog.add(limit)
        try:
            step = StepContext(asked.job_id, asked.seq, asked.key, Signal(stop), session)
            result = asked.fn(step, *asked.args)
        except BaseException as error:
            if limit.late:
                raise late from error
            raise
        finally:
            self._watchdog.remove(limit)
        refuse_awaitable(result, f"the function of step {asked.name!r}")
        if limit.late:
            raise late
        return result

    async def finish(self, keeping: Coroutine[Any, Any, T]) -> T:
        """Does it: nothing interrupts a thread."""
        return await keeping


class OrchestrationContext:
    """What a ``def`` body is given beside its job. Made by the orchestrator.

    Attributes:
        signal: Tells the body when it should end early. No step starts from then on.
    """

    def __init__(self, execution: Execution, scope: Scope) -> None:
        self._execution = execution
        self._scope = scope
        self.signal = Signal(execution.stop)

    def step(
        self,
        name: str,
        fn: Callable[[StepContext, *Ts], R],
        *args: *Ts,
        idempotency_key: str | None = None,
        timeout: Seconds | None = None,
        transactional: bool = False,
    ) -> R:
        """Does a part of the work once: gives what it returned, in this run or in an earlier one.

        The function runs again only where its run ended before its result was stored, which is when the process dies or
        loses the server in between; then with the same ``idempotency_key``. Where it raises, nothing is stored and the
        next attempt runs it again, unless the body catches that and starts another step: then the failure is stored,
        and raised again in later runs.

        Args:
            name: What it is called in the journal. A resumed body has to call the steps that are there by the same
                names and in the same order.
            fn: A ``def`` function of the step and of ``args``, run in this thread. What it returns may hold what a
                job's ``data`` may, and is given as it is stored: times cut to milliseconds.
            args: For the function; they are not stored.
            idempotency_key: What ``step.idempotency_key`` is; None means ``"job id:place:name"``. A key that names the
                thing it changes keeps another job from changing it twice.
            timeout: Seconds, or a timedelta, that it may take; None means the orchestration's ``step_timeout``.
            transactional: Whether the function's writes with ``step.session`` commit together with the step: exactly
                once. The function may be run again before that, where others write to the same documents.

        Raises:
            Exception: What the function raised.
            StepTimeout: It took too long. A thread cannot be ended: one that does not heed its signal is left behind,
                and the run ends.
            NonSerializableStepResult: The result cannot be stored. The job fails.
            JournalTooLarge: There is no room for it. The job fails: return an id instead.
            NondeterminismError: The journal has something else here. The job fails, and nothing of this step was done.
            RunAborted: The run should end. Let it pass.
            TransactionsUnsupportedError: The server has no transactions. The function was not run.
            PayloadError, TypeError: An argument is none.
        """
        asked, record, failures = self._execution.asked(
            self._scope, name, fn, args, idempotency_key, timeout, transactional
        )
        self._scope.running[asked.seq] = asked.seq, name
        try:
            result: R = run(self._execution.perform(self._scope, asked, record, failures))
        finally:
            del self._scope.running[asked.seq]
        return result

    def all(self, *branches: Branch[R]) -> list[R]:
        """Runs branches at once, each in a thread, and gives what they return, in order.

        Where one raises, the others finish the step they are at and start no other; then that is raised here.

        Args:
            branches: Functions of a context of their own, whose steps are numbered apart. They may branch in turn.

        Raises:
            Exception: What the first branch that failed has raised.
            NondeterminismError, RunAborted: As for ``step``.
            TypeError: A branch is no function of one argument.
        """
        for branch in branches:
            checked_handler(branch, "its own octx", 1)
        seq, failures = self._execution.grouped(self._scope, len(branches))
        run(self._execution.keep_failures(failures))
        group, scopes = self._scope.branches(seq, len(branches), self._execution.history.has_ended(seq))
        results: list[Any] = [None] * len(branches)
        errors: list[BaseException] = []

        def work(n: int) -> None:
            scope = scopes[n]
            try:
                octx = OrchestrationContext(self._execution, scope)
                results[n] = in_scope(self._execution, scope, lambda: branches[n](octx))
            except BaseException as error:
                group.stop()
                errors.append(error)

        self._scope.running[seq] = seq, "all"
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(work, n), name=f"durabl-{seq}.{n}")
            for n in range(len(branches))
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        for thread in threads:
            thread.join()
        del self._scope.running[seq]
        self._scope.groups.discard(seq)
        gather_failures(self._execution, self._scope, group, scopes, errors)
        return results

    def now(self) -> datetime:
        """The time at which the job's first run asked for it, in UTC: the same in every run."""
        return run(self._execution.time())

    def uuid(self, label: str) -> str:
        """An id of this job for a label: the same in every run, and no secret, since it follows from the journal."""
        return run(self._execution.uuid(label))

    def log(self, message: str) -> None:
        """Adds a line to the job's own log; never raises and never waits. A run that resumes logs its lines again."""
        self._execution.hold.log(message)

    def heartbeat(self) -> Renewed | LeaseLost:
        """Renews the lease now, which happens by itself as well, and says whether it is still this run's."""
        return run(self._execution.hold.heartbeat())


def in_scope(execution: Execution, scope: Scope, start: Callable[[], T]) -> T:
    """Runs a body, or a branch, in this thread."""
    scope.owner = threading.get_ident()
    result = start()
    refuse_awaitable(result, "a def body, or a branch of one,")
    execution.history.check()
    execution.history.end(scope.prefix)
    return result


def gather_failures(
    execution: Execution, scope: Scope, group: Group, scopes: list[Scope], errors: list[BaseException]
) -> None:
    """Raises what ended a group of branches, and takes over the failures that the body may go on after."""
    execution.history.check()
    for branch in scopes:
        scope.failed += branch.failures()
    for error in errors:
        if not isinstance(error, BranchStopped):
            raise error
    if (missed := group.unexplained()) is not None:
        seq, called = missed
        execution.history.refuse(seq, "branches that had ended without it", called)
    if errors:
        raise errors[0]


def refuse_awaitable(result: object, what: str) -> None:
    """Raises for what a def body cannot await, since then nothing has run."""
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result):
        raise TypeError(f"{what} returned something to be awaited, which a def body cannot: make the body async def")
    refuse_unstarted(what, result)
