"""``simplequeue reap``: jobs away from runs that have died."""

from __future__ import annotations

from typing import Any

import click

from durabl_ext import MongoJobQueue, Recovered
from simplequeue_scripts._as_json import show_json
from simplequeue_scripts._as_text import counted, printable
from simplequeue_scripts._options import Options, connected

BATCH = 1_000
"""A sweep reads its jobs whole before it writes."""

MOST = 1_000_000


@click.command()
@click.option("--limit", type=click.IntRange(1, MOST), default=100_000, show_default=True, help="At most so many jobs.")
@connected
def reap(options: Options, limit: int) -> None:
    """Takes durable jobs from runs that have died.

    These are runs whose lease has ended: no sign of life came in time. Such a job waits for its next attempt, or has
    failed as stalled when none is left; a handler that was only slow learns that it has lost the job. Plain jobs are
    left alone. Workers do this by themselves: it is for when none is up.

    Exits with 1 when the server refuses to change some of them; these are named. With --json they are the stuck ones,
    and saturated says that the limit was reached, so that there may be more.
    """
    recovered = recover(options.open().durable, limit)
    if options.json:
        show_json({"recovered": recovered.handled, "saturated": recovered.saturated, "stuck": list(recovered.stuck)})
    else:
        click.echo(f"recovered {counted(recovered.handled)}")
        for id in recovered.stuck:
            click.echo(f"{printable(id)} stuck: the server refuses to change it; see simplequeue inspect")
    if recovered.saturated:
        click.echo("there may be more; start it again for these", err=True)
    if recovered.stuck:
        click.get_current_context().exit(1)


def recover(backend: MongoJobQueue, limit: int) -> Recovered:
    """Sweeps until nothing is left, the limit is reached, or a sweep does and finds nothing new."""
    handled = 0
    stuck: list[Any] = []
    while True:
        # Each sweep meets the stuck ones again; they must not take the places of others.
        swept = backend.recover(min(BATCH, limit - handled) + len(stuck))
        new = [id for id in swept.stuck if id not in stuck]
        handled += swept.handled
        stuck += new
        if not swept.saturated or handled >= limit or not (swept.handled or new):
            return Recovered(handled, swept.saturated, tuple(stuck))


if __name__ == "__main__":
    reap()
