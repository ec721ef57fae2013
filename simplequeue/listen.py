"""One listening loop, for sync and async queues.

``Listening`` decides when to look and how many jobs to run. It is written once and runs on an event loop: the
caller's, or for a sync queue a private one in a thread. What differs between the two is only how a slot is run, and
that is in ``slots.py``.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pymongo.errors import InvalidOperation, OperationFailure, PyMongoError

from simplequeue import commands
from simplequeue.candidates import Candidates
from simplequeue.failure import StoredError, stored_error
from simplequeue.feed import Feed
from simplequeue.job import Document, Job, job_from
from simplequeue.jobs import Jobs
from simplequeue.runs import REFUSED_DOCUMENT, Ending, claim, finish, unanswered, waiting
from simplequeue.slots import Handler, Invoke, Slots
from simplequeue.states import Status
from simplequeue.threads import tell

logger = logging.getLogger("simplequeue")

BATCH_PER_SLOT = 4
MIN_BATCH = 16
MAX_BATCH = 1_000
"""Ids read at a time. They are hints, not claims, so reading more than there are slots takes nothing from others."""

BACKOFF = 0.1
BACKOFF_MAX = 10.0
HINT_WITHOUT_INDEX = 2

KEEP_DOUBTS = 300.0
"""Seconds for which a claim whose answer was lost is looked for: a request may have been held up on its way."""


@dataclass
class Turn:
    """A call of a handler. What the handler starts sees it too, also when the call is over."""

    listening: Listening
    over: bool = False


turn_here: contextvars.ContextVar[Turn | None] = contextvars.ContextVar("simplequeue_turn", default=None)


class Listening:
    """Runs the jobs of a collection in a number of slots, until stopped.

    Args:
        jobs: The collection, for use on the loop.
        slots: How a slot is run and the handler called.
        handler: What to call with each job.
        actions: Take only these; None means all.
        concurrency: How many jobs may run at once.
        poll_interval: Seconds between looks without a signal; None lets the feed choose.
    """

    def __init__(
        self,
        jobs: Jobs,
        slots: Slots,
        handler: Handler,
        *,
        actions: Collection[str] | None,
        concurrency: int,
        poll_interval: float | None,
    ) -> None:
        self._jobs = jobs
        self._slots = slots
        self._handler = handler
        self._actions = actions
        self._concurrency = concurrency
        watch = partial(jobs.watch, commands.added_plain(actions))
        self._feed = Feed(watch, self._look, self._hint, poll_interval)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._given_up = asyncio.Event()
        self._waiting = 0
        self._accepting = True
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[None]] = set()

        # Shared with the slots, which may be threads: each use is one operation that the interpreter makes atomic.
        self._candidates = Candidates(max(MIN_BATCH, min(BATCH_PER_SLOT * concurrency, MAX_BATCH)))
        self._more = True
        self._unannounced = False
        self._failures = 0
        self._refused: list[Any] = []
        self._unanswered: list[tuple[Any, datetime, float]] = []
        self._trouble: Exception | None = None

    async def start(self) -> None:
        """Opens the feed, then reads the backlog and sets to work on it.

        Raises:
            PyMongoError: The server cannot be reached, or refuses.
            IndexConflictError: The collection's index cannot be made.
        """
        await self._jobs.ensure_index(commands.next_index(self._actions))
        await self._feed.open()
        try:
            await self._read()
        except BaseException:
            await self._feed.close()
            raise
        self._fill()
        self._tasks = [self._loop.create_task(self._serve()), self._loop.create_task(self._feed.serve())]

    def refuse_inside(self) -> None:
        """Raises in a handler of this listening, which would wait for its own end."""
        turn = turn_here.get()
        if turn is not None and turn.listening is self and not turn.over:
            raise RuntimeError("stop() in a handler would wait for that very handler; pass stop(timeout=0)")

    def accept_no_more(self) -> None:
        """Takes no more jobs; may be called from any thread."""
        self._accepting = False

    async def stop(self) -> None:
        """Takes no more jobs and looks for none."""
        self.accept_no_more()
        for task in self._tasks:
            task.cancel()

    async def drained(self) -> None:
        """Waits until every handler has ended and every end is stored or given up."""
        while self._running:
            await asyncio.wait(set(self._running))

    def wait_begins(self) -> None:
        """Takes note that somebody waits for the end, so that ends are tried until they are stored."""
        self._waiting += 1
        self._given_up.clear()

    def wait_ends(self, out_of_time: bool) -> None:
        """Takes note that somebody waits no longer; the last to run out of time gives up the ends not stored so far."""
        self._waiting -= 1
        if out_of_time and not self._waiting:
            self._given_up.set()

    async def close(self) -> None:
        """Gives back what is held, once drained."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._feed.close()
        self._slots.close()

    def _look(self, announced: bool) -> None:
        # What a poll finds although nothing was known to be left, an event should have announced.
        self._unannounced = not announced and not self._more
        if announced:  # by a stream that was opened again: the collection may have been dropped, its indexes with it
            self._jobs.forget_indexes()
        self._look_again()

    def _look_again(self) -> None:
        self._more = True
        self._wake.set()

    def _hint(self, event: Document) -> None:
        """Has a free slot try the job that an event names; to read first would cost a round trip to find this id."""
        self._unannounced = False  # the stream speaks, be it of another job
        free = self._accepting and not self._more and len(self._running) < self._concurrency
        if free and self._candidates.offer(event["documentKey"]["_id"]):
            self._start_slot()
        else:
            self._look_again()

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._trouble is not None:
                    trouble, self._trouble = self._trouble, None
                    raise trouble
                if self._more and len(self._candidates) < self._concurrency:
                    await self._read()
                self._fill()
            except Exception as error:
                self._failures += 1
                self._report(error)
                await asyncio.sleep(_delay(self._failures))
                self._more = True
                self._wake.set()

    async def _read(self) -> None:
        """Replaces the candidates by what is next in the collection."""
        silent = self._unannounced and not self._candidates
        self._more = False  # before the read: what is signalled during it is looked for again
        limit = self._candidates.begin_read()
        try:
            await self._jobs.ensure_index(commands.next_index(self._actions))
            ids = await waiting(self._jobs, self._actions, limit, self._refused)
        except BaseException as error:
            self._candidates.give_up_read()
            if isinstance(error, OperationFailure) and error.code == HINT_WITHOUT_INDEX:
                # Somebody dropped the collection or its indexes.
                self._jobs.forget_indexes()
            raise
        if not ids:
            self._failures = 0
        if self._candidates.end_read(ids):
            self._more = True
        if silent and self._unannounced and self._candidates:  # and no event came meanwhile
            self._feed.overlooked()
        self._unannounced = False
        if self._unanswered:
            await self._report_unanswered()

    def _fill(self) -> None:
        """Starts a slot for each candidate, as long as there are free ones."""
        for _ in range(min(self._concurrency - len(self._running), len(self._candidates))):
            self._start_slot()

    def _start_slot(self) -> None:
        slot = self._loop.create_task(self._slot())
        self._running.add(slot)
        slot.add_done_callback(self._freed)

    def _freed(self, slot: asyncio.Task[None]) -> None:
        self._running.discard(slot)
        self._wake.set()
        if not slot.cancelled() and (error := slot.exception()) is not None:
            self._trouble = error if isinstance(error, Exception) else RuntimeError(repr(error))

    async def _slot(self) -> None:
        """Keeps one slot at work until there is nothing to do; an ending that cannot be written keeps it."""
        unwritten = await self._slots.occupy(self._work)
        failures = 0
        while unwritten is not None:
            ending, error = unwritten
            failures += 1
            if self._given_up.is_set() or _refused(error) or isinstance(error, InvalidOperation):  # a closed client
                logger.error("the end of job %s is not stored, it stays running: %s", ending.job.id, error)
                return
            logger.warning("the end of job %s could not be stored, trying again: %s", ending.job.id, error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._given_up.wait(), _delay(failures))
            try:
                unwritten = await self._slots.occupy(partial(self._write, ending))
            except Exception as trouble:  # no thread can be had
                unwritten = ending, trouble

    async def _work(self, jobs: Jobs, invoke: Invoke) -> tuple[Ending, Exception] | None:
        """Claims and runs candidates one after another; ends early with an ending that could not be written."""
        while self._accepting:
            try:
                id = self._candidates.take()
            except IndexError:
                return None
            if self._more and len(self._candidates) < self._concurrency:
                tell(self._loop, self._wake.set)
            ending = await self._run(jobs, invoke, id)
            if ending is None:
                continue
            if (unwritten := await self._write(ending, jobs, invoke)) is not None:
                return unwritten
            if self._slots.cancelled():
                break
        return None

    async def _run(self, jobs: Jobs, invoke: Invoke, id: Any) -> Ending | None:
        """Claims a job and runs it; None when it was not to be had."""
        job = at = None
        try:
            at = await jobs.now()
            job = await claim(jobs, id, at)
            self._failures = 0
        except PyMongoError as error:
            if not _refused(error):
                if at is not None:
                    self._unanswered.append((id, at, time.monotonic() + KEEP_DOUBTS))
                raise
            self._refused.append(id)
            logger.error("job %s cannot be claimed and is left alone from now on: %s", id, error)
        except Exception as error:
            if at is None:
                raise
            # There was an answer, so the job is ours, but the collection's codec cannot read it. Or else something kept
            # the call from being made: then the end changes nothing, and the job is found again a little later.
            self._trouble = error
            tell(self._loop, self._wake.set)
            job = job_from({"_id": id, "status": Status.RUNNING, "started_at": at})
            return Ending(job, stored_error(error))
        except asyncio.CancelledError:
            logger.error("the loop ended during the claim of job %s; if it is running now, nobody runs it", id)
            raise
        finally:
            self._candidates.tried(id, lost=job is None)
        return None if job is None else Ending(job, await self._outcome(invoke, job))

    async def _write(self, ending: Ending, jobs: Jobs, invoke: Invoke) -> tuple[Ending, Exception] | None:
        again = ending.at is not None  # then the first attempt may have done it, and this one find it done
        try:
            if not await finish(jobs, ending) and not again:
                logger.warning("job %s was no longer running when its handler ended", ending.job.id)
        except Exception as error:  # the driver's, or of a machine without memory or threads
            return ending, error
        except asyncio.CancelledError:  # the loop is being closed; what has been done shall be stored all the same
            with suppress(Exception):
                await finish(jobs, ending)
            raise
        return None

    async def _outcome(self, invoke: Invoke, job: Job) -> StoredError | None:
        """Calls the handler; whatever it raises, SystemExit and KeyboardInterrupt included, is the job's failure."""
        turn = Turn(self)
        turn_here.set(turn)
        try:
            if not isinstance(job.data, dict):
                raise TypeError(f"job {job.id} was stored with data that is no document: {type(job.data).__name__}")
            await invoke(self._handler, job)
        except BaseException as error:
            return stored_error(error)
        finally:
            turn.over = True
        return None

    def _report(self, error: Exception) -> None:
        if not isinstance(error, PyMongoError):
            logger.error("looking for jobs failed, trying again", exc_info=error)
        elif self._failures == 5:
            logger.error("looking for jobs has failed five times in a row, still trying: %s", error)
        else:
            logger.warning("looking for jobs failed, trying again: %s", error)

    async def _report_unanswered(self) -> None:
        ours = await unanswered(self._jobs, [(id, at) for id, at, _ in self._unanswered])
        now = time.monotonic()
        for doubt in list(self._unanswered):
            if doubt[0] in ours or doubt[2] < now:
                self._unanswered.remove(doubt)
        for id in ours:
            logger.error(
                "the answer to the claim of job %s was lost; it is running since that moment, but not here. "
                "Unless another listener has it, nobody does: look at it before deciding what to do",
                id,
            )


def _refused(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in REFUSED_DOCUMENT


# Not the module's own generator: an application's seed must not make all its listeners come back at once.
_jitter = random.Random()


def _delay(failures: int) -> float:
    return _jitter.uniform(BACKOFF, min(BACKOFF_MAX, BACKOFF * 2.0 ** min(failures, 20)))
