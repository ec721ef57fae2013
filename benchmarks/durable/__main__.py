"""The extension beside the floor: ``python -m benchmarks.durable``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TextIO

import click

from benchmarks.durable.backlog import backlog
from benchmarks.durable.enqueue import enqueue
from benchmarks.durable.heartbeats import heartbeats
from benchmarks.durable.imports import imports
from benchmarks.durable.logs import logs
from benchmarks.durable.memory import memory
from benchmarks.durable.peers import peers
from benchmarks.durable.pickup import pickup
from benchmarks.durable.place import Place, open_place
from benchmarks.durable.report import Line, load, table, write
from benchmarks.durable.sizes import FULL, QUICK, Sizes
from benchmarks.durable.throughput import throughput
from benchmarks.durable.workers import workers
from benchmarks.report import machine
from benchmarks.server import server

MEASURES: dict[str, Callable[[Place, Sizes], Iterator[Line]]] = {
    "throughput": throughput,
    "enqueue": enqueue,
    "pickup": pickup,
    "backlog": backlog,
    "workers": workers,
    "heartbeats": heartbeats,
    "memory": memory,
    "imports": imports,
    "logs": logs,
    "peers": peers,
}


@click.command()
@click.option("--uri", help="A replica set to measure on, in a database of its own. Default: a private server.")
@click.option("--only", multiple=True, type=click.Choice(list(MEASURES)), help="Only this measure; may be repeated.")
@click.option("--quick", is_flag=True, help="One small sample of each: whether it works rather than how fast it is.")
@click.option("--json", "file", type=click.File("w", lazy=True), help="Write the result to this file as well.")
@click.option("--note", default="", help="What is to be known of this run, kept in the file.")
def main(uri: str | None, only: tuple[str, ...], quick: bool, file: TextIO | None, note: str) -> None:
    """Measures the extension beside loops of bare driver calls, in turns, on one server."""
    began, sizes, before = time.monotonic(), QUICK if quick else FULL, load()
    recorded = datetime.now(UTC)
    lines: list[Line] = []
    took: dict[str, int] = {}
    with server(uri) as address, open_place(address) as place:
        about = machine(place.db.client.server_info()["version"])
        click.echo(", ".join(f"{name} {value}" for name, value in about.items()))
        for name in only or MEASURES:
            click.echo(f"{name} ...", err=True)
            begins = time.monotonic()
            taken = list(MEASURES[name](place, sizes))
            if taken:
                click.echo(f"{table(taken)}\n")
            lines += taken
            took[name] = round(time.monotonic() - begins)
    judged = [line for line in lines if line.met is not None]
    seconds = time.monotonic() - began
    click.echo(f"{sum(bool(line.met) for line in judged)} of {len(judged)} targets met, in {seconds:.0f} s")
    if file is not None:
        result = {
            "recorded": recorded.isoformat(timespec="seconds"),
            "note": note,
            "quick": quick,
            "seconds": took,
            "machine": {**about, "load_before": before, "load_after": load()},
            "settings": asdict(sizes),
            "lines": [line.as_json() for line in lines],
        }
        write(result, file)


if __name__ == "__main__":
    main()
