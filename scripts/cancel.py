"""``simplequeue cancel``: jobs that shall not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from pymongo import UpdateOne

from simplequeue import commands
from simplequeue.states import Status
from simplequeue_scripts._arguments import Action
from simplequeue_scripts._as_json import show_json
from simplequeue_scripts._as_text import counted, printable
from simplequeue_scripts._asking import ask
from simplequeue_scripts._options import Options, Store, connected
from simplequeue_scripts._progress import progress

BATCH = 1_000
"""One at a time, 100,000 jobs take minutes. Much larger batches would hold up claims."""


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--action", "actions", multiple=True, type=Action("action"), help="All queued jobs of this action.")
@click.option("--dry-run", is_flag=True, help="Only say what would be cancelled.")
@click.option("--yes", is_flag=True, help="Do not ask before cancelling more than one.")
@connected
def cancel(options: Options, ids: tuple[str, ...], actions: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Cancels jobs that are still queued.

    Plain jobs and durable ones, also those that wait for their time or for another attempt; their dedupe keys are free
    at once. Running jobs are not stopped. With --action, which may be given several times, it cancels those that are
    queued as the command starts; jobs that are added or come back to the queue after that stay.

    Exits with 1 when some of them could not be cancelled, since they are not there or somebody else was faster.
    """
    if bool(ids) == bool(actions):
        raise click.UsageError("name the jobs to cancel: by their ids, or by --action, not both")
    store = options.open()
    if ids:
        done = _cancel_named(options, store, list(dict.fromkeys(ids)), dry_run, yes)
    else:
        done = _cancel_action(options, store, actions, dry_run, yes)
    if not done:
        click.get_current_context().exit(1)


def cancel_one(store: Store, id: str) -> tuple[bool, str | None]:
    """Cancels one job; says whether it did, and the job's status, None when there is no such job."""
    status: str | None = Status.QUEUED.value
    while status == Status.QUEUED:  # again, if the job came back to the queue between the two calls
        if store.queue.cancel(id) is not None:
            return True, Status.CANCELLED.value
        status = status_of(store, id)
    return False, status


def status_of(store: Store, id: str) -> str | None:
    """Gives a job's status, None when there is no such job."""
    document = store.read(id, fields=("status",))
    return None if document is None else str(document.get("status"))


def queued_ids(store: Store, actions: Sequence[str]) -> list[Any]:
    """Gives the ids of all queued jobs of some actions.

    Only an index of the extension answers this. Without it the collection is read once, in no order, which for a
    command that somebody had to confirm is cheaper than an index that every write of every job would pay for.
    """
    with store.collection.find(queued(actions), ("_id",)) as found:
        return [document["_id"] for document in found]


def queued(actions: Sequence[str]) -> dict[str, Any]:
    """Gives the filter for the queued jobs of some actions, plain ones and those of the extension."""
    return {"status": Status.QUEUED.value, "action": {"$in": list(actions)}}


def cancel_batch(store: Store, ids: Sequence[Any]) -> int:
    """Cancels jobs in one call, each on the same condition as ``Queue.cancel``, and gives how many it did."""
    now = store.now()
    updates = [UpdateOne(*commands.cancel(id, now)) for id in ids]
    return store.collection.bulk_write(updates, ordered=False).modified_count


def _cancel_named(options: Options, store: Store, ids: list[str], dry_run: bool, yes: bool) -> bool:
    if not dry_run:
        ask(len(ids), "cancel", f"Cancel {counted(len(ids))}?", yes)
    all_done = True
    for id in ids:
        if dry_run:
            status = status_of(store, id)
            done = status == Status.QUEUED
        else:
            done, status = cancel_one(store, id)
        all_done &= done
        if options.json:
            show_json({"id": id, "cancelled": done and not dry_run, "status": status})
        else:
            click.echo(f"{printable(id)} {_outcome(done, status, dry_run)}")
    return all_done


def _outcome(done: bool, status: str | None, dry_run: bool) -> str:
    if done:
        return "would be cancelled" if dry_run else "cancelled"
    return "not found" if status is None else f"not queued any more ({printable(status)})"


def _cancel_action(options: Options, store: Store, actions: Sequence[str], dry_run: bool, yes: bool) -> bool:
    ids = queued_ids(store, actions)
    if dry_run:
        _report(options, actions, len(ids), None)
        return True
    named = ", ".join(map(printable, actions))
    question = f"Cancel {counted(len(ids), 'queued job')} of {named}? Jobs added from now on stay."
    ask(len(ids), "cancel", question, yes)
    count = 0
    try:
        with progress(len(ids), "cancelling") as advance:
            for start in range(0, len(ids), BATCH):
                batch = ids[start : start + BATCH]
                count += cancel_batch(store, batch)
                advance(len(batch))
    finally:  # also when the server goes away in between: these are cancelled
        _report(options, actions, len(ids), count)
    return count == len(ids)


def _report(options: Options, actions: Sequence[str], found: int, count: int | None) -> None:
    if options.json:
        outcome = {"dry_run": True} if count is None else {"cancelled": count}
        show_json({"actions": list(actions), "queued": found, **outcome})
    elif count is None:
        click.echo(f"would cancel {counted(found, 'queued job')}")
    else:
        click.echo(f"cancelled {count:,} of {counted(found, 'queued job')}")


if __name__ == "__main__":
    cancel()
