"""Retries, leases, deduplication, priorities and delays on the jobs of ``simplequeue``.

A ``JobQueue`` over a database enqueues jobs, runs them with the handlers it is given and looks after them; an
``AsyncJobQueue`` does so for code that awaits.
"""

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.core.journal import Step
from durabl_ext.core.plans import Settlement
from durabl_ext.core.recover import Recovered
from durabl_ext.errors import (
    BackendClosedError,
    DedupeScopeConflictError,
    FatalJobError,
    IndexConflictError,
    JournalTooLarge,
    LeaseLostError,
    MaxDurationExceeded,
    NondeterminismError,
    NonRetryable,
    NonSerializableStepResult,
    OrchestrationUnsupportedError,
    OrchestratorTypeConflict,
    PayloadError,
    QueueShutdownError,
    StepFailed,
    StepTimeout,
    TransactionsUnsupportedError,
)
from durabl_ext.events import (
    Event,
    JobClaimed,
    JobCompleted,
    JobFailed,
    JobFailedFatally,
    JobLeaseLost,
    JobReleased,
    JobSuperseded,
    ReaperFailed,
    ReaperRecovered,
)
from durabl_ext.handle import AsyncJobHandle, JobHandle
from durabl_ext.job import DurableJob, FailureKind, LogLine
from durabl_ext.memory import AsyncDummyBackend, AsyncImmediateBackend, DummyBackend, ImmediateBackend
from durabl_ext.mongo import AsyncMongoJobQueue, MongoJobQueue
from durabl_ext.options import Backoff, Enqueue
from durabl_ext.orchestrator import (
    AsyncOrchestrationContext,
    AsyncOrchestrator,
    AsyncStepContext,
    Bounds,
    JournalView,
    OrchestrationContext,
    Orchestrator,
    StepContext,
    StepView,
)
from durabl_ext.outcomes import (
    AlreadyTerminal,
    Appended,
    Completed,
    FailedTerminal,
    KeyBusy,
    LeaseLost,
    NoRoom,
    NotFailed,
    NotFound,
    Released,
    Renewed,
    Retried,
    RetryScheduled,
    Settled,
    Superseded,
)
from durabl_ext.queue import AsyncJobQueue, JobQueue, upgrade
from durabl_ext.runtime.context import AsyncJobContext, JobContext
from durabl_ext.runtime.processors import HeartbeatConfigConflict
from durabl_ext.runtime.reaper import ReaperAlreadyRunning, ReaperStarted
from durabl_ext.runtime.signal import AsyncSignal, RunAborted, Signal
from durabl_ext.settings import (
    create_job_queue,
    get_default_queue,
    get_global_backend,
    global_queue,
    set_global_backend,
)
from durabl_ext.stats import QueueStats

__all__ = [
    "AlreadyTerminal",
    "Appended",
    "AsyncBackend",
    "AsyncDummyBackend",
    "AsyncImmediateBackend",
    "AsyncJobContext",
    "AsyncJobHandle",
    "AsyncJobQueue",
    "AsyncMongoJobQueue",
    "AsyncOrchestrationContext",
    "AsyncOrchestrator",
    "AsyncSignal",
    "AsyncStepContext",
    "Backend",
    "BackendClosedError",
    "Backoff",
    "Bounds",
    "Claim",
    "Completed",
    "DedupeScopeConflictError",
    "DummyBackend",
    "DurableJob",
    "Enqueue",
    "Event",
    "FailedTerminal",
    "FailureKind",
    "FatalJobError",
    "HeartbeatConfigConflict",
    "ImmediateBackend",
    "IndexConflictError",
    "JobClaimed",
    "JobCompleted",
    "JobContext",
    "JobFailed",
    "JobFailedFatally",
    "JobHandle",
    "JobLeaseLost",
    "JobQueue",
    "JobReleased",
    "JobSuperseded",
    "JournalTooLarge",
    "JournalView",
    "KeyBusy",
    "LeaseLost",
    "LeaseLostError",
    "LogLine",
    "MaxDurationExceeded",
    "MongoJobQueue",
    "NoRoom",
    "NonRetryable",
    "NonSerializableStepResult",
    "NondeterminismError",
    "NotFailed",
    "NotFound",
    "OrchestrationContext",
    "OrchestrationUnsupportedError",
    "Orchestrator",
    "OrchestratorTypeConflict",
    "PayloadError",
    "QueueShutdownError",
    "QueueStats",
    "ReaperAlreadyRunning",
    "ReaperFailed",
    "ReaperRecovered",
    "ReaperStarted",
    "Recovered",
    "Released",
    "Renewed",
    "Retried",
    "RetryScheduled",
    "RunAborted",
    "Settled",
    "Settlement",
    "Signal",
    "Step",
    "StepContext",
    "StepFailed",
    "StepTimeout",
    "StepView",
    "Superseded",
    "TransactionsUnsupportedError",
    "create_job_queue",
    "get_default_queue",
    "get_global_backend",
    "global_queue",
    "set_global_backend",
    "upgrade",
]
