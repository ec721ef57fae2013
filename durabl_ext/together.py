"""Inserts of callers of one process that come at the same time, made by one call.

Who comes while nobody sends, sends at once. Who comes meanwhile waits, and when that call has returned, one of those
who wait sends what all of them have. It is always a caller that sends: no thread, no task and no loop is started.
Here lives who sends what for whom, written once for threads and for tasks. Nothing here knows what a job is.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import bson
from pymongo import _csot
from pymongo.errors import BulkWriteError, PyMongoError

from durabl_ext.shares import copied, shares, shares_of_error
from simplequeue.collection import CollectionJobs
from simplequeue.job import Document
from simplequeue.jobs import blocking, native

MOST_DOCUMENTS = 1_000
MOST_BYTES = 4_000_000
"""What is sent for several callers, so that none waits for long because of the others."""

OWN_DOCUMENTS = 100
OWN_BYTES = 250_000
"""Who has more sends it alone, and at once: there is little to win, and nobody is to wait for it."""

PATIENCE = 0.5
"""Seconds for which a caller waits for somebody else's call, before it sends itself and for those who wait with it. So
a connection that hangs holds up whose call went there, and nobody else for longer; and a signal that comes just before
the main thread falls asleep is handled when it next looks."""


class Caller(ABC):
    """One who has documents to insert.

    Attributes:
        documents: What it has; ids are fixed, so that nothing is stored twice however often it is sent.
        size: What that takes, in encoded bytes.
        group: Of whom sends: itself and those it sends for.
        answer: The places that were refused, or what went wrong; None as long as that is not known.
        dismissed: Whether it is to send by itself, since who sent for it was interrupted.
    """

    def __init__(self, documents: list[Document], size: int) -> None:
        self.documents = documents
        self.size = size
        self.group: Sequence[Caller] = ()
        self.answer: set[int] | Exception | None = None
        self.dismissed = False

    @abstractmethod
    def wake(self) -> None:
        """Lets it look again. Twice is as good as once."""

    @abstractmethod
    async def woken(self) -> bool:
        """Waits until it is woken; False when it has run out of patience."""


class CallerInThread(Caller):
    """One that waits in its thread."""

    def __init__(self, documents: list[Document], size: int) -> None:
        super().__init__(documents, size)
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        """Releases its lock."""
        with suppress(RuntimeError):  # it is awake
            self._asleep.release()

    async def woken(self) -> bool:
        """Waits for its lock."""
        return self._asleep.acquire(timeout=PATIENCE)


class CallerInTask(Caller):
    """One that waits in its task."""

    def __init__(self, documents: list[Document], size: int) -> None:
        super().__init__(documents, size)
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Sets its event."""
        self._awake.set()

    async def woken(self) -> bool:
        """Waits for its event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._awake.wait()
        woken = self._awake.is_set()
        self._awake.clear()
        return woken


class Room:
    """Where callers wait while one of them sends.

    The lock is held for a moment, never during a call. Each step can be broken off anywhere by a signal and taken
    again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Caller, None] = {}
        self.sender: Caller | None = None

    def enter(self, me: Caller) -> None:
        """Makes a caller the one that sends, or lets it wait."""
        with self._lock:
            if self.sender is None:
                self.sender = me
            else:
                self._waiting[me] = None

    def take_over(self, me: Caller) -> None:
        """Makes a caller that waits the one that sends; one whose documents are on their way is none."""
        with self._lock:
            if me in self._waiting:
                self.sender = me

    def gather(self, me: Caller) -> Sequence[Caller]:
        """Gives a caller and those of who wait, the longest first, that it sends for."""
        with self._lock:
            self._waiting.pop(me, None)
            group, documents, size = [me], len(me.documents), me.size
            for other in self._waiting:
                documents, size = documents + len(other.documents), size + other.size
                if documents > MOST_DOCUMENTS or size > MOST_BYTES:
                    break
                group.append(other)
            me.group = group
            for other in group:
                self._waiting.pop(other, None)
            return group

    def leave(self, me: Caller) -> None:
        """Wakes whom a caller has sent for, and the next that is to send if this one was."""
        if not me.group and self.sender is not me and me not in self._waiting:
            return  # most: they were sent for, and all that are woken at once would queue for the lock
        with self._lock:
            for other in me.group:
                other.dismissed = other.answer is None
                if other is not me:
                    other.wake()
            me.group = ()
            self._waiting.pop(me, None)
            if self.sender is me:
                following = next(iter(self._waiting), None)
                if following is not None:
                    following.wake()
                self.sender = following


