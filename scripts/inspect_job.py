"""``simplequeue inspect``: one job whole, with what the extension keeps of it in words.

The file has another name than its command: ``inspect`` is a module of Python, which a file of that name would hide when
a command runs as a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from simplequeue.states import Status
from simplequeue_scripts._as_json import iso, named, plain, show_json
from simplequeue_scripts._as_text import due, printable, show_field, show_lines, span
from simplequeue_scripts._options import Options, connected

TOKEN_SHOWN = 4
"""Enough to tell two claims apart. Whoever knows a token whole can end its run."""

RESULT = "result"
LAST = ("error", "data")
"""What may be long is printed last."""


@click.command("inspect")
@click.argument("id")
@click.option("--results", is_flag=True, help="Also what finished steps gave, which may be long or secret.")
@connected
def inspect_job(options: Options, id: str, results: bool) -> None:
    """Shows one job whole.

    Of a durable job also its attempts, backoff, dedupe key, lease and log, and the steps it has finished, with their
    names and times. The token of its claim is cut short. Exits with 1 when there is no such job.

    With --json it is as it is stored, but for tokens and, without --results, what steps gave.
    """
    store = options.open()
    document = store.read(id)
    if document is None:
        click.echo(f"no job {printable(id)}", err=True)
        click.get_current_context().exit(1)
    durable = document.get("durable")
    if isinstance(durable, Mapping):
        document["durable"] = discreet(durable, results)
    if options.json:
        show_json(named(document))
    else:
        _show(document, store.now())


def discreet(durable: Mapping[str, Any], results: bool) -> dict[str, Any]:
    """Gives what the extension keeps without whole tokens and, unless asked for, without what steps gave."""
    shown = _short(durable)
    if isinstance(shown.get("receipts"), list):
        shown["receipts"] = [_short(one) if isinstance(one, Mapping) else one for one in shown["receipts"]]
    if isinstance(shown.get("steps"), list) and not results:
        shown["steps"] = [_without_result(step) for step in shown["steps"] if isinstance(step, Mapping)]
    return shown


def _short(claim: Mapping[str, Any]) -> dict[str, Any]:
    return {**claim, **({"token": f"{str(claim['token'])[:TOKEN_SHOWN]}…"} if "token" in claim else {})}


def _without_result(step: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps the place, the name and the times of a step: of all else it is not known whether it is a secret."""
    return {
        name: value
        for name, value in step.items()
        if name in ("seq", "name") or (isinstance(value, datetime) and name != RESULT)
    }


def _show(document: Mapping[str, Any], now: datetime) -> None:
    fields = named(document)
    last = {name: fields.pop(name) for name in LAST if name in fields}
    durable = fields.pop("durable", None)
    for name, value in fields.items():
        show_field(name, value)
    if isinstance(durable, Mapping):
        _show_durable(document, durable, now)
    else:
        show_field("durable", durable)
    for name, value in last.items():
        show_field(name, value)


def _show_durable(document: Mapping[str, Any], durable: Mapping[str, Any], now: datetime) -> None:
    left = dict(durable)
    show_field("priority", left.pop("priority", None))
    show_lines("run_at", [_with(left.pop("run_at", None), _due(document, now))])
    show_lines("attempt", [f"{left.pop('attempt', '?')} of {left.pop('max_attempts', '?')}"])
    show_lines("backoff", [_backoff(left.pop("backoff", None))])
    show_lines("dedupe", [_dedupe(left.pop("dedupe", None))])
    lease = left.pop("lease_expires_at", None)
    show_lines("lease", [_with(lease, _life(lease, document, now))])
    for name in ("token", "failure_kind"):
        show_field(name, left.pop(name, None))
    for name, line in (("logs", _log_line), ("steps", _step_line)):
        entries = left.pop(name, None)
        if isinstance(entries, list):
            show_lines(name, [line(entry) if isinstance(entry, Mapping) else _text(entry) for entry in entries])
        else:
            show_field(name, entries)
    for name, value in left.items():
        show_field(name, value)


def _due(document: Mapping[str, Any], now: datetime) -> str | None:
    return f"due {due(document, now)}" if document.get("status") == Status.QUEUED else None


def _with(time: object, remark: str | None) -> str:
    return _text(time) + (f" ({remark})" if remark else "")


def _life(lease: object, document: Mapping[str, Any], now: datetime) -> str | None:
    if document.get("status") != Status.RUNNING or not isinstance(lease, datetime):
        return None
    return f"ends in {span(lease - now)}" if lease > now else f"ended {span(now - lease)} ago: to be recovered"


def _backoff(backoff: object) -> str:
    if not isinstance(backoff, Mapping):
        return _text(backoff)
    kind, delay, longest = (_text(backoff.get(name)) for name in ("kind", "delay", "max_delay"))
    return f"{kind}, {delay} s" + ("" if kind == "fixed" else f" up to {longest} s")


def _dedupe(dedupe: object) -> str:
    if not isinstance(dedupe, Mapping):
        return _text(dedupe)
    return f"{_text(dedupe.get('key'))} (scope {_text(dedupe.get('scope'))})"


def _log_line(line: Mapping[str, Any]) -> str:
    return f"{_text(line.get('at'))}  {_text(line.get('message'))}"


def _step_line(step: Mapping[str, Any]) -> str:
    brief = _without_result(step)
    rest = {name: value for name, value in step.items() if name not in brief}
    times = [iso(value) for name, value in brief.items() if isinstance(value, datetime)]
    parts = [_text(brief.get("seq")), _text(brief.get("name")), *times, *([_text(rest)] if rest else [])]
    return "  ".join(parts)


def _text(value: object) -> str:
    shown = plain(value)
    if isinstance(shown, float):
        return f"{shown:g}"
    return "-" if shown is None else shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


if __name__ == "__main__":
    inspect_job()
