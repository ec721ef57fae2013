"""``simplequeue demo``: the queue at work, on a database that is gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from simplequeue import Job, Queue, Status, create_queue
from simplequeue.embedded import MongodUnavailable, mongod
from simplequeue.states import ENDED
from simplequeue_scripts._as_text import show_table
from simplequeue_scripts._demo_crash import show_crash

WORK = 0.4
"""Seconds a job of the demo takes, so that there is something to see."""

LOOK = 0.02
PATIENCE = 30.0


@click.command()
def demo() -> None:
    """Shows jobs pass through their states, and outlive a worker.

    It needs no server: it starts a private MongoDB in a temporary folder, or, where it cannot, works in memory.
    """
    with database() as (db, uri):
        queue = create_queue(db)
        click.echo('\nA producer adds jobs: queue.add("greet", {"name": "Ada"})')
        jobs = [queue.add("greet", {"name": name}) for name in ("Ada", "Grace", "Alan")]
        jobs += [queue.add("divide", {"by": 0}), queue.add("greet", {"name": "nobody"})]
        for job in jobs:
            click.echo(f"  {_titled(job)}  {job.status}")
        click.echo("\nOne of them is not wanted any more: queue.cancel(id)")
        queue.cancel(jobs[-1].id)
        click.echo(f"  {_titled(jobs[-1])}  {Status.QUEUED} -> {Status.CANCELLED}")
        click.echo("\nA worker listens, two jobs at a time: queue.listen(handler, concurrency=2)")
        with queue.listen(handle, concurrency=2):
            ended = follow(queue, jobs[:-1])
        click.echo("\nEach has its end. Here they are as `simplequeue ls` shows them, newest first:\n")
        shown = [job for job in [*ended, queue.get(jobs[-1].id)] if job]
        show_table([job.document for job in reversed(shown)], datetime.now(UTC))
        failed = next((job for job in ended if job.error), None)
        if failed is not None and failed.error is not None:
            click.echo(f"\nThe failed one keeps its error and stack: {failed.error['name']}: {failed.error['message']}")
        if uri is not None:
            show_crash(db, uri)
    click.echo("\nThat database is gone now. With one of yours: simplequeue --uri mongodb://HOST/NAME ls")


def handle(job: Job) -> None:
    """Works on a job of the demo."""
    time.sleep(WORK)
    if job.action == "divide":
        1 / job.data["by"]


@contextmanager
def database() -> Iterator[tuple[Any, str | None]]:
    """Gives the demo's database and its server's address: a private MongoDB, or none, in memory, where that fails."""
    with ExitStack() as stack:
        click.echo("Starting a private MongoDB, for this demo only ...")
        server = mongod()
        try:
            db, uri = stack.enter_context(server)["demo"], server.uri
        except MongodUnavailable as reason:
            click.echo(f"... which does not work here: {reason}", err=True)
            db, uri = _in_memory(), None
        yield db, uri


def follow(queue: Queue, jobs: Sequence[Job]) -> list[Job]:
    """Prints each change of state until all jobs have ended, and gives them as they are then.

    Raises:
        click.ClickException: They take much longer than they should.
    """
    now = {job.id: job for job in jobs}
    deadline = time.monotonic() + PATIENCE
    while not all(job.status in ENDED for job in now.values()):
        if time.monotonic() > deadline:
            raise click.ClickException(f"the jobs have not ended in {PATIENCE:g} s: is this machine very busy?")
        time.sleep(LOOK)
        for id, before in now.items():
            job = queue.get(id)
            assert job is not None
            if job.status != before.status:
                click.echo(f"  {_titled(job)}  {before.status} -> {job.status}")
                now[id] = job
    return list(now.values())


def _in_memory() -> Any:
    try:
        import mongomock
    except ImportError:
        raise click.ClickException(
            "without a MongoDB the demo needs mongomock, which is not installed: pip install mongomock"
        ) from None
    click.echo("So it works in memory, with mongomock.")
    return mongomock.MongoClient()["demo"]


def _titled(job: Job) -> str:
    detail = ", ".join(f"{key}={value}" for key, value in job.data.items())
    return f"{job.action + ' ' + detail:<20}"


if __name__ == "__main__":
    demo()
