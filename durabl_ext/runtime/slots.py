"""Which runs have the slots of a worker, by action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from durabl_ext.claims import Claim
from durabl_ext.core.plans import Settlement


class Slots:
    """The slots that are taken, each by a claim, so that one that is freed twice is freed once."""

    def __init__(self) -> None:
        self._taken: dict[str, set[tuple[str, str]]] = {}

    def take(self, claim: Claim) -> None:
        """Gives a slot to a claim."""
        self._taken.setdefault(claim.job.action, set()).add((claim.job.id, claim.token))

    def free(self, by: Claim | Settlement) -> None:
        """Frees the slot of a claim, if it has one."""
        self._of(by.job.action).discard((by.job.id, by.token))

    def taken(self, action: str) -> int:
        """How many slots of an action are taken."""
        return len(self._of(action))

    def of(self, settlements: Iterable[Settlement]) -> Counter[str]:
        """How many slots of each action some claims have that are to end."""
        return Counter(one.job.action for one in settlements if (one.job.id, one.token) in self._of(one.job.action))

    def _of(self, action: str) -> set[tuple[str, str]]:
        return self._taken.get(action, set())
