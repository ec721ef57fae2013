"""The errors of the extension, by who must act.

    BaseException                  what no ``except Exception`` of a body may swallow
    ├── RunAborted                 the run was told to stop (from runtime.signal)
    └── NondeterminismError        the body does not do what its journal says it did
    Exception
    ├── FatalJobError              a handler says: another attempt cannot succeed
    │   ├── NonRetryable           the body of an orchestration says so
    │   ├── JournalTooLarge        the steps return more than a document can keep
    │   ├── NonSerializableStepResult     a step returns what cannot be stored
    │   └── TransactionsUnsupportedError  the operator must give the server a replica set
    ├── TimeoutError
    │   ├── StepTimeout            a step took too long
    │   └── MaxDurationExceeded    all of them did
    ├── StepFailed                 a step had failed, in an earlier run, with an error that is not there any more
    ├── ValueError
    │   └── PayloadError           the caller passed what cannot be stored (from simplequeue)
    └── RuntimeError
        ├── OrchestratorTypeConflict      the application uses one action in two ways
        ├── OrchestrationUnsupportedError the backend keeps no journal
        ├── DedupeScopeConflictError   the application uses one key in two ways
        ├── IndexConflictError         the operator must drop an old index (from simplequeue)
        ├── BackendClosedError         the application uses a backend after its shutdown
        ├── QueueShutdownError         the application starts work on a queue that is shut down
        └── LeaseLostError             a run was done, and what became of its job is for another to say

Outcomes a caller must branch on are values, in ``outcomes``; nothing here is one.
"""

from __future__ import annotations

from simplequeue.collection import IndexConflictError
from simplequeue.payload import PayloadError

__all__ = [
    "BackendClosedError",
    "DedupeScopeConflictError",
    "FatalJobError",
    "IndexConflictError",
    "JournalTooLarge",
    "LeaseLostError",
    "MaxDurationExceeded",
    "NonRetryable",
    "NonSerializableStepResult",
    "NondeterminismError",
    "OrchestrationUnsupportedError",
    "OrchestratorTypeConflict",
    "PayloadError",
    "QueueShutdownError",
    "StepFailed",
    "StepTimeout",
    "TransactionsUnsupportedError",
]


class FatalJobError(Exception):
    """Says, raised by a handler, that no further attempt can succeed: the job fails now, whatever is left to it.

    Raise it ``from`` the error that showed it; the cause is kept in the stored stack.
    """


def is_fatal(error: BaseException) -> bool:
    """Whether an error says that no further attempt can succeed, be it as one of a group that tasks raised together."""
    fatal = (FatalJobError, NondeterminismError)
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(fatal) is not None
    return isinstance(error, fatal)


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


class QueueShutdownError(RuntimeError):
    """Says that a queue is shut down, or about to be, and starts no more work. Jobs can still be enqueued."""


