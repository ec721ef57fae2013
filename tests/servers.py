"""The private MongoDBs of the tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from simplequeue.embedded import Mongod

MEMORY = Path("/dev/shm")  # what is made there has a random name and is for this user only
ROOM = 4 * 1024**3
"""Bytes that have to be free there: several times what the servers of a whole run take."""


class QuickMongod(Mongod):
    """A server whose temporary folder is in memory, where there is room for it and TMPDIR names no other place.

    Each durable write waits for the disk, which is a third of the time that tests take. What is tested is not lost with
    it: a server that is killed finds there what it wrote, as on a disk.

    Its journal is flushed every 5 ms instead of every 100: what drops a database or makes an index where there are jobs
    already waits for the next flush, which was 0.6 s of each start of a worker that finds its jobs there.
    """

    def __init__(self) -> None:
        super().__init__(arguments=["--setParameter", "enableTestCommands=1", "--journalCommitInterval", "5"])

    def __enter__(self) -> MongoClient[dict[str, Any]]:
        before = tempfile.tempdir
        if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
            tempfile.tempdir = str(MEMORY)
        try:
            return super().__enter__()
        finally:
            tempfile.tempdir = before
