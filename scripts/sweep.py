"""``simplequeue sweep``: away with jobs that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import click
from pymongo.collection import Collection

from simplequeue import Queue, commands
from simplequeue.operations import SWEEP_BATCH
from simplequeue.states import ENDED
from simplequeue_scripts._arguments import Duration, Moment
from simplequeue_scripts._as_json import iso, show_json
from simplequeue_scripts._as_text import counted
from simplequeue_scripts._options import Options, connected
from simplequeue_scripts._progress import progress


@click.command()
@click.option("--older-than", type=Duration("duration"), help="What ended at least so long ago, such as 7d.")
@click.option("--before", type=Moment("time"), help="What ended at or before a time, such as 2026-01-31T12:00:00Z.")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@connected
def sweep(options: Options, older_than: timedelta | None, before: datetime | None, dry_run: bool) -> None:
    """Deletes jobs that ended some time ago.

    These are completed, failed, cancelled and superseded ones, plain and durable; queued and running ones stay, also
    those that wait for another attempt. It deletes in batches, so workers are not held up meanwhile. The time to
    compare with is fixed at the start, by the server's clock. Stopped half way, it can simply be started again.
    """
    if older_than is None and before is None:
        raise click.UsageError(
            "nothing was deleted: say how old a job must be to go. --older-than 7d deletes all that ended at least "
            "seven days ago, --before 2026-01-31T12:00:00Z all that ended by then; with --dry-run they are only counted"
        )
    if older_than is not None and before is not None:
        raise click.UsageError("nothing was deleted: pass --older-than or --before, not both")
    store = options.open()
    cutoff = before if older_than is None else store.now() - older_than
    assert cutoff is not None
    counts = tally(store.collection, cutoff)
    if dry_run:
        _report_counts(options, cutoff, counts)
        return
    deleted = 0
    try:
        with progress(sum(counts.values()), "sweeping") as advance:
            for count in batches(store.queue, cutoff):
                deleted += count
                advance(count)
    finally:  # also when the server goes away in between: these are deleted
        _report_deleted(options, cutoff, deleted)


def batches(queue: Queue, before: datetime) -> Iterator[int]:
    """Deletes batch after batch and yields how many each took."""
    count = SWEEP_BATCH
    while count == SWEEP_BATCH:
        count = queue.sweep(before, limit=SWEEP_BATCH).deleted_count
        yield count


def tally(collection: Collection[dict[str, Any]], before: datetime) -> dict[str, int]:
    """Counts what would be deleted, by status.

    The queue's first sweep makes the index for this. Before that the collection is read once: a dry run makes none.
    """
    counts = dict.fromkeys((status.value for status in ENDED), 0)
    pipeline = [{"$match": commands.ended_before(before)}, {"$group": {"_id": "$status", "count": {"$sum": 1}}}]
    counts.update({group["_id"]: group["count"] for group in collection.aggregate(pipeline)})
    return counts


def _report_counts(options: Options, before: datetime, counts: dict[str, int]) -> None:
    if options.json:
        show_json({"before": before, "dry_run": True, **counts})
        return
    for status, count in counts.items():
        click.echo(f"{status:<12} {count:,}")
    click.echo(f"would delete {counted(sum(counts.values()))} that ended at or before {iso(before)}", err=True)


def _report_deleted(options: Options, before: datetime, deleted: int) -> None:
    if options.json:
        show_json({"before": before, "deleted": deleted})
    else:
        click.echo(f"deleted {counted(deleted)} that ended at or before {iso(before)}")


if __name__ == "__main__":
    sweep()
