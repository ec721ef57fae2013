"""Times: the same instant wherever a process stands and whatever its client is told, aware, and equal when read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import mongomock
import pytest
from bson import DatetimeMS
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from mongomock.codec_options import CodecOptions as MockCodecOptions
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database

from simplequeue import AsyncQueue, PayloadError, create_queue
from simplequeue.job import FIELDS
from simplequeue.threads import LoopThread
from tests.cells import Cell, OnLoop, blocking_on_mongod, blocking_on_mongomock, threaded_on_mongod
from tests.watching import Recorder, ended, until

POLL = 0.05
TOKYO = timezone(timedelta(hours=9))
SAO_PAULO = timezone(timedelta(hours=-3))
AT = datetime(2026, 8, 25, 23, 30, 0, 123_456, tzinfo=TOKYO)
STORED_MS = 1_787_668_200_123
STORED = datetime(2026, 8, 25, 14, 30, 0, 123_000, tzinfo=UTC)
OTHERS = {
    "utc": AT.astimezone(UTC),
    "west": AT.astimezone(SAO_PAULO),
    "early": datetime(1936, 8, 1, 12, 0, 0, 1, tzinfo=TOKYO),
}

# By rule and not by name, so that they mean the same where no names of zones are installed. The second is the summer
# time that São Paulo had until 2019.
ZONES = {"UTC": "UTC0", "Tokyo": "JST-9", "São Paulo": "<-03>3<-02>,M10.3.0/0,M2.3.0/0"}


@pytest.fixture(params=list(ZONES.values()), ids=list(ZONES))
def local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Makes this process stand in another zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def instant(naive: datetime) -> int:
    """The milliseconds since 1970 of what a client without time zones reads."""
    assert naive.tzinfo is None
    return round((naive.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def times(job: Any) -> dict[str, datetime]:
    """All times of a job that has ended, those in its data too."""
    return {
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "at": job.data["at"],
        "deep": job.data["deep"][0]["at"],
    }


def check_a_life(cell: Cell) -> None:
    """Adds a job, updates it, runs it, and compares every time on the way with what is read."""
    before = datetime.now(UTC)
    added = cell.queue.add("a", {"at": AT, "deep": [{"at": AT}], **OTHERS})
    assert added == cell.queue.get(added.id)
    assert added.data["at"] == added.data["deep"][0]["at"] == STORED
    assert added.data["utc"] == added.data["west"] == STORED
    assert added.data["early"] == datetime(1936, 8, 1, 3, 0, tzinfo=UTC)
    assert abs(added.created_at - before) < timedelta(minutes=1)

    assert cell.queue.update(added.id, {"again": AT}).matched_count == 1
    updated = cell.queue.get(added.id)
    assert updated.data["again"] == STORED
    assert updated.updated_at >= added.updated_at

    failed = cell.queue.add("fail", {"at": AT, "deep": [{"at": AT}]})
    seen = Recorder(lambda job: job.data["again"])
    with cell.queue.listen(seen, poll_interval=POLL):
        until(ended(cell.collection, [added.id, failed.id]))
    for during in seen.jobs:
        assert during.data == (updated if during.id == added.id else failed).data
        assert during.started_at == during.updated_at == cell.queue.get(during.id).started_at
    assert (cell.queue.get(added.id).status, cell.queue.get(failed.id).status) == ("completed", "failed")
    for job in (cell.queue.get(added.id), cell.queue.get(failed.id)):
        assert job.created_at <= job.started_at <= job.finished_at == job.updated_at
        assert abs(job.finished_at - before) < timedelta(minutes=1)
        for at in times(job).values():
            assert type(at) is datetime
            assert at.utcoffset() == timedelta(0)
            assert at.microsecond % 1_000 == 0
        assert {name for name in job.document if job.document[name] is not None} >= FIELDS - {"error"}

    (raw,) = cell.collection.find({"_id": added.id})
    assert instant(raw["data"]["at"]) == instant(raw["data"]["deep"][0]["at"]) == STORED_MS
    assert instant(raw["data"]["west"]) == instant(raw["data"]["again"]) == STORED_MS
    for name in ("created_at", "started_at", "finished_at"):
        assert raw[name].replace(tzinfo=UTC) == getattr(cell.queue.get(added.id), name)


def check_refusals_and_cutoffs(cell: Cell) -> None:
    """Gives naive times where times are taken, and a sweep's cutoff in several zones."""
    naive = AT.replace(tzinfo=None)
    before = cell.collection.count_documents({})
    job = cell.queue.add("a")
    calls: dict[str, Callable[[], object]] = {
        "data.x[0].at": lambda: cell.queue.add("a", {"x": [{"at": naive}]}),
        "jobs[0].data.at": lambda: cell.queue.add_many([("a", {"at": naive})]),
        "data.at": lambda: cell.queue.update(job.id, {"at": naive}),
        "before": lambda: cell.queue.sweep(naive),
    }
    for path, call in calls.items():
        with pytest.raises(PayloadError, match="naive") as refused:
            call()
        assert refused.value.path == path
    assert cell.queue.get(job.id) == job
    assert cell.collection.count_documents({}) == before + 1

    cell.queue.cancel(job.id)
    cell.collection.update_one({"_id": job.id}, {"$set": {"finished_at": STORED.replace(tzinfo=None)}})
    for zone in (UTC, TOKYO, SAO_PAULO):
        assert cell.queue.sweep(STORED.astimezone(zone) - timedelta(milliseconds=1)).deleted_count == 0
    assert cell.queue.sweep(STORED.astimezone(SAO_PAULO)).deleted_count == 1


