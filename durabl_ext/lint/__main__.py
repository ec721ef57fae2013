"""``python -m durabl_ext.lint``: the findings on stdout, and what could not be checked on stderr."""

from __future__ import annotations

import click

from durabl_ext.lint.check import check


@click.command(
    epilog="Exit codes: 0 nothing found, 1 something found, 2 wrong usage, or a file is missing or does not parse."
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
def main(paths: tuple[str, ...]) -> None:
    """Checks that orchestration bodies do the same again when they are resumed.

    Takes files, and folders with all Python files in them. A `# noqa` or `# noqa: DUR001` comment silences a line.

    \b
    DUR001  awaits something other than octx.*
    DUR002  takes the clock, chance, a new uuid or the order of a set outside of a step
    DUR003  lets a race or a timeout decide
    """
    report = check(paths)
    for finding in report.findings:
        click.echo(str(finding))
    for error in report.unreadable:
        click.echo(f"error: {error}", err=True)
    if report.unreadable or report.findings:
        click.get_current_context().exit(2 if report.unreadable else 1)


if __name__ == "__main__":
    main(prog_name="python -m durabl_ext.lint")
