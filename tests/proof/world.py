"""A small world for one schedule: a collection, a clock that only the test moves, and the decisions as workers use
them.

Everything that a run depends on comes from the seed: tokens, ids, jitter and the time. Each answer that a worker gets
is told to the history, which judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

from bson.codec_options import CodecOptions
from pymongo.errors import PyMongoError

from durabl_ext.core import claim as claiming
from durabl_ext.core import claim_or_enqueue, enqueue, journal, leases, recover, replay, settle
from durabl_ext.core.indexes import ALL
from durabl_ext.core.plans import How, Settlement
from durabl_ext.errors import JournalTooLarge
from durabl_ext.job import DurableJob, LogLine, durable_from
from durabl_ext.options import Enqueue, Request, checked
from durabl_ext.outcomes import Appended, LeaseLost, NoRoom, NotFound, Renewed, Settled
from simplequeue import operations
from simplequeue.collection import CollectionJobs
from simplequeue.commands import Index
from simplequeue.failure import StoredError
from simplequeue.job import Document, Job
from simplequeue.jobs import blocking, run
from tests.proof.documents import LIVE, must
from tests.proof.invariants import History
from tests.proof.lines import Fault, Line, Undoing
from tests.proof.scheduler import Decision, ScheduledJobs, every_order, finish

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=10)
JOURNAL = 1_000_000
PATIENCE = timedelta(hours=1)
"""How long a world may go on until all its work is done."""

FAILURE: StoredError = {"name": "ValueError", "message": "no", "stack": "…"}
ACTIONS = ("a", "b")
QUEUED: Any = {"dedupe_key": "k", "dedupe_scope": "queued"}
BOTH: Any = {"dedupe_key": "k", "dedupe_scope": "queued+running"}


@dataclass(frozen=True)
class Claim:
    """A job that was claimed, and under which token."""

    job: DurableJob
    token: str

    def ending(self, how: How) -> Settlement:
        return Settlement(self.job, self.token, how, FAILURE if how.startswith("fail") else None)


class World:
    """Holds the collection, the time and the chance of one schedule at a time.

    Args:
        collection: A collection of its own.
        indexes: What is made on it.
    """

    def __init__(self, collection: Any, indexes: Sequence[Index] = ALL) -> None:
        self.collection = collection.with_options(codec_options=CodecOptions(tz_aware=True, tzinfo=UTC))
        plain = CollectionJobs(collection, blocking)
        for index in indexes:
            run(plain.ensure_index(index))
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begins anew, with nothing stored."""
        self.collection.delete_many({})
        self.random = Random(seed)
        self.time = START
        self.history = History(self.collection)
        self.doubtful: list[str] = []
        self._tokens = (f"token-{n}" for n in count())
        self._ids = count()
        self.lines: list[Line] = []
        self._undoing = Undoing()

    def fail_over(self) -> None:
        """Replaces a server that alone has a write, if there is one."""
        self._undoing.fail_over()

    @contextmanager
    def ids(self) -> Iterator[None]:
        """Makes the ids of new jobs those of this world."""
        with patch("simplequeue.job.uuid7", self._id):
            yield

    def line(self, plan: Mapping[int, Fault] | None = None) -> Line:
        """A new connection to the collection."""
        line = Line(self.history.look, self._undoing, plan)
        self.lines.append(line)
        return line

    def jobs(self, line: Line | None = None) -> ScheduledJobs:
        return ScheduledJobs(self.collection, line or self.line(), lambda: self.time)

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.time += timedelta(seconds=seconds)

    @property
    def expired(self) -> bool:
        """Whether some lease may have ended in this world."""
        return self.time - START > LEASE

    def stored(self, id: str | None) -> Document:
        stored: Document = self.collection.find_one({"_id": id})
        return stored

    def status(self, id: str | None) -> str:
        status: str = self.stored(id)["status"]
        return status

    def held(self, status: str) -> int:
        """How many jobs are in a status."""
        held: int = self.collection.count_documents({"status": status})
        return held

    def play(self, start: Callable[[], Sequence[Decision]], check: Callable[..., T]) -> list[T]:
        """Plays decisions in every order of their calls, each in a fresh world, and then does all that is left to do.

        Args:
            start: Prepares a world and gives the decisions.
            check: Takes what they returned, while the world is as they left it.
        """

        def fresh() -> Sequence[Decision]:
            self.begin(0)
            return start()

        def judged(*results: Any) -> T:
            made = check(*results)
            self.drain()
            return made

        with self.ids():
            return every_order(fresh, judged, lambda: [line.names for line in self.lines])

    def drain(self) -> None:
        """Lets a clean worker do all that is left, and judges the whole."""
        self.release_doubtful()
        while left := self._live():
            must(self.time - START < PATIENCE, "jobs are never done", left)
            self.wait(60)
            if "running" in left:
                self.do(self.recover())
            claims = self.do(self.claim(limit=100))
            self.do(self.settle(*[claim.ending("complete") for claim in claims]))
        self.history.judge_the_end()

    def release_doubtful(self) -> None:
        """Gives back what turned up under the tokens of claims whose answer was lost."""
        tokens, self.doubtful = self.doubtful, []
        for document in self.history.moments[-1].values():
            token = (document.get("durable") or {}).get("token")
            if document["status"] == "running" and token in tokens:
                claim = Claim(durable_from(document), str(token))
                if claim.job.id not in self.history.given(claim.token):
                    self.do(self.end(claim, "release"))

    def _live(self) -> list[str]:
        statuses = [document["status"] for document in self.history.moments[-1].values()]
        return [status for status in statuses if status in LIVE]

    def do(self, decision: Coroutine[Any, Any, T]) -> T:
        return finish(decision)

    async def enqueue(self, *asked: Enqueue, line: Line | None = None) -> list[str | None]:
        jobs, began = self.jobs(line), self.history.now
        requests = [checked(one, jobs.codec) for one in asked]
        with self._giving_up(*requests):
            ids = await enqueue.enqueue(jobs, requests)
        for request, id in zip(requests, ids, strict=True):
            self.history.enqueued(began, request.dedupe, request.data, id)
        return ids

    def add(self, data: Any = None, action: str = "a", **options: Any) -> str | None:
        """Enqueues one job, at once."""
        return self.do(self.enqueue(Enqueue(action, data, **options)))[0]

    async def claim(self, limit: int = 1, line: Line | None = None) -> list[Claim]:
        terms = claiming.Terms(next(self._tokens), LEASE, {})
        claimed = await claiming.claim(self.jobs(line), dict.fromkeys(ACTIONS, limit), limit, terms)
        if claimed.doubtful:
            self.doubtful.append(terms.token)
        self.history.claimed(terms.token, claimed.jobs)
        return [Claim(job, terms.token) for job in claimed.jobs]

    def claim_one(self) -> Claim:
        (claim,) = self.do(self.claim())
        return claim

    async def claim_or_enqueue(self, asked: Enqueue, line: Line | None = None) -> Claim | None:
        jobs, token, began = self.jobs(line), next(self._tokens), self.history.now
        request = checked(asked, jobs.codec)
        with self._giving_up(request):
            job = await claim_or_enqueue.claim_or_enqueue(jobs, request, claiming.Terms(token, LEASE, {}))
        if job is not None:
            self.history.claimed(token, [job])
            return Claim(job, token)
        assert request.dedupe is not None
        self.history.enqueued(began, request.dedupe, request.data, None)
        return None

    async def settle(self, *endings: Settlement, line: Line | None = None) -> list[Settled]:
        for ending in endings:
            self.history.asked(ending.job.id, ending.token)
        outcomes = await settle.settle(self.jobs(line), endings, self.random.uniform)
        for ending, outcome in zip(endings, outcomes, strict=True):
            self.history.settled(ending.job, ending.token, outcome)
        return outcomes

    async def turn(
        self, *endings: Settlement, limit: int = 1, line: Line | None = None
    ) -> tuple[list[Settled] | None, list[Claim]]:
        """Settles and claims in one write; no outcomes where it is not known what became of the ends."""
        jobs, terms = self.jobs(line), claiming.Terms(next(self._tokens), LEASE, {})
        for ending in endings:
            self.history.asked(ending.job.id, ending.token)
        ends = settle.Ends(endings, await jobs.now(), self.random.uniform)
        claimed = claiming.Claimed([])
        with suppress(PyMongoError):
            claimed = await claiming.claim(jobs, dict.fromkeys(ACTIONS, limit), limit, terms, ends=ends)
        if claimed.doubtful:
            self.doubtful.append(terms.token)
        self.history.claimed(terms.token, claimed.jobs)
        claims = [Claim(job, terms.token) for job in claimed.jobs]
        try:
            outcomes = await ends.became(jobs)
        except PyMongoError:
            return None, claims
        for ending, outcome in zip(endings, outcomes, strict=True):
            self.history.settled(ending.job, ending.token, outcome)
        return outcomes, claims

    async def end(self, claim: Claim, how: How, line: Line | None = None) -> Settled:
        """Settles one claim."""
        return (await self.settle(claim.ending(how), line=line))[0]

    async def heartbeat(self, *claims: Claim, line: Line | None = None) -> list[Renewed | LeaseLost]:
        return await leases.heartbeat(self.jobs(line), [(claim.job.id, claim.token) for claim in claims], LEASE)

    async def append(
        self, claim: Claim, seq: str, result: Any = None, limit: int = JOURNAL, line: Line | None = None
    ) -> Appended | LeaseLost | NotFound | JournalTooLarge:
        """Journals a step, which says whose it is."""
        jobs, began = self.jobs(line), self.history.now
        step = journal.Step(seq, "step", {"by": claim.token, "result": result})
        try:
            answer = await journal.append_step(jobs, claim.job.id, claim.token, step, limit)
        except JournalTooLarge as refused:
            return refused
        self.history.journaled(began, claim.job.id, claim.token, seq, answer)
        return answer

    async def log(self, claim: Claim, message: str, line: Line | None = None) -> Appended | LeaseLost | NoRoom:
        """Logs a line, which says whose it is."""
        lines = [LogLine(self.time, f"{claim.token} {message}")]
        limits = journal.Limits(max_log_entries=9, max_log_message_bytes=100)
        return await journal.log(self.jobs(line), claim.job.id, claim.token, lines, limits)

    async def recover(self, line: Line | None = None) -> recover.Recovered:
        return await recover.recover(self.jobs(line), 100, self.random.uniform)

    async def retry(self, id: str | None, line: Line | None = None) -> Any:
        return await replay.retry(self.jobs(line), id)

    async def cancel(self, id: str | None, line: Line | None = None) -> Job | None:
        return await operations.cancel(self.jobs(line), id, None)

    async def update(self, id: str | None, values: Any, line: Line | None = None) -> bool:
        return bool((await operations.update(self.jobs(line), id, values, None)).matched_count)

    async def add_plain(self, data: Any = None, line: Line | None = None) -> str:
        """Adds a job of the base layer."""
        job = await operations.add(self.jobs(line), "a", data, None)
        self.history.enqueued(self.history.now, None, job.data, job.id)
        return job.id

    @contextmanager
    def _giving_up(self, *requests: Request) -> Iterator[None]:
        try:
            yield
        except PyMongoError:
            for request in requests:
                self.history.gave_up(request.data)
            raise

    def _id(self) -> UUID:
        millis, number = int(self.time.timestamp() * 1_000), next(self._ids)
        return UUID(int=millis << 80 | 7 << 76 | number << 64 | 2 << 62 | self.random.getrandbits(62))