class Together(ABC):
    """Inserts what callers have that come at the same time.

    Args:
        jobs: What makes the calls.
    """

    def __init__(self, jobs: CollectionJobs) -> None:
        self._jobs = jobs

    async def insert_each(self, documents: list[Document]) -> set[int]:
        """Does what ``Jobs.insert_each`` does, perhaps in one call with others.

        What goes wrong with a document is told to its caller; what goes wrong with the call, to all. Who is cancelled
        or interrupted while it sends for others leaves them to send by themselves, under the same ids.
        """
        if len(documents) > OWN_DOCUMENTS or _csot.get_timeout() is not None:  # it is for these calls only
            return await self._jobs.insert_each(documents)
        size = sum(len(bson.encode(document, codec_options=self._jobs.codec)) for document in documents)
        if size > OWN_BYTES:
            return await self._jobs.insert_each(documents)
        return await self._together(documents, size)

    @abstractmethod
    async def _together(self, documents: list[Document], size: int) -> set[int]:
        """Goes into a room, if this caller can wait in it."""

    async def _in(self, room: Room, me: Caller) -> set[int]:
        try:
            try:
                await self._answered(room, me)
            finally:
                room.leave(me)
        finally:
            room.leave(me)  # a signal may have broken off the first, and others wait
        if me.answer is None:
            return await self._jobs.insert_each(me.documents)
        if isinstance(me.answer, Exception):
            raise me.answer
        return me.answer

    async def _answered(self, room: Room, me: Caller) -> None:
        """Waits until this caller is answered or dismissed, or sends."""
        room.enter(me)
        while room.sender is not me:
            if not await me.woken():
                room.take_over(me)
            if me.answer is not None or me.dismissed:
                return
        group = room.gather(me)
        if len(group) == 1:
            me.answer = await self._jobs.insert_each(me.documents)
            return
        try:
            refused = await self._jobs.insert_each([document for one in group for document in one.documents])
        except BulkWriteError as error:
            answers = shares_of_error(error, [len(one.documents) for one in group])
        except PyMongoError as error:
            answers = [error if one is me else copied(error) for one in group]
        else:
            answers = shares(refused, [len(one.documents) for one in group])
        for one, answer in zip(group, answers, strict=True):
            one.answer = answer


class ThreadsTogether(Together):
    """For callers that wait in their threads; each process has a room of its own.

    A forked child would find its parent's in whatever state another thread had it in.
    """

    def __init__(self, jobs: CollectionJobs) -> None:
        super().__init__(jobs)
        self._rooms: dict[int, Room] = {}
        self._here = threading.local()

    async def _together(self, documents: list[Document], size: int) -> set[int]:
        # A signal handler or a destructor, which would wait for the very caller that it has interrupted; or the end of
        # the interpreter, where threads no longer go on.
        if getattr(self._here, "busy", False) or sys.is_finalizing():
            return await self._jobs.insert_each(documents)
        process = os.getpid()
        if process not in self._rooms:
            self._rooms.setdefault(process, Room())  # two threads may be first
        try:
            self._here.busy = True
            return await self._in(self._rooms[process], CallerInThread(documents, size))
        finally:
            self._here.busy = False


class TasksTogether(Together):
    """For callers that wait in tasks; each loop has a room of its own."""

    def __init__(self, jobs: CollectionJobs) -> None:
        super().__init__(jobs)
        self._rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, Room] = WeakKeyDictionary()

    async def _together(self, documents: list[Document], size: int) -> set[int]:
        room = self._rooms.setdefault(asyncio.get_running_loop(), Room())
        return await self._in(room, CallerInTask(documents, size))


def together(jobs: CollectionJobs) -> Together | None:
    """Gives what callers wait for each other in, as calls are waited for; None where each is to send by itself."""
    if jobs.made is blocking:
        return ThreadsTogether(jobs)
    return TasksTogether(jobs) if jobs.made is native else None
