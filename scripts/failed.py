"""``simplequeue failed``: which jobs have failed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from durabl_ext import FailureKind
from simplequeue_scripts._arguments import Action
from simplequeue_scripts._as_json import iso, named, show_json
from simplequeue_scripts._as_text import ACTION_WIDTH, attempts, clipped, headline, printable
from simplequeue_scripts._failed import KINDS, find_failed
from simplequeue_scripts._options import Options, connected
from simplequeue_scripts._table import show_rows
from simplequeue_scripts.ls import MOST

COLUMNS = (
    *("_id", "action", "finished_at", "error.name", "error.message"),
    *("durable.failure_kind", "durable.attempt", "durable.max_attempts"),
)
"""What the table needs. The data of one job may be 16 MB."""

TITLES = ("ID", "KIND", "ACTION", "FINISHED", "ATTEMPTS", "ERROR")
FOLD = 3
ERROR_WIDTH = 200


@click.command()
@click.option("--kind", type=click.Choice(KINDS), help="Only those that failed for this reason.")
@click.option("--action", type=Action("action"), help="Only of this action.")
@click.option("--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="At most so many.")
@connected
def failed(options: Options, kind: FailureKind | None, action: str | None, limit: int) -> None:
    """Lists failed jobs, the latest first.

    KIND is why: retries-exhausted, it might have gone well; fatal, no attempt can succeed; stalled, its runs died.
    Plain jobs have none. The table has the first line of the error, cut to fit; with --json the jobs are whole.

    `simplequeue inspect ID` shows one with its stack, `simplequeue retry` puts them back in the queue.
    """
    found = find_failed(options.open(), kind, action, limit + 1, None if options.json else COLUMNS)
    shown = found[:limit]
    if options.json:
        for document in shown:
            show_json(named(document))
    elif shown:
        show_rows([TITLES, *map(_row, shown)], fold=FOLD)
    else:
        click.echo("no failed jobs", err=True)
    if len(found) > limit:
        click.echo(f"there are more than these {limit}; --limit shows more", err=True)


def _row(document: Mapping[str, Any]) -> tuple[str, ...]:
    durable = document.get("durable")
    kind = durable.get("failure_kind") if isinstance(durable, Mapping) else None
    finished = document.get("finished_at")
    return (
        printable(document.get("_id")),
        "-" if kind is None else clipped(kind, ACTION_WIDTH),
        clipped(document.get("action"), ACTION_WIDTH),
        iso(finished) if isinstance(finished, datetime) else "-",
        attempts(document),
        clipped(headline(document.get("error")), ERROR_WIDTH),
    )


if __name__ == "__main__":
    failed()
