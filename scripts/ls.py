"""``simplequeue ls``: which jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from simplequeue.jobs import run
from simplequeue.states import ENDED, Status
from simplequeue_scripts._arguments import Action, Duration
from simplequeue_scripts._as_json import named, show_json
from simplequeue_scripts._as_text import show_table
from simplequeue_scripts._options import Options, connected

COLUMNS = (
    *("_id", "status", "action", "created_at", "started_at", "finished_at", "error.name", "error.message"),
    *("durable.run_at", "durable.attempt", "durable.max_attempts"),
)
"""What the table needs. The data of one job may be 16 MB."""

NEWEST_FIRST = (("_id", -1),)
BY_ID = "_id_"
"""The index to walk along. Ids sort by time, so the newest come first without a sort, and the walk ends at the limit.

A filter that few jobs pass makes it a walk over all of them. No index is kept for that: it would cost every write of
every job, and this is asked by a person, once. Without the hint the server might take an index of the extension and
sort all that it finds there.
"""

MOST = 100_000
"""They are held in memory until they are printed."""


@click.command()
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice([status.value for status in Status]), help="Only these."
)
@click.option("--action", "actions", multiple=True, type=Action("action"), help="Only of these actions.")
@click.option("--older-than", type=Duration("duration"), help="Only those whose age is at least this, such as 7d.")
@click.option("--newer-than", type=Duration("duration"), help="Only those whose age is below this, such as 1d12h.")
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="At most so many.")
@connected
def ls(
    options: Options,
    statuses: tuple[str, ...],
    actions: tuple[str, ...],
    older_than: timedelta | None,
    newer_than: timedelta | None,
    limit: int,
) -> None:
    """Lists jobs, newest first.

    The age of a job is the time since it came into its status: of a queued job since it was added, of a running one
    since it was started, of an ended one since it ended. So this finds the jobs that are stuck:

        simplequeue ls --status running --older-than 1h

    TOOK is how long its run took. Where one of the jobs is durable, ATTEMPT is how many of its attempts are used, and
    DUE when it may run. With --json the jobs are whole, and --status and --action may be given several times.
    """
    store = options.open()
    now = store.now()
    filter = asked(statuses, actions, older_than, newer_than, now)
    fields = None if options.json else COLUMNS
    found = run(store.jobs.find(filter, fields=fields, sort=NEWEST_FIRST, limit=limit + 1, hint=BY_ID))
    shown = found[:limit]
    if options.json:
        for document in shown:
            show_json(named(document))
    elif shown:
        show_table(shown, now)
    else:
        click.echo("no jobs", err=True)
    if len(found) > limit:
        click.echo(f"there are more than these {limit}; --limit shows more", err=True)


def asked(
    statuses: Sequence[str],
    actions: Sequence[str],
    older_than: timedelta | None,
    newer_than: timedelta | None,
    now: datetime,
) -> dict[str, Any]:
    """Gives the filter for the jobs that are asked for."""
    filter: dict[str, Any] = {}
    if statuses:
        filter["status"] = {"$in": list(statuses)}
    if actions:
        filter["action"] = {"$in": list(actions)}
    since: dict[str, datetime] = {}
    if older_than is not None:
        since["$lte"] = now - older_than
    if newer_than is not None:
        since["$gt"] = now - newer_than
    if since:
        filter["$or"] = by_age(since)
    return filter


def by_age(since: dict[str, datetime]) -> list[dict[str, Any]]:
    """Gives the conditions on the moment at which a job came into its status."""
    return [
        {"status": Status.QUEUED.value, "created_at": since},
        {"status": Status.RUNNING.value, "started_at": since},
        {"status": {"$in": [status.value for status in ENDED]}, "finished_at": since},
    ]


if __name__ == "__main__":
    ls()
