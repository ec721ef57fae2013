"""A transaction on one job: what a run writes elsewhere commits together with its next step, or with its end.

Its first write is on the job itself, fenced by the claim's token. From there on whoever else writes to the job, a
reaper or the next claim included, waits until the transaction has ended and then finds what it has made of the job. So
a claim that was lost can commit nothing, and one that commits has not been lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pymongo import ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from durabl_ext.core.journal import STEPS, Limits, Step, append_step, log
from durabl_ext.core.plans import Settlement, completion
from durabl_ext.job import LogLine
from durabl_ext.outcomes import Appended, LeaseLost, NotFound
from simplequeue.collection import CollectionJobs
from simplequeue.job import Document
from simplequeue.jobs import Session
from simplequeue.states import COMPLETE

COMMITS = 4
"""How often a commit is sent whose answer is lost; the driver repeats each of them once. Sending it again is safe."""

NONE_IN_PROGRESS = "TransientTransactionError"
UNKNOWN = "UnknownTransactionCommitResult"


class Transaction:
    """One transaction of a run, from ``begin`` to ``commit`` or ``abort``; afterwards it may begin again.

    Args:
        jobs: Where.
        id: The job.
        token: The claim's token.
        limits: What the job's document may gather.

    Attributes:
        session: For the writes that are to commit together.
    """

    def __init__(self, jobs: CollectionJobs, id: str, token: str, limits: Limits) -> None:
        self.session: Session = jobs.session()
        self._jobs = jobs
        self._id = id
        self._token = token
        self._limits = limits
        self._shown_by: Document = {}

    async def begin(self) -> bool:
        """Begins, and takes the job; False when the claim is no longer this one's.

        Raises:
            PyMongoError: It has not begun. With ``is_transient``, it may in a moment.
        """
        await self._jobs.call(
            lambda: self.session.start_transaction(
                read_concern=ReadConcern("snapshot"),
                write_concern=WriteConcern("majority"),
                read_preference=ReadPreference.PRIMARY,
            )
        )
        touched = {"$set": {"updated_at": await self._jobs.now()}}
        result = await self._jobs.update_one(self._run(), touched, session=self.session)
        return bool(result.matched_count)

    async def append(self, step: Step) -> Appended | LeaseLost | NotFound:
        """Adds a finished step to the journal, as ``append_step`` does."""
        self._shown_by = {"_id": self._id, f"{STEPS}.seq": step.seq}
        limit = self._limits.journal_soft_limit
        return await append_step(self._jobs, self._id, self._token, step, limit, self.session)

    async def log(self, lines: Sequence[LogLine]) -> None:
        """Adds lines to the job's log; where that has no room they are dropped."""
        if lines:
            await log(self._jobs, self._id, self._token, lines, self._limits, self.session)

    async def complete(self, settlement: Settlement) -> bool:
        """Ends the job as completed; False when the transaction itself has made it something else than a run."""
        self._shown_by = {"_id": self._id, "status": COMPLETE.target.value, "durable.token": self._token}
        result = await self._jobs.update_one(*completion(settlement, await self._jobs.now()), session=self.session)
        return bool(result.matched_count)

    async def commit(self) -> None:
        """Makes everything last.

        Raises:
            PyMongoError: It has not committed; or nobody can say, since the server is away.
        """
        try:
            for left in reversed(range(COMMITS)):
                try:
                    await self._jobs.call(self.session.commit_transaction)
                    return
                except PyMongoError as error:
                    if not left or not error.has_error_label(UNKNOWN):
                        raise
        except PyMongoError as error:
            if not error.has_error_label(UNKNOWN):
                raise
            await self._kill()
            # In the session: after its commit, which otherwise the majority may not have yet.
            if not await self._jobs.find(self._shown_by, fields=("_id",), limit=1, majority=True, session=self.session):
                raise
        except BaseException:  # Ctrl-C, say: the server may not have been asked yet
            await self._kill()
            raise

    async def abort(self) -> None:
        """Undoes everything."""
        if self.session.in_transaction:
            await self._jobs.call(self.session.abort_transaction)

    async def close(self) -> None:
        """Gives up the session, and undoes what was not committed."""
        await self._jobs.call(self.session.end_session)

    async def _kill(self) -> None:
        """Ends it on the server, where a commit that came to nothing has left it open.

        The driver takes it for committed and would not abort it. The server would keep it for up to 90 seconds (tried),
        in which the ends of all runs of the process that are written together with this one's wait.
        """
        with suppress(PyMongoError):
            await self._jobs.kill_session(self.session)

    def _run(self) -> Document:
        return {"_id": self._id, "status": COMPLETE.source.value, "durable.token": self._token}


def is_transient(error: BaseException) -> bool:
    """Whether a transaction has failed in a way that it may not the next time: nothing of it was done."""
    return isinstance(error, PyMongoError) and error.has_error_label(NONE_IN_PROGRESS)
