"""Rows below their titles, in the room that the terminal has. What is in a cell is printable already."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click

NARROW = 20
"""Characters to which the last cell of a line may be cut, before the line is folded instead."""

UNLIMITED = 1_000_000


def show_rows(rows: Sequence[Sequence[str]], *, fold: int, numbers: bool = False) -> None:
    """Prints rows, each on one line; on a terminal with no room for that on two, the second indented.

    Where nobody looks, in a pipe or a file, there is always room.

    Args:
        rows: The titles, then the others.
        fold: Which column begins the second line.
        numbers: Whether all columns but the first are numbers, to be aligned at their right.
    """
    # Numbers stand at the right of their columns, so that one blank tells these apart, and 80 columns suffice for more.
    gap = " " if numbers else "  "
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = terminal_width()
    needed = sum(widths) - widths[-1] + min(widths[-1], NARROW) + len(gap) * (len(widths) - 1)
    for row in rows:
        cells = [
            cell.rjust(width) if numbers and place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for line in [cells] if needed <= room else [cells[:fold], ["", *cells[fold:]]]:
            text = gap.join(line).rstrip()
            click.echo(text if len(text) <= room else text[: room - 1] + "…")


def terminal_width() -> int:
    """How many characters fit on a line of what is printed."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
