"""How jobs are printed for people.

The text in a job may come from anybody: what is printed here has nothing in it that a terminal would obey.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from simplequeue.states import ENDED, Status
from simplequeue_scripts._as_json import iso, named, plain
from simplequeue_scripts._table import show_rows

ACTION_WIDTH = 30
ERROR_WIDTH = 60
_INDENT = 12
_TITLES = ("ID", "STATUS", "ACTION", "CREATED", "AGE", "TOOK", "ATTEMPT", "DUE", "ERROR")
_FOLD = 3
_ONLY_DURABLE = slice(6, 8)
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def printable(text: object) -> str:
    """Gives a text with all characters written out that a terminal would obey or cannot show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def clipped(text: object, width: int) -> str:
    """Gives a printable text of at most so many characters."""
    shown = printable(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def counted(count: int, kind: str = "job") -> str:
    """Gives a number of jobs in words."""
    return f"{count:,} {kind}" + ("" if count == 1 else "s")


def show_job(document: Mapping[str, Any]) -> None:
    """Prints a whole job."""
    for name, value in named(document).items():
        show_field(name, value)


def show_field(name: str, value: Any) -> None:
    """Prints a field of a job."""
    show_lines(name, _lines(name, plain(value)))


def show_lines(name: str, lines: Sequence[str]) -> None:
    """Prints lines beneath each other, the first behind a name."""
    label = printable(name)
    for line in lines or ["-"]:
        click.echo(f"{label:<{_INDENT}} {printable(line)}".rstrip())
        label = ""


def show_table(documents: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Prints jobs below a line of titles; what only durable jobs have is there where one of them is."""
    rows = [_TITLES, *(_row(document, now) for document in documents)]
    if not any(isinstance(document.get("durable"), Mapping) for document in documents):
        rows = [row[: _ONLY_DURABLE.start] + row[_ONLY_DURABLE.stop :] for row in rows]
    show_rows(rows, fold=_FOLD)


def span(duration: timedelta) -> str:
    """Gives a duration in its two largest units; below ten seconds with milliseconds."""
    seconds = max(duration.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.3f}s"
    counts, left = [], int(seconds)
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        counts.append((count, unit))
    while not counts[0][0]:
        counts.pop(0)
    return "".join(f"{count}{unit}" for count, unit in counts[:2] if count)


def attempts(document: Mapping[str, Any]) -> str:
    """Gives how many of its attempts a durable job has used."""
    durable = document.get("durable")
    if not isinstance(durable, Mapping):
        return "-"
    return printable(f"{durable.get('attempt', '?')}/{durable.get('max_attempts', '?')}")


def due(document: Mapping[str, Any], now: datetime) -> str:
    """Gives when a queued durable job may run."""
    durable = document.get("durable")
    run_at = durable.get("run_at") if isinstance(durable, Mapping) else None
    if document.get("status") != Status.QUEUED or not isinstance(run_at, datetime):
        return "-"
    return "now" if run_at <= now else f"in {span(run_at - now)}"


def headline(error: object) -> str:
    """Gives the first line of a stored error."""
    if isinstance(error, Mapping):
        return f"{error.get('name')}: {error.get('message')}".partition("\n")[0]
    return "" if error is None else str(error)


def _row(document: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    created, started, finished = (document.get(name) for name in ("created_at", "started_at", "finished_at"))
    status = document.get("status")
    # The same moments as in ls.by_age, so that the column shows what --older-than looks at.
    since = started if status == Status.RUNNING else finished if status in ENDED else created
    return (
        printable(document.get("_id")),
        clipped(status, ACTION_WIDTH),
        clipped(document.get("action"), ACTION_WIDTH),
        iso(created) if isinstance(created, datetime) else "-",
        _between(since, now),
        _between(started, finished),
        attempts(document),
        due(document, now),
        clipped(headline(document.get("error")), ERROR_WIDTH),
    )


def _between(start: object, end: object) -> str:
    return span(end - start) if isinstance(start, datetime) and isinstance(end, datetime) else "-"


def _lines(name: str, value: Any) -> list[str]:
    if name == "error" and isinstance(value, dict):
        message = f"{value.get('name')}: {value.get('message')}"
        return [*message.split("\n"), *str(value.get("stack") or "").splitlines()]
    if isinstance(value, dict | list):
        return json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return ["-" if value is None else str(value)]
