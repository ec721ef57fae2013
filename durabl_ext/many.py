"""The checks of many enqueues at once.

``options`` has the rules. Here lives only what is spared where many are alike: plain payloads are looked at together,
and options that many share once. Whatever is unusual is checked one by one, which also says what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import attrgetter, is_
from typing import Any

from durabl_ext.options import Enqueue, Request, Terms, checked, checked_dedupe, checked_terms, refuse_both_times
from simplequeue.payload import Codec, PayloadError, checked_jobs


def checked_all(asked: Sequence[Enqueue], codec: Codec) -> list[Request]:
    """Checks each as ``options.checked`` does, where there are many at a quarter of the cost.

    Raises:
        PayloadError: As there; ``.path`` begins with ``jobs[n]`` where there are several.
    """
    if len(asked) > 1 and {*map(type, asked)} == {Enqueue}:
        with suppress(PayloadError):  # it comes up again below, where the job to blame is named
            payloads = checked_jobs([(one.action, one.data) for one in asked], codec)
            return [
                Request(action, data, *terms, checked_dedupe(one, ""))
                for one, (action, data), terms in zip(asked, payloads, _terms_of_all(asked), strict=True)
            ]
    return [checked(one, codec, f"jobs[{n}]." if len(asked) > 1 else "") for n, one in enumerate(asked)]


_TERMS = attrgetter("priority", "delay", "run_at", "max_attempts", "backoff", "backoff_delay", "backoff_max_delay")


def _terms_of_all(asked: Sequence[Enqueue]) -> Iterator[Terms]:
    """Yields the terms of each; those that are the very same objects as of the one before were checked with it."""
    before: tuple[Any, ...] = ()
    for one in asked:
        if not before or not all(map(is_, _TERMS(one), before)):
            refuse_both_times(one, "")
            terms, before = checked_terms(one, ""), _TERMS(one)
        yield terms
