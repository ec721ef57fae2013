"""``simplequeue get``: jobs, whole."""

from __future__ import annotations

import click

from simplequeue_scripts._as_json import named, show_json
from simplequeue_scripts._as_text import printable, show_job
from simplequeue_scripts._options import Options, connected


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@connected
def get(options: Options, ids: tuple[str, ...]) -> None:
    """Prints jobs with all there is: data, error and stack.

    What the extension keeps with a durable job is printed as it is stored; `simplequeue inspect` makes it readable.

    Exits with 1 when one of them is not there.
    """
    store = options.open()
    missing = 0
    for place, id in enumerate(ids):
        document = store.read(id)
        if document is None:
            missing += 1
            click.echo(f"no job {printable(id)}", err=True)
        elif options.json:
            show_json(named(document))
        else:
            if place > missing:
                click.echo()
            show_job(document)
    if missing:
        click.get_current_context().exit(1)


if __name__ == "__main__":
    get()
