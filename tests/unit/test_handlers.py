"""What counts as a handler of the base layer."""

from __future__ import annotations

from typing import Any

import pytest

from simplequeue.handlers import checked_handler


class Called:
    def __call__(self, job: Any) -> None: ...


@pytest.mark.parametrize(
    "handler", [print, len, Called(), lambda job: None, lambda job, more=1: None, lambda *all: None]
)
def test_what_can_be_called_with_a_job_is_a_handler(handler: Any) -> None:
    assert checked_handler(handler, "a job", 1) is handler


@pytest.mark.parametrize("wrong", [lambda: None, lambda job, ctx: None, lambda *, job: None])
def test_what_cannot_be_called_with_a_job_is_refused_before_one_is_lost_on_it(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"handler: is called with a job, and .* is not made for that"):
        checked_handler(wrong, "a job", 1)
