"""What the calls of a backend may be given beside an ``Enqueue``, whose rules are in ``options``.

Nonsense is an error at the call and changes nothing. Nothing here knows of a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args

from durabl_ext.core.plans import How, Settlement
from durabl_ext.job import LogLine
from durabl_ext.options import checked_choice, checked_seconds
from simplequeue.payload import PayloadError, checked_action, checked_count, checked_time, shown

_HOWS = get_args(How)


def checked_line(line: LogLine, path: str) -> LogLine:
    """Gives back a line of a log: a text, and an aware time cut to what can be stored."""
    if not isinstance(line.message, str):
        raise PayloadError(f"{path}.message", f"expected a text, found {shown(line.message)}")
    return LogLine(checked_time(line.at, f"{path}.at"), line.message)


def check_settlement(settlement: Settlement, path: str) -> None:
    """Raises for an end that there is not, or a delay that is none."""
    # A word misspelt must not mean "failed", nor a negative delay the head of the queue.
    checked_choice(settlement.how, _HOWS, f"{path}.how")
    if not isinstance(settlement.delay, timedelta):
        raise PayloadError(f"{path}.delay", f"expected a timedelta, found {shown(settlement.delay)}")
    checked_seconds(settlement.delay, f"{path}.delay")


def checked_wants(actions: Any, limit: int | None) -> dict[str, int]:
    """Gives back how many jobs of each action are wanted at most: as a mapping says, or ``limit`` of each."""
    if isinstance(actions, Mapping) and actions:
        return {
            checked_action(action, "actions"): checked_count(n, f"actions[{action!r}]") for action, n in actions.items()
        }
    return dict.fromkeys(checked_actions(actions), checked_count(limit, "limit"))


def checked_actions(actions: Any) -> list[str]:
    """Gives back a list of actions, which is not empty."""
    if isinstance(actions, str) or not actions:
        raise PayloadError("actions", f"expected a list of actions such as ['send-mail'], found {actions!r}")
    return [checked_action(action, f"actions[{index}]") for index, action in enumerate(actions)]
