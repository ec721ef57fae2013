"""Every decision on one collection, with what is remembered between them.

``core`` decides. Here lives what a decision needs beside its arguments: the checks of those, the indexes it relies on,
limits, tokens, chance, and the claims whose answer was lost. Written once; backends differ in how calls are made.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar, get_args
from uuid import UUID

from pymongo.errors import OperationFailure, PyMongoError
from pymongo.results import DeleteResult, UpdateResult

from durabl_ext.arguments import check_settlement, checked_actions, checked_line, checked_wants
from durabl_ext.claims import Claim
from durabl_ext.core import doubts, indexes, journal, leases, replay, stats
from durabl_ext.core.candidates import Reach, next_due
from durabl_ext.core.changes import news
from durabl_ext.core.claim import Claimed, Terms, claim, claim_where, were_claimed
from durabl_ext.core.claim_or_enqueue import claim_or_enqueue
from durabl_ext.core.enqueue import enqueue
from durabl_ext.core.journal import Limits, Step
from durabl_ext.core.plans import Settlement
from durabl_ext.core.recover import Recovered, recover
from durabl_ext.core.settle import Ends, settle
from durabl_ext.core.transaction import Transaction
from durabl_ext.errors import (
    BackendClosedError,
    DedupeScopeConflictError,
    IndexConflictError,
    TransactionsUnsupportedError,
)
from durabl_ext.job import DurableJob, FailureKind, LogLine, durable_from
from durabl_ext.many import checked_all
from durabl_ext.options import (
    Enqueue,
    Seconds,
    checked,
    checked_key,
    checked_lease,
    checked_whole,
)
from durabl_ext.outcomes import Appended, KeyBusy, LeaseLost, NoRoom, NotFailed, NotFound, Renewed, Retried, Settled
from durabl_ext.stats import QueueStats
from durabl_ext.together import together
from simplequeue import operations
from simplequeue.collection import CollectionJobs
from simplequeue.feed import Watch
from simplequeue.job import Document, Job
from simplequeue.jobs import NoChangeStreamError, Session
from simplequeue.operations import known_id
from simplequeue.payload import Codec, PayloadError, checked_action, checked_count, checked_time
from simplequeue.states import CLAIM

T = TypeVar("T")
Push = Literal["auto", True, False]

ENSURE_EVERY = 60.0
"""Seconds between looks of a producer at whether the indexes of its keys are still there."""

REACH = 8
"""How many times as many candidates as it wants a claim reads at most, while others are quicker at the first ones."""

CALM = 8
"""After how many claims without a rival it comes back half of the way to the head of the queue."""

HINT_WITHOUT_INDEX = 2
"""BadValue: what the server answers a command that names an index which is not there."""


class Decisions:
    """Makes decisions on the jobs of one collection. ``AsyncBackend`` says what each method does.

    Args:
        jobs: The collection.
        push: Whether workers are to hear of new jobs by a change stream; True: must.
        limits: What a document may gather.
    """

    def __init__(self, jobs: CollectionJobs, push: Push, limits: Limits) -> None:
        if push not in ("auto", True, False):
            raise PayloadError("push", f"expected 'auto', True or False, found {push!r}")
        self.push: Push = push
        self._jobs = jobs
        self._limits = limits
        shared = together(jobs)
        self._insert_each = None if shared is None else shared.insert_each
        self._closed = False
        # The system's chance: an application's seed, or a fork, must not make retries everywhere due at once.
        chance = random.SystemRandom()
        self._uniform, self._pick = chance.uniform, chance.sample
        self._reach, self._calm = 1, 0
        self._ensure_again = 0.0
        self._doubts: dict[str, tuple[frozenset[Any], float]] = {}

    @property
    def watch(self) -> Watch | None:
        """How workers open their change stream; None when they are to poll."""
        return None if self.push is False else partial(self._jobs.watch, news())

    @property
    def codec(self) -> Codec:
        """How values are stored."""
        return self._jobs.codec

    async def startup(self) -> None:
        await self._jobs.check_server()
        await self._ensure_indexes()
        if self.push is True:
            try:
                stream = await self._jobs.watch({})
            except NoChangeStreamError as reason:
                raise NoChangeStreamError(
                    f"push=True needs change streams, which this server has not: {reason}. They need a replica set; "
                    "with push='auto' workers poll where there is none"
                ) from reason
            await stream.close()

    async def shutdown(self) -> None:
        self._closed = True

    async def now(self) -> datetime:
        return await self._jobs.now()

    async def enqueue(self, jobs: Sequence[Enqueue], *, session: Session | None = None) -> list[str | None]:
        self._refuse_closed()
        requests = checked_all(list(jobs), self._jobs.codec)
        if any(request.dedupe for request in requests):
            await self._ensure_dedupe(session)
        return await enqueue(self._jobs, requests, session, self._insert_each)

    async def claim(
        self,
        actions: Collection[str] | Mapping[str, int],
        limit: int | None = None,
        *,
        lease: Seconds,
        adopt: Mapping[str, int] | None = None,
    ) -> list[Claim]:
        wants = checked_wants(actions, limit)
        at_most = sum(wants.values()) if limit is None else checked_count(limit, "limit")
        terms = self._terms(lease, adopt)
        await self._release_strays()
        return await self._started(terms, lambda: self._claimed(wants, at_most, terms))

    async def next_due(self, actions: Collection[str], after: datetime) -> datetime | None:
        wanted, time = checked_actions(actions), checked_time(after, "after")
        return await self._indexed(lambda: next_due(self._jobs, wanted, time))

    async def claim_by_id(self, id: str | UUID, *, lease: Seconds) -> Claim | None:
        if (known := known_id(id)) is None:
            return None
        return await self._claim_one({"_id": known}, lease)

    async def claim_by_key(self, action: str, dedupe_key: str, *, lease: Seconds) -> Claim | None:
        filter = {"action": checked_action(action), indexes.KEY: checked_key(dedupe_key, "dedupe_key")}
        return await self._claim_one(filter, lease)

    async def claim_or_enqueue(self, job: Enqueue, *, lease: Seconds) -> Claim | None:
        self._refuse_closed()
        request = checked(job, self._jobs.codec)
        terms = self._terms(lease)
        if request.dedupe is not None:
            await self._ensure_dedupe(None)
        try:
            started = await claim_or_enqueue(self._jobs, request, terms)
            if started is not None and request.dedupe is not None:
                await self._prove_slot(request.dedupe.key, started, terms.token)
        except DedupeScopeConflictError:
            raise
        except BaseException:  # also a task that was cancelled in the middle of a call
            self._doubt(terms, ())
            raise
        return None if started is None else Claim(started, terms.token)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await settle(self._jobs, _checked_settlements(settlements), self._uniform)

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        actions: Mapping[str, int],
        *,
        lease: Seconds,
        adopt: Mapping[str, int] | None = None,
    ) -> tuple[list[Settled | Exception], list[Claim]]:
        asked = _checked_settlements(settlements)
        wants = checked_wants(actions, None)
        terms = self._terms(lease, adopt)
        ends = Ends(asked, await self.now(), self._uniform)
        claims: list[Claim] = []
        with suppress(PyMongoError):  # what became of the ends is found out in any case
            await self._release_strays()
            claims = await self._started(terms, lambda: self._claimed(wants, sum(wants.values()), terms, ends))
        try:
            return [*await ends.became(self._jobs)], claims
        except Exception as error:  # what has been started must reach its worker
            return [error] * len(asked), claims
        except BaseException:
            self._doubt(terms, ())
            raise

    async def heartbeat(self, claims: Sequence[Claim], *, lease: Seconds) -> list[Renewed | LeaseLost]:
        pairs = [(claim.job.id, claim.token) for claim in claims]
        return await leases.heartbeat(self._jobs, pairs, checked_lease(lease))

    async def log(self, claim: Claim, lines: Sequence[LogLine]) -> Appended | LeaseLost | NoRoom:
        return await journal.log(
            self._jobs,
            claim.job.id,
            claim.token,
            [checked_line(line, f"lines[{n}]") for n, line in enumerate(lines)],
            self._limits,
        )

    async def recover(self, limit: int = 1_000) -> Recovered:
        at_most = checked_count(limit, "limit")
        await self._release_strays()
        return await self._indexed(lambda: recover(self._jobs, at_most, self._uniform))

    async def read_steps(self, id: str | UUID) -> list[Document] | None:
        return None if (known := known_id(id)) is None else await journal.read_steps(self._jobs, known)

    async def append_step(self, claim: Claim, step: Step) -> Appended | LeaseLost | NotFound:
        limit = self._limits.journal_soft_limit
        return await journal.append_step(self._jobs, claim.job.id, claim.token, step, limit)

    async def transaction(self, claim: Claim) -> Transaction:
        if not await self._jobs.has_transactions():
            raise TransactionsUnsupportedError(claim.job.id)
        return Transaction(self._jobs, claim.job.id, claim.token, self._limits)

    async def has_outstanding(self, action: str, dedupe_key: str) -> bool:
        return await stats.has_outstanding(self._jobs, action, dedupe_key)

    async def list_failed(
        self, *, action: str | None = None, failure_kind: FailureKind | None = None, limit: int = 50
    ) -> list[DurableJob]:
        if failure_kind is not None and failure_kind not in get_args(FailureKind):
            raise PayloadError(
                "failure_kind", f"expected one of {get_args(FailureKind)} or None, found {failure_kind!r}"
            )
        of_action = None if action is None else checked_action(action)
        at_most = checked_count(limit, "limit")
        return await self._indexed(lambda: replay.list_failed(self._jobs, of_action, failure_kind, at_most))

    async def retry(self, id: str | UUID) -> Retried | KeyBusy | NotFailed | NotFound:
        await self._ensure_indexes()
        return await replay.retry(self._jobs, id)

    async def get_stats(self, action: str | None = None) -> QueueStats:
        return await self._indexed(lambda: stats.get_stats(self._jobs, action))

    async def get(self, id: str | UUID) -> DurableJob | None:
        return _durable(await operations.get(self._jobs, id))

    async def update(
        self, id: str | UUID, values: Mapping[str, Any], *, session: Session | None = None
    ) -> UpdateResult:
        return await operations.update(self._jobs, id, values, session)

    async def cancel(self, id: str | UUID, *, session: Session | None = None) -> DurableJob | None:
        return _durable(await operations.cancel(self._jobs, id, session))

    async def sweep(self, before: datetime | None = None, *, limit: int | None = None) -> DeleteResult:
        return await operations.sweep(self._jobs, before, limit)

    async def _claimed(self, wants: Mapping[str, int], at_most: int, terms: Terms, ends: Ends | None = None) -> Claimed:
        claimed = await claim(self._jobs, wants, at_most, terms, Reach(self._reach, self._pick), ends)
        # A worker to which others were quicker looks elsewhere next time, and comes back when that was for nothing.
        # With one worker the order stays exact, also where its candidates are cancelled.
        if claimed.lost and (self._reach > 1 or await self._has_rivals(claimed.lost)):
            self._reach, self._calm = min(self._reach * 2, REACH), 0
        elif self._reach > 1:
            self._calm += 1
            if self._calm == CALM:
                self._reach, self._calm = self._reach // 2, 0
        return claimed

    async def _has_rivals(self, lost: Sequence[Any]) -> bool:
        with suppress(PyMongoError):  # what has been started must reach its worker
            return await were_claimed(self._jobs, lost)
        return False

    async def _claim_one(self, filter: Document, lease: Seconds) -> Claim | None:
        terms = self._terms(lease)
        return next(iter(await self._started(terms, lambda: claim_where(self._jobs, filter, terms))), None)

    def _terms(self, lease: Seconds, adopt: Mapping[str, int] | None = None) -> Terms:
        self._refuse_closed()
        checked_adopt = {
            checked_action(action, "adopt"): checked_whole(attempts, f"adopt[{action!r}]", 1)
            for action, attempts in (adopt or {}).items()
        }
        return Terms(secrets.token_hex(16), checked_lease(lease), checked_adopt)

    async def _started(self, terms: Terms, decide: Callable[[], Awaitable[Claimed]]) -> list[Claim]:
        await self._ensure_indexes()  # without them nothing is tried
        try:
            claimed = await self._indexed(decide)
        except PyMongoError:
            raise  # nothing was tried
        except BaseException:  # a task that was cancelled, say, when its call was on its way
            self._doubt(terms, ())
            raise
        if claimed.doubtful:
            self._doubt(terms, (job.id for job in claimed.jobs))
        if claimed.trouble is not None and not claimed.jobs:
            raise claimed.trouble  # "none" would mean that there is none
        return [Claim(job, terms.token) for job in claimed.jobs]

    def _doubt(self, terms: Terms, started: Iterable[str]) -> None:
        # For as long as a lease: whatever turns up later has expired when it does, and is recovered like any.
        self._doubts[terms.token] = frozenset(started), time.monotonic() + terms.lease.total_seconds()

    async def _release_strays(self) -> None:
        """Gives back what has turned up under the tokens of claims whose answer was lost."""
        if not self._doubts:
            return
        for token, (_, until) in list(self._doubts.items()):
            if until < time.monotonic():
                self._doubts.pop(token, None)
        with suppress(PyMongoError):  # what was asked for may succeed all the same; this is tried again
            known = {token: started for token, (started, _) in list(self._doubts.items())}
            await doubts.release_strays(self._jobs, known, self._uniform)

    async def _indexed(self, decide: Callable[[], Awaitable[T]]) -> T:
        """Makes a decision that names its index, which is made again where somebody has dropped it."""
        await self._ensure_indexes()
        try:
            return await decide()
        except OperationFailure as error:
            if error.code != HINT_WITHOUT_INDEX:
                raise
        self._jobs.forget_indexes()
        await self._ensure_indexes()
        return await decide()

    async def _ensure_indexes(self) -> None:
        for index in indexes.ALL:
            await self._jobs.ensure_index(index)

    async def _prove_slot(self, key: str, started: DurableJob, token: str) -> None:
        """Asks, once a run is stored, whether the index that refuses a second one is still there.

        A collection that was dropped comes back with the next insert and without its indexes: of four processes that
        started one key just then all four ran it. Where that has happened the index cannot be made, and the run is
        withdrawn.
        """
        here = {"status": CLAIM.target.value, indexes.KEY: key}
        try:
            await self._indexed(lambda: self._jobs.find(here, fields=("_id",), limit=1, hint=indexes.RUNNING_SLOT.name))
        except IndexConflictError:
            await self._jobs.delete_many({**here, "_id": started.id, "durable.token": token})
            raise

    async def _ensure_dedupe(self, session: Session | None) -> None:
        if getattr(session, "in_transaction", False):
            for index in indexes.DEDUPE:
                if not self._jobs.has_seen(index):
                    raise RuntimeError(
                        f"a dedupe key needs the index {index.name!r}, which cannot be made in a transaction: call "
                        "startup() when the program starts"
                    )
            return
        # A producer does not notice that somebody dropped the collection, and two jobs of a key could be stored.
        again = time.monotonic() >= self._ensure_again
        for index in indexes.DEDUPE:
            await self._jobs.ensure_index(index, again=again)
        if again:
            self._ensure_again = time.monotonic() + ENSURE_EVERY

    def _refuse_closed(self) -> None:
        if self._closed:
            raise BackendClosedError("this backend was shut down; it starts and stores no more jobs")


def _checked_settlements(settlements: Sequence[Settlement]) -> list[Settlement]:
    asked = list(settlements)
    for n, settlement in enumerate(asked):
        check_settlement(settlement, f"settlements[{n}]")
    return asked


def _durable(job: Job | None) -> DurableJob | None:
    return None if job is None else durable_from(job.document)
