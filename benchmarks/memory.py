"""How much memory a worker takes, measured in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pymongo.database import Database

from benchmarks.documents import Document
from benchmarks.loop import Loop
from benchmarks.sizes import ACTION, DATA, TIMEOUT, Colour, Side, Sizes

REPOSITORY = Path(__file__).parent.parent


class Workers:
    """Measures worker processes on a database.

    Args:
        db: A database that holds nothing else.
        uri: The connection string of its server.
        sizes: How much a sample holds.
    """

    def __init__(self, db: Database[Document], uri: str, sizes: Sizes) -> None:
        self._db = db
        self._uri = uri
        self._jobs = sizes.worked
        self._samples = 0

    def resident(self, side: Side, colour: Colour) -> list[float]:
        """The resident megabytes of a worker that has worked on a backlog and still listens."""
        self._samples += 1
        name = f"memory_{self._samples}"
        Loop(self._db, name).add_many([(ACTION, DATA)] * self._jobs)
        command = [sys.executable, "-m", "benchmarks.worker", side, colour, self._uri, self._db.name, name]
        worker = subprocess.run(
            [*command, str(self._jobs)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT
        )
        return [float(worker.stdout)]
