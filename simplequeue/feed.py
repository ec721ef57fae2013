"""The change feed: "look again".

It never carries work. A change stream says that something was added, a poll says so in its stead from time to time,
and whoever listens then reads what there is. An event also names the job, which an idle listener may try to claim
without reading first: a hint, whose worth the claim decides. So a lost, doubled or late signal costs a call, never a
job.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from simplequeue.job import Document
from simplequeue.jobs import NoChangeStreamError, Stream

Watch = Callable[[], Awaitable[Stream]]

logger = logging.getLogger("simplequeue")

POLL_WITH_PUSH = 60.0
"""Seconds. With a change stream the poll is only the net below it."""

POLL_WITHOUT_PUSH = 5.0

BACKOFF = 0.1
BACKOFF_MAX = 10.0
"""Seconds between attempts to open a stream again, so that a server that comes back is not met by all at once."""

PATIENCE = 2.0
"""Seconds. A poll may overtake the event of what it finds; later than this the stream counts as silent."""


LONG_REST = 0.2
"""Seconds without a read after which a stream is opened anew, instead of going through all that has happened."""


class Feed:
    """Says whenever there may be something new.

    Args:
        watch: Opens a stream of the changes that mean something new. None means to poll only.
        look: What to call then, with whether the stream said so (True) or the clock (False); it must not block.
        hint: What to call in its stead with an event, which names a job.
        poll_interval: Seconds between polls. None: 60 with a change stream, 5 without one.
        rest: Waits as long as nothing of the stream is needed, since whoever listens looks all the time. None means
            that it is always read.
    """

    def __init__(
        self,
        watch: Watch | None,
        look: Callable[[bool], None],
        hint: Callable[[Document], None],
        poll_interval: float | None,
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._watch = watch
        self._look = look
        self._hint = hint
        self._poll_interval = poll_interval
        self._rest = rest
        self._stream: Stream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._doubt: asyncio.TimerHandle | None = None
        self._failures = 0

    async def open(self) -> None:
        """Opens the stream, so that what is added from here on is signalled; read the backlog only after this.

        Raises:
            PyMongoError: The server cannot be reached, or refuses.
        """
        try:
            self._stream = None if self._watch is None else await self._watch()
        except NoChangeStreamError as reason:
            seconds = self._poll_interval or POLL_WITHOUT_PUSH
            logger.warning("looking for jobs every %g s, as there is no change stream: %s", seconds, reason)
        if self._poll_interval is None:
            self._poll_interval = POLL_WITHOUT_PUSH if self._stream is None else POLL_WITH_PUSH

    async def serve(self) -> None:
        """Signals until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll())
            if self._stream is not None:
                tasks.create_task(self._push())

    async def close(self) -> None:
        """Gives up the stream, once ``serve`` is cancelled."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(Exception):  # of the driver, or of a process that is ending and has no more threads
                await stream.close()

    def overlooked(self) -> None:
        """Takes note that a poll found what no event has announced: if none comes soon, the stream is replaced."""
        if self._reader is not None and self._doubt is None:
            self._doubt = asyncio.get_running_loop().call_later(PATIENCE, self._reader.cancel)

    def _trust(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_interval or POLL_WITH_PUSH)
            self._look(False)

    async def _push(self) -> None:
        while True:
            reason = await self._read_to_its_end()
            if self._failures == 0:
                logger.warning("the change stream has ended (%s); opening it again", reason)
            self._failures += 1
            await self._replace(_delay(self._failures))

    async def _read_to_its_end(self) -> str:
        self._reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait((self._reader,))
        finally:
            self._reader.cancel()
            self._trust()
        if self._reader.cancelled():
            return "it was silent about a job"
        error = self._reader.exception()
        return f"{type(error).__name__}: {error}"

    async def _read(self) -> None:
        assert self._stream is not None
        while True:
            if self._rest is not None:
                began = time.monotonic()
                await self._rest()
                if time.monotonic() - began > LONG_REST:
                    await self._replace(0)
            event = await self._stream.next()
            if self._failures:
                logger.info("the change stream is open again")
                self._failures = 0
            if event is not None:
                self._trust()
                self._hint(event)

    async def _replace(self, pause: float) -> None:
        """Opens a stream in the place of the one there is, after so many seconds."""
        # Given up without waiting: a read that hangs in its thread would hold this up as well.
        giving_up = asyncio.create_task(self.close())
        await asyncio.sleep(pause)
        self._stream = await self._reopened()
        self._look(True)  # at what was added while no stream was open
        giving_up.cancel()

    async def _reopened(self) -> Stream:
        assert self._watch is not None
        # Always at "now", never at a remembered position: a position that the server has forgotten would be
        # refused for ever, and whoever reopens looks everywhere once anyway.
        while True:
            try:
                return await self._watch()
            except Exception as error:  # of the driver, or that no thread can be had: the listener outlives either
                logger.debug("the change stream cannot be opened: %s", error)
                self._failures += 1
                await asyncio.sleep(_delay(self._failures))
                self._look(True)  # as long as none is open, this is the poll


# Not the module's own generator: an application's seed must not make all its listeners come back at once.
_jitter = random.Random()


def _delay(failures: int) -> float:
    return _jitter.uniform(BACKOFF, min(BACKOFF_MAX, BACKOFF * 2.0 ** min(failures, 20)))
