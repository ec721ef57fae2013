"""Workers that kill themselves at a named point of a run: ``python -m tests.orchestrator.programs URL DB``.

Each line it reads describes a worker. It forks a process for it and prints how that ended, so that many real processes
cost one start of Python.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient, MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from durabl_ext import AsyncJobQueue, AsyncOrchestrator, JobQueue, Orchestrator
from tests.orchestrator.bodies import AnyBody, as_def

FLAVOURS = ("def", "async-on-sync", "async")
APP_NAME = "orchestrator-worker"
PAUSE = threading.Event()


@dataclass(frozen=True)
class Point:
    """A moment in a run: before a command is sent, or after its answer has come.

    Attributes:
        when: ``"before"`` or ``"after"``.
        what: ``"append"``: a step is journaled. ``"commit"``: a transaction is. ``"end"``: the job is completed.
        number: Which of them, from 1.
    """

    when: str
    what: str
    number: int


class Killer(CommandListener):
    """Kills this process at a point, and counts what there was."""

    def __init__(self, point: Point | None) -> None:
        self.counts: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._point = point
        self._seen: dict[int, str] = {}

    def started(self, event: CommandStartedEvent) -> None:
        if (what := kind_of(event.command)) is not None:
            self.counts[what] += 1
            self._seen[event.request_id] = what
            self._look("before", what, self.counts[what])

    def succeeded(self, event: CommandSucceededEvent) -> None:
        if (what := self._seen.pop(event.request_id, None)) is not None:
            self._answered[what] += 1
            self._look("after", what, self._answered[what])

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def _look(self, when: str, what: str, number: int) -> None:
        if self._point == Point(when, what, number):
            os.kill(os.getpid(), signal.SIGKILL)


def kind_of(command: Any) -> str | None:
    """What a command is, if it is one of those that matter."""
    if "commitTransaction" in command:
        return "commit"
    updates = [one.get("u", {}) for one in command.get("updates", ())]
    if any("durable.steps" in update.get("$push", {}) for update in updates):
        return "append"
    if any(update.get("$set", {}).get("status") == "completed" for update in updates):
        return "end"
    return None


class Effects:
    """Functions of steps: each leaves a document, so that a test can count how often it has run.

    Args:
        collection: Where.
        flavour: Which kind of function the body takes.
    """

    def __init__(self, collection: Any, flavour: str) -> None:
        self._collection = collection
        self.is_native = flavour == "async"
        self.plain = self._async_plain if self.is_native else self._plain
        self.failing = self._async_failing if self.is_native else self._failing
        self.paying = self._async_paying if self.is_native else self._paying

    def _plain(self, step: Any, value: Any = None) -> Any:
        self._collection.insert_one(effect(step))
        return value

    async def _async_plain(self, step: Any, value: Any = None) -> Any:
        await self._collection.insert_one(effect(step))
        return value

    def _failing(self, step: Any) -> None:
        self._collection.insert_one(effect(step))
        raise ConnectionError("no answer", 7)

    async def _async_failing(self, step: Any) -> None:
        await self._collection.insert_one(effect(step))
        raise ConnectionError("no answer", 7)

    def _paying(self, step: Any) -> str:
        self._collection.insert_one({**effect(step), "paid": True}, session=step.session)
        self._collection.update_one({"_id": "account"}, {"$inc": {"sum": 5}}, upsert=True, session=step.session)
        return "paid"

    async def _async_paying(self, step: Any) -> str:
        await self._collection.insert_one({**effect(step), "paid": True}, session=step.session)
        await self._collection.update_one({"_id": "account"}, {"$inc": {"sum": 5}}, upsert=True, session=step.session)
        return "paid"


def effect(step: Any) -> dict[str, Any]:
    return {"job": step.job_id, "seq": step.seq, "key": step.idempotency_key}


def bodies_of(do: Effects) -> dict[str, AnyBody]:
    """The bodies, with functions for their kind."""

    async def sequence(job: Any, octx: Any) -> None:
        a = await octx.step("a", do.plain, 1)
        b = await octx.step("b", do.plain, a + 1)
        assert await octx.step("c", do.plain, b + 1) == 3

    async def loop(job: Any, octx: Any) -> None:
        for n in range(await octx.step("how many", do.plain, 3)):
            assert await octx.step("item", do.plain, n) == n

    async def gather(job: Any, octx: Any) -> None:
        assert await asyncio.gather(*(octx.step(f"at once {n}", do.plain, n) for n in range(3))) == [0, 1, 2]
        await octx.step("last", do.plain)

    async def branches(job: Any, octx: Any) -> None:
        async def left(octx: Any) -> Any:
            return [await octx.step("a", do.plain, 1), await octx.step("b", do.plain, 2)]

        async def inner(octx: Any) -> Any:
            return await octx.step("deep", do.plain, 3)

        async def right(octx: Any) -> Any:
            await octx.step("c", do.plain)
            return await octx.all(inner, inner)

        assert await octx.all(left, right) == [[1, 2], [3, 3]]
        await octx.step("last", do.plain)

    async def transactional(job: Any, octx: Any) -> None:
        await octx.step("a", do.plain)
        assert await octx.step("pay", do.paying, transactional=True) == "paid"
        await octx.step("b", do.plain)

    async def catching(job: Any, octx: Any) -> None:
        for name in "abc":
            with suppress(Exception):
                await octx.step(name, do.plain)

    async def compensating(job: Any, octx: Any) -> None:
        await octx.step("book", do.plain)
        try:
            await octx.step("pay", do.failing)
        except ConnectionError as error:
            assert error.args == ("no answer", 7)  # noqa: PT017  # it is to be caught here, in every run
            await octx.step("cancel", do.plain)

    async def undoing(job: Any, octx: Any) -> None:
        async def trip(octx: Any) -> None:
            await octx.step("hotel", do.plain)
            await octx.step("flight", do.failing)

        try:
            await octx.all(trip)
        except ConnectionError as error:
            assert error.args == ("no answer", 7)  # noqa: PT017  # as above
            await octx.step("undo hotel", do.plain)

    bodies = (sequence, loop, gather, branches, transactional, catching, compensating, undoing)
    return {body.__name__: body for body in bodies}


APPENDS = {
    "sequence": 3,
    "loop": 4,
    "gather": 4,
    "branches": 6,
    "transactional": 3,
    "catching": 3,
    "compensating": 3,
    "undoing": 3,
}
"""How many records the journal of each body has."""


@dataclass(frozen=True)
class Work:
    """What a worker does.

    Attributes:
        flavour: Of the queue and the bodies.
        actions: Of each its body's name.
        point: Where it kills itself; None means that it works until all its jobs have ended.
    """

    flavour: str
    actions: dict[str, str]
    point: Point | None = None


def work(task: Work, url: str, name: str) -> None:
    """Works, until the end or until the point."""
    killer = Killer(task.point)
    if task.flavour == "async":
        asyncio.run(work_async(task, killer, url, name))
        return
    client = MongoClient[dict[str, Any]](url, event_listeners=[killer], appname=APP_NAME)
    queue = JobQueue(client[name], push=False)
    orchestrator: Any = Orchestrator(queue)
    bodies = bodies_of(Effects(client[name].effects, task.flavour))
    for action, body in task.actions.items():
        kind = as_def(bodies[body]) if task.flavour == "def" else bodies[body]
        orchestrator.define(action, kind, poll_interval=0.1)
    queue.start(reaper_interval=0.1)
    left = {"action": {"$in": list(task.actions)}, "status": {"$in": ["queued", "running"]}}
    while client[name].job.count_documents(left):
        PAUSE.wait(0.02)
    queue.shutdown()
    print(json.dumps(killer.counts), flush=True)


async def work_async(task: Work, killer: Killer, url: str, name: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](url, event_listeners=[killer], appname=APP_NAME) as client:
        queue = AsyncJobQueue(client[name], push=False)
        orchestrator: Any = AsyncOrchestrator(queue)
        bodies = bodies_of(Effects(client[name].effects, task.flavour))
        for action, body in task.actions.items():
            orchestrator.define(action, bodies[body], poll_interval=0.1)
        await queue.start(reaper_interval=0.1)
        left = {"action": {"$in": list(task.actions)}, "status": {"$in": ["queued", "running"]}}
        while await client[name].job.count_documents(left):
            await asyncio.to_thread(PAUSE.wait, 0.02)
        await queue.shutdown()
    print(json.dumps(killer.counts), flush=True)


class Workers:
    """Workers that run one after the other, each in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, task: Work) -> tuple[int, Counter[str]]:
        """Runs one to its end; gives its exit code, negative for a signal, and how often there was what."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(task)), file=self._process.stdin, flush=True)
        counts: Counter[str] = Counter()
        while (line := self._process.stdout.readline()).startswith("{"):
            counts.update(json.loads(line))
        return int(line), counts


@contextmanager
def workers(url: str, name: str) -> Iterator[Workers]:
    """Starts the program."""
    command = [sys.executable, "-m", "tests.orchestrator.programs", url, name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:
        try:
            yield Workers(process)
        finally:
            process.kill()


def main(url: str, name: str) -> None:
    for line in sys.stdin:
        described = json.loads(line)
        point = described.pop("point")
        task = Work(**described, point=None if point is None else Point(**point))
        if (child := os.fork()) == 0:
            code = 1
            try:
                work(task, url, name)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