def test_where_a_process_stands_does_not_change_what_is_stored_or_read(cell: Cell, local_zone: str) -> None:
    assert time.tzname[0] == {"UTC0": "UTC", "JST-9": "JST"}.get(local_zone, "-03")
    check_a_life(cell)


def test_where_a_process_stands_does_not_change_what_is_refused_or_swept(cell: Cell, local_zone: str) -> None:
    check_refusals_and_cutoffs(cell)


def test_a_time_in_the_hour_that_comes_twice_keeps_its_instant(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ZONES["São Paulo"])
    time.tzset()
    try:
        # The night of 14 February 2026 has 23:30 in summer time, and an hour later once more.
        first, second = (datetime(2026, 2, 14, 23, 30, fold=fold).astimezone() for fold in (0, 1))
        assert second - first == timedelta(hours=1)
        job = cell.queue.add("a", {"first": first, "second": second})
    finally:
        monkeypatch.undo()
        time.tzset()
    assert cell.queue.get(job.id) == job
    assert job.data == {
        "first": datetime(2026, 2, 15, 1, 30, tzinfo=UTC),
        "second": datetime(2026, 2, 15, 2, 30, tzinfo=UTC),
    }


Codec = CodecOptions[Any]


@contextmanager
def native_on_mongod(db: Database[Any], url: str) -> Iterator[Cell]:
    """The native cell, over a database with options of its own."""
    loop = LoopThread("test-native")
    client = AsyncMongoClient[dict[str, Any]](url)
    try:
        queue: AsyncQueue = create_queue(client.get_database(db.name, codec_options=db.codec_options))
        yield Cell(OnLoop(queue, loop), queue._jobs, loop.call, db.job, real=True)
    finally:
        loop.call(client.close())
        loop.close()


Open = Callable[[Any, str], AbstractContextManager[Cell]]
ON_MONGOD: tuple[Open, ...] = (blocking_on_mongod, threaded_on_mongod, native_on_mongod)


@contextmanager
def with_codec(open_cell: Open, db: Database[Any], url: str, codec: Codec) -> Iterator[Cell]:
    """A cell whose database has these options; its collection, for looking past the queue, has the usual ones."""
    with open_cell(db.client.get_database(db.name, codec_options=codec), url) as cell:
        yield replace(cell, collection=db.job)


CODECS: dict[str, Codec] = {
    "not aware": CodecOptions(tz_aware=False),
    "aware": CodecOptions(tz_aware=True),
    "aware of Tokyo": CodecOptions(tz_aware=True, tzinfo=TOKYO),
    "aware of São Paulo, as SON": CodecOptions(document_class=SON, tz_aware=True, tzinfo=SAO_PAULO),
    "clamped": CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_CLAMP),
    "as milliseconds": CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS),
    "automatic": CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, tz_aware=True, tzinfo=TOKYO),
    "raw": CodecOptions(document_class=RawBSONDocument),
}


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("open_cell", ON_MONGOD, ids=lambda open_cell: open_cell.__name__)
def test_how_a_client_wants_its_times_does_not_change_what_is_stored_or_read(
    open_cell: Open, codec: Codec, db: Database[Any], mongo_url: str
) -> None:
    with with_codec(open_cell, db, mongo_url, codec) as cell:
        check_a_life(cell)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_how_a_client_wants_its_times_does_not_change_what_is_refused_or_swept(
    codec: Codec, db: Database[Any], mongo_url: str
) -> None:
    with with_codec(blocking_on_mongod, db, mongo_url, codec) as cell:
        check_refusals_and_cutoffs(cell)


def test_the_options_may_be_the_clients(db: Database[Any], mongo_url: str) -> None:
    options: dict[str, Any] = {"tz_aware": True, "tzinfo": TOKYO, "datetime_conversion": "DATETIME_MS"}
    with (
        MongoClient[dict[str, Any]](mongo_url, **options) as client,
        blocking_on_mongod(client[db.name], mongo_url) as cell,
    ):
        check_a_life(replace(cell, collection=db.job))


@pytest.mark.parametrize("aware", [False, True])
def test_an_in_memory_client_may_be_aware_of_zones_or_not(aware: bool) -> None:
    client: Any = mongomock.MongoClient(tz_aware=aware)
    options: Any = MockCodecOptions  # typed as Any, since it has no types of its own
    plain = client.get_database("mock", codec_options=options(tz_aware=False))
    with blocking_on_mongomock(client.mock, "") as cell:
        check_a_life(replace(cell, collection=plain.job))
        check_refusals_and_cutoffs(replace(cell, collection=plain.job))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_time_that_no_datetime_can_hold_does_not_hide_the_job_it_is_in(
    codec: Codec, db: Database[Any], mongo_url: str
) -> None:
    with with_codec(blocking_on_mongod, db, mongo_url, codec) as cell:
        job = cell.queue.add("a", {"far": DatetimeMS(2**62)})
        other = cell.queue.add("a")
        db.job.update_one({"_id": other.id}, {"$set": {"created_at": DatetimeMS(-(2**62))}})
        assert cell.queue.get(job.id) == job
        assert cell.queue.get(other.id).created_at == DatetimeMS(-(2**62))
        seen = Recorder()
        with cell.queue.listen(seen, poll_interval=POLL):
            until(ended(db.job, [job.id, other.id]))
        assert {ran.id: ran.data for ran in seen.jobs} == {job.id: {"far": DatetimeMS(2**62)}, other.id: {}}
        assert db.job.count_documents({"status": "completed"}) == 2
