"""``simplequeue retry``: failed jobs back in the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

import click

from durabl_ext import FailureKind, KeyBusy, NotFailed, NotFound, Retried
from simplequeue.states import Status
from simplequeue_scripts._arguments import Action
from simplequeue_scripts._as_json import show_json
from simplequeue_scripts._as_text import counted, printable
from simplequeue_scripts._asking import ask
from simplequeue_scripts._failed import KINDS, find_failed
from simplequeue_scripts._options import Options, Store, connected
from simplequeue_scripts.ls import MOST

Outcome = Retried | KeyBusy | NotFailed | NotFound


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--kind", type=click.Choice(KINDS), help="Those that failed for this reason.")
@click.option("--action", type=Action("action"), help="Those of this action.")
@click.option("--limit", type=click.IntRange(1, MOST), help="With --kind or --action: the latest, at most so many.")
@click.option("--dry-run", is_flag=True, help="Only say which would be tried; keys are not looked at.")
@click.option("--yes", is_flag=True, help="Do not ask before retrying more than one.")
@connected
def retry(
    options: Options,
    ids: tuple[str, ...],
    kind: FailureKind | None,
    action: str | None,
    limit: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Puts failed jobs back in the queue.

    They are due now and have all their attempts again; steps that are finished stay finished. A plain job becomes a
    durable one. Name the jobs by their ids, or by --kind, --action or both with --limit, which takes the latest.

    It says of each what became of it: retried; key busy, as another job (holder) has the same dedupe key; not failed,
    and its status; not found. Exits with 1 when one of them was not retried. With --json that is the outcome: retried,
    key-busy, not-failed, not-found; would-be-retried of a dry run; not-retried where it has stayed failed.
    """
    filtered = kind is not None or action is not None
    if bool(ids) == filtered:
        raise click.UsageError("name the jobs to retry: by their ids, or by --kind and --action, not both")
    if filtered and limit is None:
        raise click.UsageError("say how many to retry at most: --limit 100; --dry-run shows which these are")
    if ids and limit is not None:
        raise click.UsageError("--limit is for --kind and --action; ids are all retried")
    store = options.open()
    wanted: Sequence[str] = list(dict.fromkeys(ids))
    if limit is not None:
        found = [str(job["_id"]) for job in find_failed(store, kind, action, limit + 1, ("_id",))]
        wanted = found[:limit]
        if not found:
            click.echo("no failed jobs", err=True)
        elif len(found) > limit:
            click.echo(f"there are more than these {limit}", err=True)
    if not dry_run:
        ask(len(wanted), "retry", f"Retry {counted(len(wanted), 'failed job')}?", yes)
    decide: Callable[[str], Outcome] = partial(_foreseen, store) if dry_run else store.durable.retry
    all_retried = True
    for id in wanted:
        all_retried &= _told(options, id, decide(id), dry_run)
    if not all_retried:
        click.get_current_context().exit(1)


def _foreseen(store: Store, id: str) -> Outcome:
    document = store.read(id, fields=("status",))
    if document is None:
        return NotFound()
    status: Any = document.get("status")
    return Retried() if status == Status.FAILED else NotFailed(status)


def _told(options: Options, id: str, outcome: Outcome, dry_run: bool) -> bool:
    """Prints what became of one job, at once, since many take a while; and says whether it was retried."""
    word, details = _described(outcome, dry_run)
    if options.json:
        show_json({"id": id, "outcome": word, **details})
    else:
        more = "".join(f" ({name} {printable(value)})" for name, value in details.items())
        click.echo(f"{printable(id)} {word.replace('-', ' ')}{more}")
    return bool(outcome)


def _described(outcome: Outcome, dry_run: bool) -> tuple[str, dict[str, str]]:
    """Gives an outcome as a word, with what belongs to it."""
    match outcome:
        case Retried():
            return "would-be-retried" if dry_run else "retried", {}
        case KeyBusy(holder):
            return "key-busy", {"holder": holder}
        case NotFailed(Status.FAILED):  # the server refused the change, or it has failed once more since
            return "not-retried", {"status": Status.FAILED.value}
        case NotFailed(status):
            return "not-failed", {"status": str(status)}
        case NotFound():
            return "not-found", {}
        case _:
            assert_never(outcome)


if __name__ == "__main__":
    retry()
