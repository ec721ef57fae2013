"""A worker with nothing to do, in a process of its own: prints what it asked of the server within a minute.

It is watched for longer than most of these tests take together, so it starts with the first of them and not with the
one that reads what it prints.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from durabl_ext import JobQueue, MongoJobQueue
from durabl_ext.runtime.sync_work import SyncWork
from tests.watching import settled, until

PROCESSORS = 50
WATCHED = 64.0
"""Seconds; a poll of a worker that has a change stream is among them."""


class Commands(CommandListener):
    """Notes the commands of a client, but for the reads of its change stream."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name != "getMore":
            self.names.append(event.command_name)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


@contextmanager
def idle(url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Starts it on a database; its one line is a list: the names of the commands, and the seconds they were sent in."""
    command = [sys.executable, "-m", "tests.runtime.idle", url, name]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def main(url: str, name: str) -> None:
    commands = Commands()
    with MongoClient[dict[str, Any]](url) as other:
        JobQueue(other[name]).enqueue("action-0", delay=3_600)
    with MongoClient[dict[str, Any]](url, event_listeners=[commands]) as client:
        queue: SyncWork = JobQueue(MongoJobQueue(client[name]))
        for n in range(PROCESSORS):
            queue.process(f"action-{n}", print)
        queue.start(reaper=False)
        until(lambda: "distinct" in commands.names)
        settled(lambda: len(commands.names), 1)  # the first look is over
        commands.names.clear()
        began = time.monotonic()
        threading.Event().wait(WATCHED)
        print(json.dumps((list(commands.names), time.monotonic() - began)), flush=True)
        queue.shutdown(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
