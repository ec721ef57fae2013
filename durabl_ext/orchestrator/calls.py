"""A step as the body calls it, and how the steps of one kind of body are called."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from durabl_ext.options import Seconds, checked_seconds
from durabl_ext.runtime.signal import Stop
from simplequeue.jobs import Session
from simplequeue.payload import PayloadError, shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A step that the body calls."""

    job_id: str
    seq: str
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    key: str
    timeout: float
    transactional: bool
    beside: tuple[str, ...]


class Caller(Protocol):
    """How the steps of one kind of body are called."""

    def me(self) -> object:
        """The task or thread that is calling."""

    async def call(self, asked: Asked, session: Session | None, stop: Stop) -> Any:
        """Gives what the function returns or raises.

        Raises:
            StepTimeout: It takes too long.
        """

    async def finish(self, keeping: Coroutine[Any, Any, T]) -> T:
        """Sees something through: a step that has ended is kept, also when the run is told to stop meanwhile."""


def checked_positive(value: Seconds, path: str) -> float:
    """Gives back a duration in seconds that is more than none."""
    seconds = checked_seconds(value, path)
    if seconds <= 0:
        raise PayloadError(path, f"expected more than 0 seconds, found {value!r}")
    return seconds


def checked_text(name: object, path: str) -> None:
    """Raises for what is no text that can be stored, or an empty one."""
    if not isinstance(name, str) or not name:
        raise PayloadError(path, f"expected a text that is not empty, found {shown(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise PayloadError(path, "holds a lone surrogate, which is no character UTF-8 can write") from None
