"""Whether the extension has become slower: ``python -m benchmarks.check RESULT``.

Compares the ratios of a result of ``python -m benchmarks.durable --json RESULT`` with those of the last recorded one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.compare import FALL, changes, differences, missing, table

RESULTS = Path(__file__).parent / "results"
"""The history: one file for each recorded run."""


@click.command()
@click.argument("result", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An earlier result. Default: the last one that is recorded.",
)
def main(result: Path, against: Path | None) -> None:
    """Compares a result with an earlier one; exits with 1 if a ratio fell by more than 15 %."""
    earlier = against or last(RESULTS, but=result)
    before, now = _read(earlier), _read(result)
    found = changes(before, now)
    if not found:
        raise click.UsageError(f"{result} and {earlier} have no ratio in common")
    click.echo(f"beside {earlier.name}{': ' if before['note'] else ''}{before['note']}")
    for difference in differences(before, now):
        click.echo(f"not the same machine: {difference}")
    click.echo(table(found))
    for name in missing(before, now):
        click.echo(f"not measured this time: {name}")
    fallen = [change.name for change in found if change.fell]
    if fallen:
        click.echo(f"fell by more than {FALL:.0%}: {'; '.join(fallen)}. Run it again before you believe it.")
        raise SystemExit(1)
    click.echo(f"none of {len(found)} ratios fell by more than {FALL:.0%}")


def last(folder: Path, but: Path) -> Path:
    """The file of the last run that is recorded in a folder, other than one.

    Raises:
        click.UsageError: There is none.
    """
    recorded = [path for path in folder.glob("*.json") if path.resolve() != but.resolve()]
    if not recorded:
        raise click.UsageError(f"no result is recorded in {folder}")
    return max(recorded, key=lambda path: str(json.loads(path.read_text())["recorded"]))


def _read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    if result["quick"]:
        raise click.UsageError(f"{path} is of a quick run, which says nothing of speed")
    return result


if __name__ == "__main__":
    main()
