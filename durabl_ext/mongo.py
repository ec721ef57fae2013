"""The backends on MongoDB: ``Decisions`` over a collection, awaited or waited for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.results import DeleteResult, UpdateResult

from durabl_ext.claims import Claim
from durabl_ext.core.journal import Limits, Step
from durabl_ext.core.plans import Settlement
from durabl_ext.core.recover import Recovered
from durabl_ext.decisions import Decisions, Push
from durabl_ext.job import DurableJob, FailureKind, LogLine
from durabl_ext.options import Enqueue, Seconds
from durabl_ext.outcomes import Appended, KeyBusy, LeaseLost, NoRoom, NotFailed, NotFound, Renewed, Retried, Settled
from durabl_ext.stats import QueueStats
from simplequeue.collection import CollectionJobs
from simplequeue.job import Document
from simplequeue.jobs import blocking, native, run, threaded
from simplequeue.threads import Threads


class AsyncMongoJobQueue(Decisions):
    """Keeps jobs in a collection of MongoDB, for code that awaits: an ``AsyncBackend``.

    Args: as for ``MongoJobQueue``, with an ``AsyncDatabase``.
    """

    def __init__(
        self,
        db: AsyncDatabase[Any],
        *,
        collection: str = "job",
        push: Push = "auto",
        journal_soft_limit: int = 8_000_000,
        max_log_entries: int = 1_000,
        max_log_message_bytes: int = 4_000,
    ) -> None:
        if not isinstance(db, AsyncDatabase):
            raise TypeError(f"db: expected an AsyncDatabase of PyMongo, found {_named(db)}")
        limits = Limits(journal_soft_limit, max_log_entries, max_log_message_bytes)
        super().__init__(CollectionJobs(db[collection], native), push, limits)

    @property
    def place(self) -> tuple[str, str]:
        """The names of the database and of the collection."""
        return self._jobs.place

    @classmethod
    def on(cls, jobs: CollectionJobs, push: Push = "auto", limits: Limits | None = None) -> Self:
        """The same on calls that are made already, as a queue of the base layer makes them."""
        self = cls.__new__(cls)
        Decisions.__init__(self, jobs, push, limits or Limits())
        return self


class MongoJobQueue:
    """Keeps jobs in a collection of MongoDB: a ``Backend``. It holds no thread and may be made before a fork.

    Args:
        db: A ``Database`` of PyMongo. Whatever its client's defaults, writes are acknowledged by a majority and reads
            come from the primary.
        collection: Where the jobs are: the base layer's collection, whose jobs it shares.
        push: Whether workers are to hear of new jobs by a change stream. ``"auto"``: where the server has them; True: a
            server without is an error at startup; False: they poll.
        journal_soft_limit: How many encoded bytes the steps of one job may take.
        max_log_entries: How many lines of log a job keeps, the newest.
        max_log_message_bytes: What a longer line is cut to.

    Raises:
        TypeError: ``db`` is something else.
        PayloadError: Another argument is not as above.
    """

    def __init__(
        self,
        db: Database[Any],
        *,
        collection: str = "job",
        push: Push = "auto",
        journal_soft_limit: int = 8_000_000,
        max_log_entries: int = 1_000,
        max_log_message_bytes: int = 4_000,
    ) -> None:
        if not isinstance(db, Database):
            raise TypeError(
                f"db: expected a Database of PyMongo, found {_named(db)}; for unit tests without a server there are "
                "DummyBackend and ImmediateBackend"
            )
        limits = Limits(journal_soft_limit, max_log_entries, max_log_message_bytes)
        self._decisions = Decisions(CollectionJobs(db[collection], blocking), push, limits)

    @classmethod
    def on(cls, jobs: CollectionJobs, push: Push = "auto", limits: Limits | None = None) -> Self:
        """The same on calls that are made already, as a queue of the base layer makes them."""
        self = cls.__new__(cls)
        self._decisions = Decisions(jobs, push, limits or Limits())
        return self

    @property
    def here(self) -> Decisions:
        """The same as coroutines that never suspend: their calls wait in the caller's thread."""
        return self._decisions

    def through(self, threads: Threads) -> Decisions:
        """The same as coroutines whose calls wait in threads."""
        jobs = self._decisions._jobs.through(lambda call: threaded(call, threads))
        return Decisions(jobs, self._decisions.push, self._decisions._limits)

    def startup(self) -> None:
        """Makes the indexes and checks the server, as ``Backend.startup`` says."""
        run(self._decisions.startup())

    def shutdown(self) -> None:
        """Starts and stores no more jobs, as ``Backend.shutdown`` says."""
        run(self._decisions.shutdown())

    def now(self) -> datetime:
        """Gives the server's time, as ``Backend.now`` says."""
        return run(self._decisions.now())

    def enqueue(self, jobs: Sequence[Enqueue], *, session: ClientSession | None = None) -> list[str | None]:
        """Stores jobs, as ``Backend.enqueue`` says; with a session in its transaction."""
        return run(self._decisions.enqueue(jobs, session=session))

    def claim(
        self,
        actions: Collection[str] | Mapping[str, int],
        limit: int | None = None,
        *,
        lease: Seconds,
        adopt: Mapping[str, int] | None = None,
    ) -> list[Claim]:
        """Starts due jobs, as ``Backend.claim`` says."""
        return run(self._decisions.claim(actions, limit, lease=lease, adopt=adopt))

    def next_due(self, actions: Collection[str], after: datetime) -> datetime | None:
        """Gives when to look next, as ``Backend.next_due`` says."""
        return run(self._decisions.next_due(actions, after))

    def claim_by_id(self, id: str | UUID, *, lease: Seconds) -> Claim | None:
        """Starts one job, as ``Backend.claim_by_id`` says."""
        return run(self._decisions.claim_by_id(id, lease=lease))

    def claim_by_key(self, action: str, dedupe_key: str, *, lease: Seconds) -> Claim | None:
        """Starts the job that waits under a key, as ``Backend.claim_by_key`` says."""
        return run(self._decisions.claim_by_key(action, dedupe_key, lease=lease))

    def claim_or_enqueue(self, job: Enqueue, *, lease: Seconds) -> Claim | None:
        """Starts a new job here or lets it wait, as ``Backend.claim_or_enqueue`` says."""
        return run(self._decisions.claim_or_enqueue(job, lease=lease))

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Ends claims, as ``Backend.settle`` says."""
        return run(self._decisions.settle(settlements))

    def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        actions: Mapping[str, int],
        *,
        lease: Seconds,
        adopt: Mapping[str, int] | None = None,
    ) -> tuple[list[Settled | Exception], list[Claim]]:
        """Ends claims and starts others in their place, in one write.

        Args:
            settlements: As for ``settle``.
            actions: How many of each action to start at most.
            lease: As for ``claim``.
            adopt: As for ``claim``.

        Returns:
            What became of each end, an error where that is not known and settling it again is safe; and the claims,
            none also where nothing can be said of what may start.
        """
        return run(self._decisions.settle_and_claim(settlements, actions, lease=lease, adopt=adopt))

    def heartbeat(self, claims: Sequence[Claim], *, lease: Seconds) -> list[Renewed | LeaseLost]:
        """Renews leases, as ``Backend.heartbeat`` says."""
        return run(self._decisions.heartbeat(claims, lease=lease))

    def log(self, claim: Claim, lines: Sequence[LogLine]) -> Appended | LeaseLost | NoRoom:
        """Adds lines to a job's log, as ``Backend.log`` says."""
        return run(self._decisions.log(claim, lines))

    def recover(self, limit: int = 1_000) -> Recovered:
        """Takes jobs from dead runs, as ``Backend.recover`` says."""
        return run(self._decisions.recover(limit))

    def read_steps(self, id: str | UUID) -> list[Document] | None:
        """Reads a journal, as ``Backend.read_steps`` says."""
        return run(self._decisions.read_steps(id))

    def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound:
        """Adds to a journal, as ``Backend.append_step`` says."""
        return run(self._decisions.append_step(claim, step))

    def has_outstanding(self, action: str, dedupe_key: str) -> bool:
        """Looks for a job under a key, as ``Backend.has_outstanding`` says."""
        return run(self._decisions.has_outstanding(action, dedupe_key))

    def list_failed(
        self, *, action: str | None = None, failure_kind: FailureKind | None = None, limit: int = 50
    ) -> list[DurableJob]:
        """Gives failed jobs, as ``Backend.list_failed`` says."""
        return run(self._decisions.list_failed(action=action, failure_kind=failure_kind, limit=limit))

    def retry(self, id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        """Puts a failed job back in the queue, as ``Backend.retry`` says."""
        return run(self._decisions.retry(id))

    def get_stats(self, action: str | None = None) -> QueueStats:
        """Counts jobs, as ``Backend.get_stats`` says."""
        return run(self._decisions.get_stats(action))

    def get(self, id: str | UUID) -> DurableJob | None:
        """Reads a job, as ``Backend.get`` says."""
        return run(self._decisions.get(id))

    def update(
        self, id: str | UUID, values: Mapping[str, Any], *, session: ClientSession | None = None
    ) -> UpdateResult:
        """Sets fields of a job's data, as ``Backend.update`` says."""
        return run(self._decisions.update(id, values, session=session))

    def cancel(self, id: str | UUID, *, session: ClientSession | None = None) -> DurableJob | None:
        """Cancels a queued job, as ``Backend.cancel`` says."""
        return run(self._decisions.cancel(id, session=session))

    def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        """Deletes ended jobs, as ``Backend.sweep`` says."""
        return run(self._decisions.sweep(before, limit=limit))


def _named(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
