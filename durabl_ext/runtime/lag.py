"""Watches whether handlers block the loop that they share with heartbeats, and warns before leases are at risk."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta

LOOK = 0.25
"""Seconds between two looks at the clock."""

SHARE = 6
"""A loop that is blocked for a sixth of a lease, half the time between two heartbeats, is warned of."""


async def watch(lease: timedelta, logger: logging.Logger) -> None:
    """Warns of each time the running loop was blocked, until cancelled."""
    limit = lease.total_seconds() / SHARE
    while True:
        before = time.monotonic()
        await asyncio.sleep(LOOK)
        blocked = time.monotonic() - before - LOOK
        if blocked > limit:
            logger.warning(
                "the event loop was blocked for %.1f s, and leases last %g s: a handler computes or waits without "
                "awaiting. Make it a def, which runs in a thread, or pass lease_client= to renew leases in another",
                blocked,
                lease.total_seconds(),
            )
