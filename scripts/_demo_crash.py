"""The second act of the demo: a worker is killed in the middle of a job, and another one finishes it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from pymongo.database import Database

from durabl_ext import JobQueue
from simplequeue import Status
from simplequeue_scripts._demo_worker import ACTION, LEASE, PAGES

PATIENCE = 60.0


def show_crash(db: Database[dict[str, Any]], uri: str) -> None:
    """Has a worker killed while it is at work, and shows what becomes of its job.

    Raises:
        click.ClickException: It takes much longer than it should.
    """
    queue = JobQueue(db)
    click.echo('\nA job that must survive a crash: JobQueue(db).enqueue("report", max_attempts=3)')
    id = queue.enqueue(ACTION, {"for": "Ada"}, max_attempts=3, backoff="fixed", backoff_delay=0.2)
    assert id is not None
    with worker(uri) as (process, lines):
        for line in lines:
            click.echo(f"  worker {process.pid}: {line}")
            if f"page {PAGES // 2} " in line:
                break
        process.kill()
        click.echo(f"  worker {process.pid} is killed, as a machine that loses its power would")
    click.echo(f"Nobody hears of it any more. When its lease of {LEASE:g} s ends, another worker puts the job back:")
    with worker(uri) as (process, lines):
        for line in lines:
            click.echo(f"  worker {process.pid}: {line}")
            if f"page {PAGES} " in line:
                break
        process.terminate()  # it finishes what runs
        process.wait(PATIENCE)
    job = queue.get(id)
    if job is None or job.status is not Status.COMPLETED:
        raise click.ClickException(f"job {id} has not been completed: is this machine very busy?")
    click.echo(f"  {ACTION} {job.status} in attempt {job.attempt} of {job.max_attempts}")


@contextmanager
def worker(uri: str) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """Runs a worker as a process and gives what it prints; it is gone afterwards, and cannot outstay its time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "simplequeue_scripts._demo_worker", uri],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(PATIENCE, process.kill)
    overdue.start()
    try:
        assert process.stdout is not None
        yield process, (line.rstrip() for line in process.stdout)
    finally:
        overdue.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
