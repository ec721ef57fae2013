"""What a step's function is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from durabl_ext.runtime.signal import AsyncSignal, Signal
from simplequeue.jobs import Session


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a ``def`` function of a step is given first.

    Attributes:
        job_id: The job.
        seq: The step's place in the journal.
        idempotency_key: The same whenever this step of this job runs: pass it to whatever does the work elsewhere.
        signal: Tells it when it should end early: it takes too long, or the run should end.
    """

    job_id: str
    seq: str
    idempotency_key: str
    signal: Signal
    _session: Session | None = field(default=None, repr=False)

    @property
    def session(self) -> ClientSession:
        """The session of a transactional step: what is written with it commits together with the step.

        Raises:
            RuntimeError: The step is not transactional.
        """
        return cast(ClientSession, given_session(self._session, self.seq))


@dataclass(frozen=True, slots=True)
class AsyncStepContext:
    """What an ``async def`` function of a step is given first, as ``StepContext``."""

    job_id: str
    seq: str
    idempotency_key: str
    signal: AsyncSignal
    _session: Session | None = field(default=None, repr=False)

    @property
    def session(self) -> AsyncClientSession:
        """The session of a transactional step, as ``StepContext.session``; on a ``JobQueue`` a ``ClientSession``."""
        return cast(AsyncClientSession, given_session(self._session, self.seq))


def given_session(session: Session | None, seq: str) -> Session:
    """Gives a session if there is one."""
    if session is None:
        raise RuntimeError(
            f"step {seq} has no session: ask for one with octx.step(..., transactional=True), in which every write "
            "with session=step.session commits together with the step"
        )
    return session
