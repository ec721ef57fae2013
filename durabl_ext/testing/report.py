"""What is said of a body that is not crash safe: what differs, the program that shows it, and what to do."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from durabl_ext.errors import NondeterminismError
from durabl_ext.orchestrator.history import START
from durabl_ext.testing.errors import CrashNotReached
from durabl_ext.testing.watch import Boundary

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a harness, which is made and is shown."""

    method: str
    args: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def on(self, harness: Any) -> None:
        """Makes it."""
        getattr(harness, self.method)(*self.args, **self.options)

    def __str__(self) -> str:
        given = [repr(arg) for arg in self.args] + [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.method}({', '.join(given)})"


def told_apart(boundary: Boundary) -> str:
    """A write to the journal, in words."""
    if boundary.seq == START:
        return "what octx.now() and octx.uuid() go by"
    what = "the failure of step" if boundary.failed else "step"
    return f"{what} {boundary.name!r} at {boundary.seq}"


def program(body: Callable[..., Any], settings: Mapping[str, Any], calls: Sequence[Call]) -> str:
    """The lines that make these calls."""
    name = getattr(body, "__name__", "body")
    given = [f"{key}={'db' if key == 'db' else repr(value)}" for key, value in settings.items() if value is not None]
    made = ", ".join([name if name.isidentifier() else "body", *given])
    lines = [f"harness = OrchestrationHarness({made})", *(f"harness.{call}" for call in calls), "print(effects())"]
    return "\n".join(f"    {line}" for line in lines)


def difference(expected: object, found: object) -> str:
    """What is missing (-) and what is too much (+)."""
    told = "\n".join(
        f"    {line}" for line in difflib.ndiff(_lines(expected), _lines(found)) if not line.startswith("?")
    )
    return f"what it has done is not what an uninterrupted run does (- missing, + too much):\n{told}"


def problem(expected: object, found: object, error: BaseException | None) -> str:
    """What is wrong, in words."""
    if error is None:
        return difference(expected, found)
    return str(error) if isinstance(error, CrashNotReached) else f"{type(error).__name__}: {error}"


def remedy(at: Boundary | None, interrupted: str, error: BaseException | None) -> str:
    """What to do.

    Args:
        at: The write at which it was interrupted; None where its end was not stored.
        interrupted: The method that did it.
        error: What the body raised that should have gone on; None where only its effects differ.
    """
    if isinstance(error, NondeterminismError | CrashNotReached):
        return (
            "The body did not call the same steps again. Whatever may differ between two runs, such as what is read, "
            "the time, chance or a global, belongs into a step; octx.now() and octx.uuid() are there for two of them"
        )
    if error is not None:
        return "The body must get to its end when it is resumed: what it had done already must be no error"
    if at is None or at.seq == START or interrupted == "crash_after":
        return (
            "All that was journaled was skipped, so this comes from what the body does outside of its steps, or in an "
            "except or a finally: put it into a step. Or it depends on something besides its job and its journal"
        )
    if at.transactional:
        return (
            f"Step {at.name!r} was rolled back and has run again: pass session=step.session to each of its writes, and "
            "do what is no write to this database in a step of its own"
        )
    return (
        f"The function of step {at.name!r} has run twice, as it was not journaled the first time. Pass "
        "step.idempotency_key to whatever does the work, so that a repeated call is known; or, if that is a write to "
        "MongoDB, make the step transactional=True and pass session=step.session. If it has not run twice, look at "
        "what the body does outside of its steps, or in an except or a finally"
    )


def _lines(value: object) -> list[str]:
    """A value in lines that can be compared: of what holds several, one for each."""
    if isinstance(value, Mapping):
        return sorted(f"{key!r}: {one!r}" for key, one in value.items())
    if isinstance(value, Set):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [repr(one) for one in value]
    return pprint.pformat(value, width=WIDTH).splitlines()
