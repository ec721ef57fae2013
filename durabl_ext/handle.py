"""A handle on one claim, for code that runs a job by itself instead of in a processor.

Each call is fenced by the claim's token: once the lease is lost it changes nothing and says so.
"""

from __future__ import annotations

import time
from datetime import timedelta

from durabl_ext.backends import AsyncBackend, Backend
from durabl_ext.claims import Claim
from durabl_ext.inside import refuse_outside
from durabl_ext.job import DurableJob, LogLine
from durabl_ext.outcomes import LeaseLost, Renewed, Settled
from simplequeue.failure import MESSAGE_BYTES, StoredError, clip, stored_error
from simplequeue.payload import PayloadError, shown


class JobHandle:
    """Holds the claim of one job: renew it with ``heartbeat`` and end it with one of the other calls.

    Args:
        backend: Where the job is.
        claim: The claim.
        lease: What a heartbeat makes the lease last, from then on.
        asked_at: When the claim was asked for, in monotonic seconds; None means just now.
    """

    def __init__(self, backend: Backend, claim: Claim, lease: timedelta, asked_at: float | None = None) -> None:
        self.claim = claim
        self.asked_at = time.monotonic() if asked_at is None else asked_at
        self._begun = False
        self._backend = backend
        self._lease = lease

    @property
    def job(self) -> DurableJob:
        """The job as it was when it was claimed."""
        return self.claim.job

    def begin(self) -> None:
        """Takes note that the run begins, which it may do once: afterwards another may hold its key.

        Raises:
            RuntimeError: It has begun before.
        """
        self._begun = _first(self, self._begun)

    def complete(self) -> Settled:
        """Ends the run as completed."""
        return self._backend.settle([_free(self.claim).settled("complete")])[0]

    def fail(self, reason: str | BaseException) -> Settled:
        """Ends the run as failed: to be tried again, while attempts are left."""
        return self._backend.settle([_free(self.claim).settled("fail", _error(reason))])[0]

    def fail_fatal(self, reason: str | BaseException) -> Settled:
        """Ends the job as failed for good, whatever is left to it."""
        return self._backend.settle([_free(self.claim).settled("fail_fatal", _error(reason))])[0]

    def release(self, delay: timedelta = timedelta(0)) -> Settled:
        """Gives the job back; the attempt does not count. It is not due before the delay is over."""
        return self._backend.settle([_free(self.claim).settled("release", delay=delay)])[0]

    def heartbeat(self) -> Renewed | LeaseLost:
        """Renews the lease."""
        return self._backend.heartbeat([_free(self.claim)], lease=self._lease)[0]

    def log(self, message: str) -> None:
        """Adds a line to the job's log, unless the lease is lost or the document has no room left."""
        self._backend.log(_free(self.claim), [LogLine(self._backend.now(), message)])


class AsyncJobHandle:
    """Holds the claim of one job, as ``JobHandle`` does, for code that awaits."""

    def __init__(self, backend: AsyncBackend, claim: Claim, lease: timedelta, asked_at: float | None = None) -> None:
        self.claim = claim
        self.asked_at = time.monotonic() if asked_at is None else asked_at
        self._begun = False
        self._backend = backend
        self._lease = lease

    @property
    def job(self) -> DurableJob:
        """The job as it was when it was claimed."""
        return self.claim.job

    def begin(self) -> None:
        """Takes note that the run begins, as ``JobHandle.begin`` does."""
        self._begun = _first(self, self._begun)

    async def complete(self) -> Settled:
        """Ends the run as completed."""
        return (await self._backend.settle([_free(self.claim).settled("complete")]))[0]

    async def fail(self, reason: str | BaseException) -> Settled:
        """Ends the run as failed: to be tried again, while attempts are left."""
        return (await self._backend.settle([_free(self.claim).settled("fail", _error(reason))]))[0]

    async def fail_fatal(self, reason: str | BaseException) -> Settled:
        """Ends the job as failed for good, whatever is left to it."""
        return (await self._backend.settle([_free(self.claim).settled("fail_fatal", _error(reason))]))[0]

    async def release(self, delay: timedelta = timedelta(0)) -> Settled:
        """Gives the job back; the attempt does not count. It is not due before the delay is over."""
        return (await self._backend.settle([_free(self.claim).settled("release", delay=delay)]))[0]

    async def heartbeat(self) -> Renewed | LeaseLost:
        """Renews the lease."""
        return (await self._backend.heartbeat([_free(self.claim)], lease=self._lease))[0]

    async def log(self, message: str) -> None:
        """Adds a line to the job's log, unless the lease is lost or the document has no room left."""
        await self._backend.log(_free(self.claim), [LogLine(await self._backend.now(), message)])


def _free(claim: Claim) -> Claim:
    """The claim, for a write that no transaction of the caller holds up."""
    refuse_outside(claim.job.id)
    return claim


def _error(reason: str | BaseException) -> StoredError:
    if isinstance(reason, BaseException):
        return stored_error(reason)
    if not isinstance(reason, str):
        raise PayloadError("reason", f"expected a text or an exception, found {shown(reason)}")
    return {"name": "Failed", "message": clip(reason, MESSAGE_BYTES), "stack": ""}


def _first(handle: JobHandle | AsyncJobHandle, begun: bool) -> bool:
    if begun:
        raise RuntimeError(
            f"the run of job {handle.job.id} that this handle stands for has begun already, and may have ended: claim "
            "again with claim_or_enqueue"
        )
    return True
