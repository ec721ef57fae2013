"""Settle: the one door through which a claim ends, for many claims at once.

Whatever the answer of a write was, the documents then say what became of each claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo.errors import PyMongoError

from durabl_ext.core.indexes import KEY, QUEUED_SLOT
from durabl_ext.core.plans import Plan, Settlement, Uniform, became_of, behind, grouped, least, planned
from durabl_ext.outcomes import FailedTerminal, LeaseLost, Settled
from simplequeue.job import Document
from simplequeue.jobs import DUPLICATE_KEY, Jobs, Written
from simplequeue.states import Status

ROUNDS = 4
"""How often a follower may come and go while a job looks for its place in the queue."""


class Ends:
    """The ends of some claims as they are to be written, and what is known of that.

    Args:
        settlements: Which claims, each once.
        now: The server's time.
        uniform: Draws a number between two, for the jitter of a retry.

    Attributes:
        writes: What to send, in a call of its own or before other writes.
        tried: Whether that was done and answered.
    """

    def __init__(self, settlements: Sequence[Settlement], now: datetime, uniform: Uniform) -> None:
        self._settlements = settlements
        self._now = now
        self._uniform = uniform
        self._plans = [planned(settlement, now, uniform) for settlement in settlements]
        self._trouble: PyMongoError | None = None
        self._stored = False
        self.writes = grouped(self._plans)
        self.tried = False

    def written(self, written: Written, others: int = 0) -> None:
        """Takes note of the answer.

        Args:
            written: The answer.
            others: How many documents the other writes of the call are for. Each write matches what it is for at most,
                so that together they have matched all of it only if each of them has.
        """
        self.tried = True
        self._stored = not written.refused and written.matched == len(self._plans) + others

    def failed(self, trouble: PyMongoError) -> None:
        """Takes note that there was none."""
        self._trouble = trouble

    async def became(self, jobs: Jobs) -> list[Settled]:
        """Says what became of each, having it written where that is not known to have been done.

        Raises:
            PyMongoError: It is not known what became of some. Settling the same again is safe.
        """
        if not self.tried:
            return await settle(jobs, self._settlements, self._uniform)
        known, left = await self._read(jobs)
        if left:  # what comes after a write that was refused was not tried
            again = await settle(jobs, [plan.settlement for plan in left.values()], self._uniform)
            known.update(zip(left, again, strict=True))
        return [known[place] for place in range(len(self._plans))]

    async def became_alone(self, jobs: Jobs) -> list[Settled]:
        """The same where each was tried by itself: what is left was refused."""
        known, left = await self._read(jobs)
        for place, plan in left.items():
            known[place] = await _another_way(jobs, plan, self._now)
        return [known[place] for place in range(len(self._plans))]

    async def _read(self, jobs: Jobs) -> tuple[dict[int, Settled], dict[int, Plan]]:
        """Gives what became of each by its place, and those that still run under their token."""
        if self._stored:
            return {place: plan.outcome for place, plan in enumerate(self._plans)}, {}
        ids = [plan.settlement.job.id for plan in self._plans]
        fields = ("_id", "status", "durable.token", "durable.receipts")
        # After an error only what a majority has is an answer: a failover may still undo the rest.
        found = await jobs.find(
            {"_id": {"$in": ids}}, fields=fields, limit=len(ids), majority=self._trouble is not None
        )
        documents = {document["_id"]: document for document in found}
        known: dict[int, Settled] = {}
        left: dict[int, Plan] = {}
        for place, plan in enumerate(self._plans):
            outcome = became_of(plan, documents.get(plan.settlement.job.id))
            if outcome is not None:
                known[place] = outcome
            elif self._trouble is not None:
                raise self._trouble
            else:
                left[place] = plan
        return known, left


async def settle(jobs: Jobs, settlements: Sequence[Settlement], uniform: Uniform) -> list[Settled]:
    """Ends claims, completions of one token in one write, and says what became of each.

    Args: as for ``Ends``.

    Raises:
        PyMongoError: It is not known what became of some. Settling the same again is safe.
    """
    if not settlements:
        return []
    ends = Ends(settlements, await jobs.now(), uniform)
    try:
        ends.written(await jobs.write(ends.writes))
    except PyMongoError as error:
        ends.failed(error)
    return await ends.became_alone(jobs)


async def find_follower(jobs: Jobs, key: str | None) -> Document | None:
    """Gives the id and the action of the job that waits under a key.

    The index is named, since any that has the queued jobs may do while few are queued.
    """
    waiting = {"status": Status.QUEUED.value, KEY: key}
    found = await jobs.find(waiting, fields=("_id", "action"), limit=1, hint=QUEUED_SLOT.name)
    return found[0] if found else None


async def _another_way(jobs: Jobs, plan: Plan, now: datetime) -> Settled:
    """Ends a claim whose write was refused: by a follower that holds its place in the queue, or by its document."""
    for _ in range(ROUNDS):
        written = await jobs.write([plan.write()])
        if written.matched:
            return plan.outcome
        if written.refused.get(0) != DUPLICATE_KEY:
            break
        follower = await find_follower(jobs, plan.settlement.job.dedupe_key)
        if follower is not None:
            plan = behind(plan, follower, now)
    if not written.refused:
        return LeaseLost()  # it has gone since it was read
    if (await jobs.write([least(plan.settlement, now)])).matched:
        return FailedTerminal()
    raise RuntimeError(
        f"job {plan.settlement.job.id} cannot be ended: the server refuses its document (code {written.refused[0]}). "
        "It is recovered when its lease ends; look at it with the inspect command"
    )
