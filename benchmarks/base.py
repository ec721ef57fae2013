"""The base layer beside the loop one would write by hand: ``python -m benchmarks.base``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TextIO, get_args

import click

from benchmarks.pairs import Compare, alternate, by_difference, by_percentile, by_ratio, compared
from benchmarks.report import Line, Target, table
from benchmarks.samples import Samples, open_samples
from benchmarks.server import server
from benchmarks.sizes import FULL, QUICK, Colour, Sizes

RATE = Target("at least", 0.9)
LATENCY = Target("at most", 1.15)
MEMORY = Target("MB more", 15)

JUDGED: dict[str, list[tuple[str, str, Target, Compare]]] = {
    "add": [("add", "jobs/s", RATE, by_ratio)],
    "add_many": [("add_many", "jobs/s", RATE, by_ratio)],
    "listen": [("listen", "jobs/s", RATE, by_ratio)],
    "latency": [
        ("latency p50", "ms", LATENCY, by_percentile(50)),
        ("latency p99", "ms", LATENCY, by_percentile(99)),
    ],
    "memory": [("memory", "MB", MEMORY, by_difference)],
}
"""What is read out of the pairs of each measure."""


@click.command()
@click.option("--uri", help="A replica set to measure on, in a database of its own. Default: a private server.")
@click.option("--only", multiple=True, type=click.Choice(list(JUDGED)), help="Only this measure; may be repeated.")
@click.option("--quick", is_flag=True, help="Few and small samples: whether it works rather than how fast it is.")
@click.option("--json", "file", type=click.File("w"), help="Write the result to this file as well.")
def main(uri: str | None, only: tuple[str, ...], quick: bool, file: TextIO | None) -> None:
    """Measures the base layer beside a hand-written loop, in turns, on one server."""
    began = time.monotonic()
    sizes = QUICK if quick else FULL
    with server(uri) as address, open_samples(address, sizes) as (samples, machine):
        click.echo(", ".join(f"{name} {value}" for name, value in machine.items()))
        lines = [line for name in only or JUDGED for line in _measured(name, samples, sizes)]
    click.echo(table(lines))
    click.echo(f"{sum(line.met for line in lines)} of {len(lines)} targets met, in {time.monotonic() - began:.0f} s")
    if file is not None:
        json.dump({"machine": machine, "lines": [line.as_json() for line in lines]}, file, indent=2)


def _measured(name: str, samples: Samples, sizes: Sizes) -> Iterator[Line]:
    for colour in get_args(Colour):
        click.echo(f"{name}, {colour} ...", err=True)
        # Each sample of memory is a process of its own, which nothing before it can warm up.
        pairs = alternate(samples[name, colour], *sizes.pairs[name], warm_up=name != "memory")
        for label, unit, target, compare in JUDGED[name]:
            yield Line(label, colour, len(pairs), unit, target, compared(pairs, compare))


if __name__ == "__main__":
    main()
