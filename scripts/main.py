"""The ``simplequeue`` command: what is in the other files, under one name."""

from __future__ import annotations

import click

from simplequeue_scripts._options import shared_options
from simplequeue_scripts.add import add
from simplequeue_scripts.cancel import cancel
from simplequeue_scripts.demo import demo
from simplequeue_scripts.failed import failed
from simplequeue_scripts.get import get
from simplequeue_scripts.inspect_job import inspect_job
from simplequeue_scripts.ls import ls
from simplequeue_scripts.reap import reap
from simplequeue_scripts.retry import retry
from simplequeue_scripts.stats import stats
from simplequeue_scripts.sweep import sweep
from simplequeue_scripts.worker import worker


@click.group(
    epilog="Exit codes: 0 done, 1 some asked-for items could not be done, 2 wrong usage, 3 no server. Results go to "
    "stdout, messages to stderr."
)
@click.version_option(package_name="simplequeue")
@shared_options
def main() -> None:
    """Looks after background jobs in MongoDB.

    The options below may also stand after the command. New here? Try: simplequeue demo
    """


for command in (demo, add, get, ls, cancel, sweep, worker, stats, failed, retry, reap, inspect_job):
    main.add_command(command)

if __name__ == "__main__":
    main()