class LeaseLostError(RuntimeError):
    """Says that the lease of a run was lost before its end was stored: another worker may run the job again.

    Attributes:
        job_id: The job.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return (
            f"the lease of job {self.job_id} was lost before its end was stored: another worker may run it again, so "
            "its work must stand being done twice"
        )


class JournalTooLarge(FatalJobError):  # noqa: N818  # the name users know it by
    """Says that a job's journal, or its document, has no room for one more step. Nothing was written.

    Steps should return ids and references, not what they stand for.

    Attributes:
        job_id: The job.
        step: The step's name.
        size: What the step would add, in encoded bytes.
        used: What the journal takes already.
        limit: What it may take.
    """

    def __init__(self, job_id: str, step: str, size: int, used: int, limit: int) -> None:
        super().__init__(job_id, step, size, used, limit)
        self.job_id, self.step, self.size, self.used, self.limit = job_id, step, size, used, limit

    def __str__(self) -> str:
        return (
            f"step {self.step!r} of job {self.job_id} would add {self.size:,} bytes to a journal of {self.used:,}; it "
            f"may take {self.limit:,}, and the document must keep room to end: return an id instead of the thing itself"
        )


class TransactionsUnsupportedError(FatalJobError):
    """Says that there can be no transaction here: they need a replica set, which may have one member.

    In memory there is none; the pytest fixture ``mongo_replica_set`` starts a server that has.

    Attributes:
        job_id: The job whose handler or step asked for one.
        reason: Why there is none.
        remedy: What to do about it.
    """

    def __init__(
        self,
        job_id: str,
        reason: str = "there is no replica set here",
        remedy: str = "start mongod with --replSet, one member is enough; in tests take the fixture mongo_replica_set, "
        "with OrchestrationHarness and assert_crash_safe as db=mongo_replica_set.test",
    ) -> None:
        super().__init__(job_id, reason, remedy)
        self.job_id, self.reason, self.remedy = job_id, reason, remedy

    def __str__(self) -> str:
        return f"job {self.job_id} asked for a transaction, and {self.reason}: {self.remedy}"


class NonRetryable(FatalJobError):  # noqa: N818  # the name users know it by
    """Says, raised by the body of an orchestration or by a step, that no further attempt can succeed."""


class NonSerializableStepResult(FatalJobError):  # noqa: N818  # the name users know it by
    """Says that a step returned what cannot be stored. Its function has run, and its result was not kept.

    Attributes:
        job_id: The job.
        step: The step's name.
        problem: Where in the result, and what to return instead.
    """

    def __init__(self, job_id: str, step: str, problem: str) -> None:
        super().__init__(job_id, step, problem)
        self.job_id, self.step, self.problem = job_id, step, problem

    def __str__(self) -> str:
        return (
            f"step {self.step!r} of job {self.job_id} returned what cannot be stored: {self.problem}. Its function has "
            "run and will run again if the job is retried: return plain data, such as ids, texts, numbers, lists, dicts"
        )


class NondeterminismError(BaseException):
    """Says that a body does not do what its journal says it did, or starts steps in an order that is left to chance.

    It is no ``Exception``, so that a body which catches everything cannot go on. The job fails for good, its key is
    free and its journal is kept: with the body as it was before, ``resume`` goes on where it stopped.

    Attributes:
        job_id: The job.
        seq: The place in the journal.
        recorded: What the journal has there, None for nothing.
        called: What the body did there.
    """

    def __init__(self, job_id: str, seq: str, recorded: str | None, called: str, remedy: str) -> None:
        super().__init__(job_id, seq, recorded, called, remedy)
        self.job_id, self.seq, self.recorded, self.called, self.remedy = job_id, seq, recorded, called, remedy

    def __str__(self) -> str:
        if self.recorded is None:
            return f"job {self.job_id}: the body {self.called}. {self.remedy}"
        place = f"job {self.job_id}, step {self.seq}"
        return f"{place}: the journal has {self.recorded}, the body {self.called}. {self.remedy}"


class StepTimeout(TimeoutError):  # noqa: N818  # the name users know it by
    """Says that a step took longer than its timeout. It may still go on, if it heeds neither signal nor cancellation.

    Attributes:
        job_id: The job.
        step: The step's name.
        timeout: What it had, in seconds.
    """

    def __init__(self, job_id: str, step: str, timeout: float) -> None:
        super().__init__(job_id, step, timeout)
        self.job_id, self.step, self.timeout = job_id, step, timeout

    def __str__(self) -> str:
        return (
            f"step {self.step!r} of job {self.job_id} took longer than its timeout of {self.timeout:g} s; give it more "
            "with timeout=, or with step_timeout= for all steps"
        )


class MaxDurationExceeded(TimeoutError):  # noqa: N818  # the name users know it by
    """Says that one run of a body took longer than its ``max_duration``. The next attempt goes on after its last step.

    Attributes:
        job_id: The job.
        max_duration: What it had, in seconds.
    """

    def __init__(self, job_id: str, max_duration: float) -> None:
        super().__init__(job_id, max_duration)
        self.job_id, self.max_duration = job_id, max_duration

    def __str__(self) -> str:
        return f"a run of job {self.job_id} took longer than its max_duration of {self.max_duration:g} s"


class StepFailed(Exception):  # noqa: N818  # beside StepTimeout
    """Says that a step had failed in an earlier run, where the body went on, with an error that cannot be made again.

    Attributes:
        job_id: The job.
        step: The step's name.
        error_name: The class of the error.
        message: Its text.
    """

    def __init__(self, job_id: str, step: str, error_name: str, message: str) -> None:
        super().__init__(job_id, step, error_name, message)
        self.job_id, self.step, self.error_name, self.message = job_id, step, error_name, message

    def __str__(self) -> str:
        return f"step {self.step!r} of job {self.job_id} had failed with {self.error_name}: {self.message}"


class OrchestratorTypeConflict(RuntimeError):  # noqa: N818  # the name users know it by
    """Says that an action is not, or cannot become, an orchestration of this orchestrator.

    Attributes:
        action: The action.
    """

    def __init__(self, action: str, problem: str) -> None:
        super().__init__(action, problem)
        self.action, self.problem = action, problem

    def __str__(self) -> str:
        return f"action {self.action!r} {self.problem}"


class OrchestrationUnsupportedError(RuntimeError):
    """Says that a queue's backend keeps no journal: it has no ``append_step``, as ``Backend`` describes it."""
