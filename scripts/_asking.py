"""The question before much is changed at once."""

from __future__ import annotations

import sys

import click


def ask(count: int, verb: str, question: str, yes: bool) -> None:
    """Asks before more than one job is changed, unless told that the answer is yes.

    Raises:
        click.UsageError: There is no terminal to ask at.
        click.Abort: The answer is no.
    """
    if count < 2 or yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f"this would {verb} {count:,} jobs and there is no terminal to ask at: pass --yes")
    click.confirm(question, abort=True, err=True)
