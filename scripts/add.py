"""``simplequeue add``: a job from the shell."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click

from simplequeue_scripts._as_json import named, show_json
from simplequeue_scripts._options import Options, connected


@click.command()
@click.argument("action")
@click.argument("data", default="{}")
@connected
def add(options: Options, action: str, data: str) -> None:
    """Adds a job and prints its id.

    DATA is a JSON object, or - to read one from stdin. Without it the job's data is empty.
    """
    if data == "-" and sys.stdin is None:
        raise click.BadParameter("stdin is closed, so there is nothing to read", param_hint="DATA")
    values = parsed(sys.stdin.buffer.read() if data == "-" else data)
    job = options.open().queue.add(action, values)
    if options.json:
        show_json(named(job.document))
    else:
        click.echo(job.id)


def parsed(text: str | bytes) -> dict[str, Any]:
    """Gives the object that a JSON text holds.

    Raises:
        click.BadParameter: It is no JSON, or holds something else.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="DATA") from error
    if not isinstance(value, dict):
        raise click.BadParameter(
            f"expected a JSON object such as '{{\"user\": 1}}', found {type(value).__name__}", param_hint="DATA"
        )
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")  # Python would take it


if __name__ == "__main__":
    add()
