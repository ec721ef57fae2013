"""How far a long command is, for somebody who watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], object]]:
    """Shows a bar on stderr where that is a terminal, and gives what to call with each further count."""
    if not sys.stderr.isatty():
        yield lambda count: None  # click would leave a line with the label in the log of a cron job
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield bar.update
