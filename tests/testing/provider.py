"""A service outside, as a test fakes one, and bodies that use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from durabl_ext import AsyncOrchestrationContext, DurableJob, OrchestrationContext

Body = Callable[[DurableJob, Any], Any]


class Provider:
    """Charges once for a key, or once a call where it is given none."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.charged: list[tuple[str, int]] = []
        self._keys: set[str] = set()

    def charge(self, who: str, amount: int, key: str | None = None) -> str:
        self.calls.append(who)
        if key is None or key not in self._keys:
            self.charged.append((who, amount))
        if key is not None:
            self._keys.add(key)
        return f"receipt of {who}"

    def effects(self) -> list[tuple[str, int]]:
        """What was charged since this was asked last; it forgets the keys too."""
        done = sorted(self.charged)
        self.charged.clear()
        self._keys.clear()
        return done


def two_steps(provider: Provider) -> list[Body]:
    """The same body in both kinds: charges, then ships; each call is noted with its key."""

    def charge(step: Any, who: str) -> str:
        return provider.charge(who, 5, step.idempotency_key)

    def ship(step: Any, receipt: str) -> str:
        provider.calls.append(f"ship {step.idempotency_key.rpartition(':')[2]}")
        return f"parcel for {receipt}"

    def waiting(job: DurableJob, octx: OrchestrationContext) -> None:
        receipt = octx.step("charge", charge, job.data["who"])
        octx.log(f"charged in attempt {job.attempt}")
        octx.step("ship", ship, receipt)

    async def charge_awaited(step: Any, who: str) -> str:
        await asyncio.sleep(0)
        return charge(step, who)

    async def awaiting(job: DurableJob, octx: AsyncOrchestrationContext) -> None:
        receipt = await octx.step("charge", charge_awaited, job.data["who"])
        octx.log(f"charged in attempt {job.attempt}")
        await octx.step("ship", ship, receipt)

    return [waiting, awaiting]
