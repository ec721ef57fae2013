"""What a store of jobs has to do, for whoever writes one for another database.

``Backend`` is called by code that waits, ``AsyncBackend`` by code that awaits; they differ in nothing else. The words:

* A **claim** is the right to run a job until its **lease** ends; a heartbeat makes the lease longer. Its **token** is
  fresh and fences every later write: what carries another token changes nothing.
* A job is **due** when its ``run_at`` has come. Among due jobs the lower priority number starts first, then the earlier
  ``run_at``, then the lower id. A plain job of the base layer has priority 0 and is due since it was added.
* A **dedupe key** names one resource. In scope ``"queued+running"`` one job lives under it; in scope ``"queued"`` one
  may wait behind one that runs. The store itself must refuse a second, under any interleaving: never look and then
  write.

When it is not known whether a call was done, it may be made again. ``settle``, ``heartbeat``, ``append_step``,
``recover``, ``update``, ``cancel`` and what only reads change nothing more then, nor does an enqueue of a key that is
held. What starts a run starts another; the first is given back when it turns up. ``enqueue`` without a key stores
another job, ``log`` may double its lines. A store that cannot be reached raises its driver's error; that it refuses, or
what became of a claim, is an answer.

A claimed job carries its journal: ``job.document["durable"]["steps"]`` is what ``read_steps`` gives, so that a run that
resumes reads nothing more. A backend without ``append_step`` runs jobs and no orchestrations. What only the backends on
MongoDB have is ``transaction``; on any other ``ctx.transaction()`` and transactional steps are a
``TransactionsUnsupportedError``. And ``settle_and_claim``, by which a worker ends runs and starts others in their slots
in one write; on any other it settles and then claims.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from durabl_ext.claims import Claim
from durabl_ext.core.journal import Step
from durabl_ext.core.plans import Settlement
from durabl_ext.core.recover import Recovered
from durabl_ext.job import DurableJob, FailureKind, LogLine
from durabl_ext.options import Enqueue, Seconds
from durabl_ext.outcomes import Appended, KeyBusy, LeaseLost, NoRoom, NotFailed, NotFound, Renewed, Retried, Settled
from durabl_ext.stats import QueueStats


class Backend(Protocol):
    """Stores jobs and decides, atomically, who may run which."""

    def startup(self) -> None:
        """Prepares the store and checks that it can keep its promises. Calling it again does no harm.

        Raises:
            UnsupportedServerError: The server is too old.
            IndexConflictError: An index cannot be made; the message says what to do.
        """

    def shutdown(self) -> None:
        """Starts and stores no more jobs. What runs can still be settled."""

    def now(self) -> datetime:
        """The store's time, by which all processes agree what is due and what has expired.

        Workers ask often: keep the distance to the store's clock rather than ask the store each time. What is due must
        follow the same clock, or a job that is due by the one and not yet by the other is overlooked.
        """

    def enqueue(self, jobs: Sequence[Enqueue], *, session: Any = None) -> list[str | None]:
        """Stores jobs to run later, after all have been checked.

        Args:
            jobs: What to store, in order.
            session: The caller's transaction, with which the jobs are stored or not; None means at once. There the
                indexes of dedupe keys must have been made before: call ``startup`` when the program starts.

        Returns:
            For each its id; with ``coalesce="latest"`` the id of the waiting job that got its data; None where the key
            is taken and nothing was stored.

        Raises:
            PayloadError: An option cannot be stored; ``.path`` names it. Nothing was stored.
            DedupeScopeConflictError: A key is held by a job of the other scope. Others of them may be stored.
            BackendClosedError: After ``shutdown``.
        """

    def claim(
        self,
        actions: Collection[str] | Mapping[str, int],
        limit: int | None = None,
        *,
        lease: Seconds,
        adopt: Mapping[str, int] | None = None,
    ) -> list[Claim]:
        """Starts due jobs of some actions, the most urgent first, and never one whose key a run holds.

        A key that is held delays nobody else: jobs behind it start in the same call.

        Args:
            actions: Start only jobs of these; a mapping says how many of each at most.
            limit: At most so many of all. None, with a mapping, means as many as that says.
            lease: Seconds, or a timedelta, until the runs count as dead without a heartbeat.
            adopt: How many attempts a plain job gets when it is claimed, by action. None, or an action not named,
                means 3.

        Returns:
            The claims, in the order the jobs are to start. Fewer than asked for mean that there may be more, since
            others may have been quicker; none means that there is none. When an answer was lost, those that are known;
            the others are given back by the backend itself when they turn up.

        Raises:
            An error of the driver: It is not known of any that it was started.
        """

    def next_due(self, actions: Collection[str], after: datetime) -> datetime | None:
        """When the next queued job of some actions is due that was not due at a time; None when there is none."""

    def claim_by_id(self, id: str | UUID, *, lease: Seconds) -> Claim | None:
        """Starts one job if it is queued and due and nothing holds its key; None when not."""

    def claim_by_key(self, action: str, dedupe_key: str, *, lease: Seconds) -> Claim | None:
        """Starts the job of an action that waits under a key, if it is due and nothing holds the key; None when not."""

    def claim_or_enqueue(self, job: Enqueue, *, lease: Seconds) -> Claim | None:
        """Starts a new job here, or leaves the work to others and gives None.

        | scope | a job of the key runs | one waits |
        |---|---|---|
        | ``"queued"`` | one is stored that waits behind it | nothing is stored; with ``coalesce`` it gets the data |
        | ``"queued+running"`` | nothing is stored | nothing is stored |

        Without a key, and under a key that nobody holds, the job runs here.

        Raises:
            DedupeScopeConflictError: The key is held by a job of the other scope.
            IndexConflictError: The store has lost what refuses a second run of a key, and there is one. Nothing was
                stored; try again.
            PayloadError: An option cannot be stored. Nothing was.
            BackendClosedError: After ``shutdown``.
        """

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Ends claims: the only way a run ends, but for its lease.

        A failure with attempts left, and a release, go back to the queue. Where a job of the same action waits under
        the key by then, that one covers the work and this one ends as superseded; behind one of another action it ends
        as failed and can be retried once that has ended.

        Returns:
            For each what became of it. ``LeaseLost`` when the claim is no longer this one's, ``AlreadyTerminal`` when
            somebody else has ended the job: nothing was changed.
        """

    def heartbeat(self, claims: Sequence[Claim], *, lease: Seconds) -> list[Renewed | LeaseLost]:
        """Renews leases, counted from now. One that is longer already stays."""

    def log(self, claim: Claim, lines: Sequence[LogLine]) -> Appended | LeaseLost | NoRoom:
        """Adds lines to the log of a run; the oldest make way for the newest."""

    def recover(self, limit: int = 1_000) -> Recovered:
        """Takes up to ``limit`` jobs from runs whose lease has ended: to wait like after a failure, or to their end.

        A heartbeat, an ending or a new claim that lands meanwhile wins. A job that cannot be changed holds up no other.
        """

    def read_steps(self, id: str | UUID) -> list[dict[str, Any]] | None:
        """Gives the steps a job has finished, oldest first; None when there is no such job."""

    def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound:
        """Adds a finished step to the journal of a run; one that is there already is not added again.

        Raises:
            JournalTooLarge: There is no room for it. Nothing was written.
        """

    def has_outstanding(self, action: str, dedupe_key: str) -> bool:
        """Whether a job of an action is queued or runs under a key. A moment later the answer may be another."""

    def list_failed(
        self, *, action: str | None = None, failure_kind: FailureKind | None = None, limit: int = 50
    ) -> list[DurableJob]:
        """Gives failed jobs, the latest first: of one action and kind, or of all (None)."""

    def retry(self, id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        """Puts a failed job back in the queue, due now, with all its attempts and with its journal."""

    def get_stats(self, action: str | None = None) -> QueueStats:
        """Counts the jobs of an action, or of all (None), and says how far the queue is behind."""

    def get(self, id: str | UUID) -> DurableJob | None:
        """Reads a job; None when there is none of this id."""

    def update(self, id: str | UUID, values: Mapping[str, Any], *, session: Any = None) -> Any:
        """Sets top-level fields of a job's ``data``, as the base layer's ``update`` does."""

    def cancel(self, id: str | UUID, *, session: Any = None) -> DurableJob | None:
        """Cancels a job that is still queued; None when there is none, or it was claimed or has ended."""

    def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> Any:
        """Deletes jobs that ended at or before a time (None: now), oldest first; queued and running ones stay."""


class AsyncBackend(Protocol):
    """Stores jobs and decides who may run which, as ``Backend`` does, for code that awaits."""

    async def startup(self) -> None: ...
    async def shutdown(self) -> None: ...
    async def now(self) -> datetime: ...
    async def enqueue(self, jobs: Sequence[Enqueue], *, session: Any = None) -> list[str | None]: ...
    async def claim(
        self,
        actions: Collection[str] | Mapping[str, int],
        limit: int | None = None,
        *,
        lease: Seconds,
        adopt: Mapping[str, int] | None = None,
    ) -> list[Claim]: ...
    async def next_due(self, actions: Collection[str], after: datetime) -> datetime | None: ...
    async def claim_by_id(self, id: str | UUID, *, lease: Seconds) -> Claim | None: ...
    async def claim_by_key(self, action: str, dedupe_key: str, *, lease: Seconds) -> Claim | None: ...
    async def claim_or_enqueue(self, job: Enqueue, *, lease: Seconds) -> Claim | None: ...
    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]: ...
    async def heartbeat(self, claims: Sequence[Claim], *, lease: Seconds) -> list[Renewed | LeaseLost]: ...
    async def log(self, claim: Claim, lines: Sequence[LogLine]) -> Appended | LeaseLost | NoRoom: ...
    async def recover(self, limit: int = 1_000) -> Recovered: ...
    async def read_steps(self, id: str | UUID) -> list[dict[str, Any]] | None: ...
    async def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound: ...
    async def has_outstanding(self, action: str, dedupe_key: str) -> bool: ...
    async def list_failed(
        self, *, action: str | None = None, failure_kind: FailureKind | None = None, limit: int = 50
    ) -> list[DurableJob]: ...
    async def retry(self, id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound: ...
    async def get_stats(self, action: str | None = None) -> QueueStats: ...
    async def get(self, id: str | UUID) -> DurableJob | None: ...
    async def update(self, id: str | UUID, values: Mapping[str, Any], *, session: Any = None) -> Any: ...
    async def cancel(self, id: str | UUID, *, session: Any = None) -> DurableJob | None: ...
    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> Any: ...
