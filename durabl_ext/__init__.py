"""Retries, leases, deduplication, priorities and delays on the jobs of ``simplequeue``.

Workers are under construction: what is here stores jobs, decides who may run them and looks after them.
"""

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.core.journal import Step
from durabl_ext.core.recover import Recovered
from durabl_ext.core.settle import Settlement
from durabl_ext.errors import (
    BackendClosedError,
    DedupeScopeConflictError,
    FatalJobError,
    IndexConflictError,
    JournalTooLarge,
    PayloadError,
)
from durabl_ext.handle import AsyncJobHandle, JobHandle
from durabl_ext.job import DurableJob, FailureKind, LogLine
from durabl_ext.memory import AsyncDummyBackend, AsyncImmediateBackend, DummyBackend, ImmediateBackend
from durabl_ext.mongo import AsyncMongoJobQueue, MongoJobQueue
from durabl_ext.options import Backoff, Enqueue
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
from durabl_ext.stats import QueueStats

__all__ = [
    "AlreadyTerminal",
    "Appended",
    "AsyncBackend",
    "AsyncDummyBackend",
    "AsyncImmediateBackend",
    "AsyncJobHandle",
    "AsyncJobQueue",
    "AsyncMongoJobQueue",
    "Backend",
    "BackendClosedError",
    "Backoff",
    "Claim",
    "Completed",
    "DedupeScopeConflictError",
    "DummyBackend",
    "DurableJob",
    "Enqueue",
    "FailedTerminal",
    "FailureKind",
    "FatalJobError",
    "ImmediateBackend",
    "IndexConflictError",
    "JobHandle",
    "JobQueue",
    "JournalTooLarge",
    "KeyBusy",
    "LeaseLost",
    "LogLine",
    "MongoJobQueue",
    "NoRoom",
    "NotFailed",
    "NotFound",
    "PayloadError",
    "QueueStats",
    "Recovered",
    "Released",
    "Renewed",
    "Retried",
    "RetryScheduled",
    "Settled",
    "Settlement",
    "Step",
    "Superseded",
    "upgrade",
]
