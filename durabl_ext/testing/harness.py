"""A body of an orchestration, run by hand: interrupted where the test says, resumed when it says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pymongo.database import Database

from durabl_ext.job import DurableJob
from durabl_ext.options import Seconds, checked_whole
from durabl_ext.orchestrator.calls import checked_positive, checked_text
from durabl_ext.orchestrator.define import AsyncBody, SyncBody
from durabl_ext.orchestrator.view import StepView, view_of
from durabl_ext.testing.attempt import Attempt, attempt
from durabl_ext.testing.bench import Bench, Terms
from durabl_ext.testing.errors import CrashNotReached
from durabl_ext.testing.stage import wait_for
from durabl_ext.testing.watch import Fault, Kind
from simplequeue.handlers import checked_handler
from simplequeue.operations import known_id
from simplequeue.payload import PayloadError, checked_time

JOB_ID = "0198e15c-8200-7000-8000-000000000001"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEED = "harness"
STEP_TIMEOUT = 30.0
MAX_ATTEMPTS = 3


class OrchestrationHarness:
    """Runs a body of an orchestration in a test, without a queue and without a worker.

    The steps are called, checked and journaled as in production. Each call runs the body once, from its top as a worker
    does, and waits for that; bodies may be ``def`` or ``async def``, and the caller may be on a running loop. All
    bodies of a process run on one loop, which is none of the caller's. Nothing is stored before the first call.

    Args:
        body: A function of a job and an octx.
        data: The job's payload. None means ``{}``.
        job_id: The job's id.
        action: The job's action.
        now: The time, as an aware datetime: what ``octx.now()`` gives, and when the job was enqueued.
        seed: Any text; what ``octx.uuid`` goes by.
        step_timeout: Seconds, or a timedelta, that a step may take, unless it says otherwise.
        max_duration: Seconds, or a timedelta, that one run may take. None means without limit.
        max_attempts: How many runs the job has before it has failed for good; ``resume`` goes on after that as well.
        db: A ``Database`` of PyMongo on a replica set, for steps with ``transactional=True``. The job is kept in its
            collection ``orchestration_harness``, of one harness of this ``job_id`` at a time. None means in memory.

    Raises:
        TypeError: The body is none, or ``db`` is no such database.
        PayloadError: Another argument is not as above.
        ImportError: There is no ``db``, and mongomock is not installed; the extra ``testing`` brings it.
    """

    def __init__(
        self,
        body: SyncBody | AsyncBody,
        *,
        data: Mapping[str, Any] | None = None,
        job_id: str | UUID = JOB_ID,
        action: str = "orchestration",
        now: datetime = NOW,
        seed: str = SEED,
        step_timeout: Seconds = STEP_TIMEOUT,
        max_duration: Seconds | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        db: Database[Any] | None = None,
    ) -> None:
        checked_handler(body, "a job and its octx", 2)
        checked_text(seed, "seed")
        known = known_id(job_id)
        if known is None:
            raise PayloadError("job_id", f"expected a UUID, found {job_id!r:.100}")
        terms = Terms(
            data,
            known,
            action,
            checked_time(now, "now"),
            seed,
            checked_positive(step_timeout, "step_timeout"),
            None if max_duration is None else checked_positive(max_duration, "max_duration"),
            max_attempts,
        )
        self._body = body
        self._bench = Bench(terms, db)
        self._begun = False
        self._last = Attempt()

    def run(self) -> DurableJob:
        """Runs the body for the first time.

        Returns:
            The job as it is stored then.

        Raises:
            BaseException: What the body, or a step it did not catch, has raised. The attempt is stored as a failed one
                first, so ``resume`` is the next.
            RuntimeError: It has run before.
        """
        if self._begun:
            raise RuntimeError("the job has run before: resume() is its next run, a new harness a new job")
        return self._uninterrupted(self._body)

    def resume(self) -> DurableJob:
        """Runs the body again: steps that are in the journal are skipped.

        After a crash another worker has taken the job. After a failure this is the next attempt, and after the last
        one, or a fatal one, what an operator's ``resume`` does. After a completed run it is a second delivery: the
        worker has died when all was done but the end was not stored.

        Returns:
            The job as it is stored then.

        Raises:
            BaseException: As for ``run``.
            RuntimeError: It has not run before.
        """
        return self.resume_with(self._body)

    def resume_with(self, body: SyncBody | AsyncBody) -> DurableJob:
        """Runs another body on the journal, this once: shows whether an edit can meet jobs that are half done.

        Args:
            body: The edited body.

        Returns:
            The job as it is stored then.

        Raises:
            NondeterminismError: It does not do what the journal says. Nothing of the step where it differs was done,
                and ``resume`` goes on with the body as it was.
            BaseException: As for ``run``.
            RuntimeError: It has not run before.
        """
        checked_handler(body, "a job and its octx", 2)
        if not self._begun:
            raise RuntimeError("the job has not run yet: run() is its first run, or one that ends in a crash")
        return self._uninterrupted(body)

    def crash_after(self, step: str, *, occurrence: int = 1, seq: str | None = None) -> None:
        """Runs the body, for the first time or again, until a step has been journaled; there the worker dies.

        The body is told so by a ``BaseException``. Whatever it does with that changes nothing in the journal, and
        starts no step. Of a transactional step the writes are committed.

        Args:
            step: The step's name.
            occurrence: Which of several of that name, counted as they get into the journal, from 1; those that are
                there count as well.
            seq: The step's place, which tells steps of one name in branches apart. None means by ``occurrence``.
                ``crash_after("start", seq="start")`` is for what ``now`` and ``uuid`` go by.

        Raises:
            CrashNotReached: The run ended before that. It is stored how.
            PayloadError: An argument is none.
        """
        self._interrupted("crash after", step, occurrence, seq)

    def crash_before(self, step: str, *, occurrence: int = 1, seq: str | None = None) -> None:
        """Runs the body until a step's function has returned; there the worker dies, before that is journaled.

        This is the window that ``step.idempotency_key`` is for: ``resume`` runs the step again, with the same key. Of a
        transactional step everything is rolled back.

        Args:
            step: As for ``crash_after``.
            occurrence: As for ``crash_after``.
            seq: As for ``crash_after``.

        Raises:
            CrashNotReached: As for ``crash_after``.
            PayloadError: An argument is none.
        """
        self._interrupted("crash before", step, occurrence, seq)

    def lose_lease_before(self, step: str, *, occurrence: int = 1, seq: str | None = None) -> None:
        """Runs the body until a step's function has returned; there the worker hangs until another one has the job.

        That one runs the job to its end. Then the first goes on, finds that its lease is lost, and must change nothing.

        Args:
            step: As for ``crash_after``.
            occurrence: As for ``crash_after``.
            seq: As for ``crash_after``.

        Raises:
            BaseException: What the body has raised in the run of the other worker.
            AssertionError: The first one has changed the job.
            CrashNotReached: As for ``crash_after``.
            PayloadError: An argument is none.
        """
        ended = self._interrupted("lease lost before", step, occurrence, seq)
        if ended.successor is not None and ended.successor.error is not None:
            raise ended.successor.error
        if ended.changed:
            raise AssertionError(f"a run that had lost its lease has changed job {self._bench.terms.job_id}")

    @property
    def steps(self) -> list[StepView]:
        """What is in the journal, in the order it got there, with results; ``failed`` ones have their error there.

        The body goes on behind it. What ``now`` and ``uuid`` go by is not shown.
        """
        return list(view_of(self.job, results=True).steps)

    @property
    def logs(self) -> list[str]:
        """What ``octx.log`` was given, in all runs, up to where a worker died."""
        return [line.message for line in self.job.logs]

    @property
    def attempts(self) -> int:
        """How many runs have started."""
        return self._bench.attempts

    @property
    def job(self) -> DurableJob:
        """The job as it is stored.

        Raises:
            RuntimeError: Nothing has run yet.
        """
        if not self._begun:
            raise RuntimeError("the job has not run yet, so there is nothing to show: run() it")
        return wait_for(self._bench.job())

    def _uninterrupted(self, body: Any) -> DurableJob:
        self._last = wait_for(self._attempt(body, None))
        if self._last.error is not None:
            raise self._last.error
        return self.job

    def _interrupted(self, kind: Kind, step: str, occurrence: int, seq: str | None) -> Attempt:
        checked_text(step, "step")
        if seq is not None:
            checked_text(seq, "seq")
        fault = Fault(kind, step, checked_whole(occurrence, "occurrence", 1), seq)
        self._last = ended = wait_for(self._attempt(self._body, fault))
        if not ended.reached:
            error = ended.error
            how = "returned" if error is None else f"raised {type(error).__name__}: {error}"
            kept = ((record.name, record.seq) for record in self.steps)
            raise CrashNotReached(str(fault), how, tuple(f"{name!r} at {seq}" for name, seq in kept)) from error
        return ended

    async def _attempt(self, body: Any, fault: Fault | None) -> Attempt:
        if not self._begun:
            await self._bench.place()
            self._begun = True
        return await attempt(self._bench, body, fault)
