"""``simplequeue stats``: how many jobs are where, and how far the queue is behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta

import click

from durabl_ext import QueueStats
from simplequeue import PayloadError
from simplequeue.jobs import run
from simplequeue.payload import checked_action
from simplequeue.states import Status
from simplequeue_scripts._arguments import Action
from simplequeue_scripts._as_json import show_json
from simplequeue_scripts._as_text import ACTION_WIDTH, clipped, span
from simplequeue_scripts._failed import KINDS
from simplequeue_scripts._options import Options, Store, connected
from simplequeue_scripts._table import show_rows

TOTAL = "TOTAL"
Rows = Sequence[tuple[str | None, QueueStats]]


@click.command()
@click.argument("actions", metavar="[ACTION]...", nargs=-1, type=Action("action"))
@connected
def stats(options: Options, actions: tuple[str, ...]) -> None:
    """Counts jobs, and says how far the queue is behind.

    It has a line for each ACTION; without any, for all that exist, and a total. LAG is for how long the oldest job
    that could run now has waited: alert on that, not on numbers of jobs. Where jobs have failed, a second table says
    why; plain jobs have no reason stored.

    It reads indexes only, and makes those of the extension where they are missing. With many actions and many ended
    jobs it is faster for named actions.

    With --json the lag is in seconds, and the total has the action null.
    """
    store = options.open()
    if actions:
        rows: Rows = [(action, store.durable.get_stats(action)) for action in dict.fromkeys(actions)]
    else:
        store.durable.startup()  # without its indexes the look for the actions would read the collection
        # The total last: its lag must not seem shorter than that of an action.
        rows = [(action, store.durable.get_stats(action)) for action in [*actions_of(store), None]]
    if options.json:
        for action, counts in rows:
            show_json({"action": action, **dataclasses.asdict(counts)})
        return
    named = [(TOTAL if action is None else clipped(action, ACTION_WIDTH), counts) for action, counts in rows]
    _show(("LAG", *Status), [(name, _lag(counts), *_per_status(counts)) for name, counts in named])
    failed = [(name, counts) for name, counts in named if counts.failed]
    if failed:
        click.echo()
        _show((Status.FAILED, *KINDS), [(name, *_per_kind(counts)) for name, counts in failed])


def actions_of(store: Store) -> list[str]:
    """Gives the actions of all jobs, by name; what another program stored in the place of one is left out.

    Each status has an index that holds the actions too; a look at all statuses at once would read the collection.
    """
    found = {
        action
        for status in Status
        for action in run(store.jobs.distinct("action", {"status": status.value}))
        if _can_be_one(action)
    }
    return sorted(found)


def _can_be_one(action: object) -> bool:
    try:
        checked_action(action)
    except PayloadError:
        return False
    return True


def _show(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    show_rows([("ACTION", *(title.upper() for title in titles)), *rows], fold=1, numbers=True)


def _per_status(counts: QueueStats) -> list[str]:
    return [_number(getattr(counts, status)) for status in Status]


def _per_kind(counts: QueueStats) -> list[str]:
    return [_number(counts.failed), *(_number(counts.failed_by_kind[kind]) for kind in KINDS)]


def _number(count: int) -> str:
    return f"{count:,}"


def _lag(counts: QueueStats) -> str:
    return "-" if counts.oldest_queued_run_at is None else span(timedelta(seconds=counts.oldest_queued_lag))


if __name__ == "__main__":
    stats()
