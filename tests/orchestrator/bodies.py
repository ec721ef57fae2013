"""One way to write a body for all kinds: ``async def``, and what makes a ``def`` body of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from simplequeue.jobs import run

AnyBody = Callable[[Any, Any], Awaitable[Any]]


class Done:
    """What has happened already, to be awaited."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self._value


class Once:
    """The octx of a ``def`` body, with results that are awaited."""

    def __init__(self, octx: Any) -> None:
        self.inner = octx
        self.signal = octx.signal

    def step(self, *args: Any, **options: Any) -> Done:
        return Done(self.inner.step(*args, **options))

    def all(self, *branches: Callable[[Any], Awaitable[Any]]) -> Done:
        return Done(self.inner.all(*map(as_def_branch, branches)))

    def now(self) -> Done:
        return Done(self.inner.now())

    def uuid(self, label: str) -> Done:
        return Done(self.inner.uuid(label))

    def heartbeat(self) -> Done:
        return Done(self.inner.heartbeat())

    def log(self, message: str) -> None:
        self.inner.log(message)


def as_def_branch(branch: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
    """A ``def`` branch that does the same."""

    async def branched(octx: Any) -> Any:
        return await branch(octx)

    return lambda octx: run(branched(Once(octx)))


def as_def(body: AnyBody) -> Callable[[Any, Any], Any]:
    """A ``def`` body that does the same."""

    async def called(job: Any, octx: Any) -> Any:
        return await body(job, octx)

    return lambda job, octx: run(called(job, Once(octx)))


def as_async(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """An ``async def`` function that does the same."""

    async def called(*args: Any) -> Any:
        return fn(*args)

    return called
