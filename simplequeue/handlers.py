"""What counts as a handler, and what it must not do: rules that every way of calling one shares."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from simplequeue.threads import settled

T = TypeVar("T")


def checked_handler(handler: object, takes: str, count: int) -> Callable[..., object]:
    """Gives back a handler that can be called and whose call does the work.

    Args:
        handler: What was given.
        takes: What it is called with, for the error.
        count: How many arguments that is.

    Raises:
        TypeError: It is not callable, or not with so many arguments; or it is a generator function, whose call would
            return without having run.
    """
    if not callable(handler):
        raise TypeError(f"handler: expected a function that takes {takes}, found {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(
            f"handler: {handler!r} contains yield, so calling it would run nothing; make it a plain function"
        )
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):  # of some callables written in C nobody knows
        return handler
    try:
        signature.bind(*[None] * count)
    except TypeError as problem:
        raise TypeError(f"handler: is called with {takes}, and {handler!r} is not made for that: {problem}") from None
    return handler


def is_async(handler: object) -> bool:
    """Whether calling it gives a coroutine: an ``async def``, a partial of one, or an object whose call is one."""
    call = type(handler).__call__  # of a callable object; for a function it is no coroutine function
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


async def in_a_task(result: Awaitable[T]) -> T:
    """Gives what something returns or raises, in a task of its own."""
    # Who cancels "the task of this job", even when the job has just ended, must not hit the write of its end or the
    # next job of the slot. When the slot itself is cancelled, since its loop is being closed, the task is with it.
    value, error = await asyncio.ensure_future(settled(result))
    if error is not None:
        raise error
    return cast(T, value)


async def awaited(result: Awaitable[T]) -> T:
    """Makes a coroutine of an awaitable."""
    return await result


def refuse_unstarted(handler: object, result: object) -> None:
    """Raises for a result that shows that the handler has not run."""
    # A job must never end as completed when nothing has run: a generator does nothing until somebody iterates it.
    if inspect.isgenerator(result) or inspect.isasyncgen(result) or inspect.isawaitable(result):
        raise TypeError(
            f"the handler {handler!r} returned {result!r}, which nobody runs; the job has not been worked on"
        )
