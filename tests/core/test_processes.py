"""Keys and indexes between processes, each with a client of its own, let loose at one moment."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from durabl_ext.core.indexes import ALL
from simplequeue import create_queue
from simplequeue.jobs import run

PROCESSES = 32

PROGRAM = """
import fcntl, json, sys
from pymongo import MongoClient
from durabl_ext.core.enqueue import enqueue
from durabl_ext.core.indexes import ALL
from durabl_ext.options import Enqueue, checked
from simplequeue import create_queue
from simplequeue.jobs import run

uri, barrier = sys.argv[1:]
client = MongoClient(uri)

def answer(jobs, options):
    if options is None:
        for index in ALL:
            run(jobs.ensure_index(index))
        return "made"
    return run(enqueue(jobs, [checked(Enqueue(**options), jobs.codec)]))[0]

for line in sys.stdin:
    name, options = json.loads(line)
    jobs = create_queue(client[name])._jobs
    run(jobs.now())
    with open(barrier) as waiting:
        print("ready", flush=True)
        fcntl.flock(waiting, fcntl.LOCK_SH)
        print(json.dumps(answer(jobs, options)), flush=True)
"""


class Processes:
    """Many processes that wait for each other before they do what they are told."""

    def __init__(self, programs: list[subprocess.Popen[str]], barrier: Path) -> None:
        self._pipes: list[tuple[IO[str], IO[str]]] = []
        for program in programs:
            assert program.stdin
            assert program.stdout
            self._pipes.append((program.stdin, program.stdout))
        self._barrier = barrier

    def end(self) -> None:
        """Lets all end, before the first is waited for."""
        for stdin, _ in self._pipes:
            stdin.close()

    def at_once(self, db: Database[dict[str, Any]], *asked: Any) -> list[Any]:
        """Lets one process do each of these, and gives what it answers."""
        pipes = self._pipes[: len(asked)]
        with self._barrier.open("w") as closed:
            fcntl.flock(closed, fcntl.LOCK_EX)
            for (stdin, _), one in zip(pipes, asked, strict=True):
                stdin.write(json.dumps([db.name, one]) + "\n")
                stdin.flush()
            assert [stdout.readline() for _, stdout in pipes] == ["ready\n"] * len(pipes)
        return [json.loads(stdout.readline()) for _, stdout in pipes]


@pytest.fixture(scope="module")
def processes(mongo_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    barrier = tmp_path_factory.mktemp("barrier") / "barrier"
    barrier.touch()
    with ExitStack() as stack:
        programs = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, mongo_url, str(barrier)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(PROCESSES)
        ]
        processes = Processes(programs, barrier)
        yield processes
        processes.end()


@pytest.fixture
def indexed(db: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    jobs = create_queue(db)._jobs
    for index in ALL:
        run(jobs.ensure_index(index))
    return db


def asked(key: str, scope: str, **options: Any) -> list[dict[str, Any]]:
    """For each process a job of the key with data of its own."""
    return [
        {"action": "a", "data": {"n": n}, "dedupe_key": key, "dedupe_scope": scope, **options} for n in range(PROCESSES)
    ]


@pytest.mark.parametrize("scope", ["queued", "queued+running"])
def test_many_processes_that_add_one_key_at_once_make_one_job(
    processes: Processes, indexed: Database[dict[str, Any]], scope: str
) -> None:
    for key in ("one", "two", "three"):
        answers = processes.at_once(indexed, *asked(key, scope))
        (id,) = [answer for answer in answers if answer is not None]
        (job,) = indexed.job.find({"durable.dedupe.key": key})
        assert job["_id"] == id
        assert job["data"] == {"n": answers.index(id)}


def test_many_processes_that_add_the_latest_of_one_key_at_once_make_one_job_with_the_data_of_one(
    processes: Processes, indexed: Database[dict[str, Any]]
) -> None:
    for key in ("one", "two", "three"):
        answers = processes.at_once(indexed, *asked(key, "queued", coalesce="latest"))
        (job,) = indexed.job.find({"durable.dedupe.key": key})
        assert set(answers) == {job["_id"]}
        assert job["data"]["n"] in range(PROCESSES)
        assert job["durable"]["coalesced"] == PROCESSES - 1  # each was the latest once, and none was lost on the way


def test_eight_processes_may_make_all_indexes_at_once(
    client: MongoClient[dict[str, Any]], processes: Processes, db: Database[dict[str, Any]]
) -> None:
    for _ in range(3):
        assert processes.at_once(db, *[None] * 8) == ["made"] * 8
        assert db.job.index_information().keys() == {"_id_", *(index.name for index in ALL)}
        client.drop_database(db)
