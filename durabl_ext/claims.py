"""A claim: the right to run one job, for as long as its lease lasts.

Its token fences every later write of the run. Nothing here knows of a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from durabl_ext.core.plans import How, Settlement
from durabl_ext.job import DurableJob
from simplequeue.failure import StoredError


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that runs here, and the token that says so.

    Attributes:
        job: The job as it was when it was claimed.
        token: Minted for this claim, or for those that started together with it; nobody can guess it.
    """

    job: DurableJob
    token: str

    def settled(self, how: How, error: StoredError | None = None, delay: timedelta = timedelta(0)) -> Settlement:
        """How this claim is to end, for ``settle``.

        Args:
            how: ``"complete"``; ``"fail"``, to be tried again while attempts are left; ``"fail_fatal"``, for good;
                ``"release"``, given back with no attempt spent.
            error: Of a failure, what is stored.
            delay: Of a release, how long the job is not due.
        """
        return Settlement(self.job, self.token, how, error, delay)
