"""Times as logs and spreadsheets write them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.errors import WorkloadError
from tokenyard.workload.load import LoadShape, read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.logs.moments import Clock, TimeUnit

_TWO_IN_THE_AFTERNOON = datetime(2026, 11, 20, 14, 0, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "11/20/2026 02:00:05 PM",
        "11/20/2026, 2:00:05 p.m.",
        "11/20/26 14:00:05",
        "20.11.2026 14:00:05",
        "2026/11/20 14:00:05",
        "2026-11-20 14:00:05 UTC",
        "2026-11-20 14:00:05.000 UTC",
        "2026-11-20T14:00:05,000Z",
        "2026-11-20 14:00:05+00",
        "2026-11-20T15:00:05+0100",
        "20/Nov/2026:14:00:05 +0000",
        "[20/Nov/2026:15:00:05 +0100]",
        "20-Nov-2026 14:00:05",
        "Nov 20, 2026 @ 14:00:05.000",
        "Nov 20, 2026, 2:00:05 PM",
        "November 20, 2026 14:00:05",
        "Fri Nov 20 14:00:05 2026",
        "Fri, 20 Nov 2026 14:00:05 GMT",
        "20261120140005",
        "20261120140005000",
        "20261120140005.0",
        "1795183205",
        "1.795183205E+09",
        "1795183205000.0",
    ],
)
def test_one_moment_in_many_spellings(text: str) -> None:
    assert Clock().moment(text) == pytest.approx(_TWO_IN_THE_AFTERNOON)


def test_a_date_as_one_number_is_no_unix_time() -> None:
    assert Clock().moment(20261120140005) == pytest.approx(_TWO_IN_THE_AFTERNOON)
    assert Clock().moment(202611201400) == pytest.approx(_TWO_IN_THE_AFTERNOON - 5)
    assert Clock(TimeUnit.MILLISECONDS).moment("20261120140005") == pytest.approx(20261120140.005)
    assert Clock().moment("1912010100000000000") == pytest.approx(1912010100.0), "nanoseconds, of 2030"
    assert Clock().moment("20269920140005") == pytest.approx(20269920140.005), "no day"


_FORMATS = (
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S.%fZ",
    "%Y-%m-%d %H:%M:%S.%f UTC",
    "%m/%d/%Y %I:%M:%S.%f %p",
    "%d.%m.%Y %H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S.%f",
    "%d/%b/%Y:%H:%M:%S.%f +0000",
    "%b %d, %Y @ %H:%M:%S.%f",
    "%d-%b-%Y %H:%M:%S.%f",
)


@given(st.datetimes(datetime(2001, 1, 1), datetime(2099, 12, 31)), st.sampled_from(_FORMATS))  # noqa: DTZ001
def test_any_moment_comes_back_from_any_spelling(moment: datetime, spelling: str) -> None:
    aware = moment.replace(tzinfo=UTC)
    assert Clock().moment(aware.strftime(spelling)) == pytest.approx(aware.timestamp(), abs=2e-6)


@given(st.text(max_size=40) | st.from_regex(r"[\d/.: TZ+-]{1,30}[AP]?M?", fullmatch=True))
def test_no_text_is_more_than_an_error(text: str) -> None:
    with suppress(ValueError):
        assert Clock().moment(text) >= -1e11


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-11-20 14:00:05 CET", "the time zone CET is not known: write UTC, or an offset"),
        ("13/13/2026 10:00:00", "is no time"),
        ("11/20/2026 14:00:05 PM", "is no time"),
        ("1.76365E+09", "a time that a spreadsheet has rounded to 10,000 s"),
        ("1.7636E+12", "a time that a spreadsheet has rounded to 100,000 s"),
    ],
)
def test_what_cannot_be_known_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Clock().moment(text)


def test_days_of_a_spreadsheet() -> None:
    assert Clock(TimeUnit.DAYS).moment("2.5") == 216_000


def _csv(tmp_path: Path, *times: str) -> Path:
    path = tmp_path / "log.csv"
    rows = [f"{each},{90 + 7 * i},{5 + i}" for i, each in enumerate(times)]
    path.write_text("\n".join(["timestamp,prompt_tokens,completion_tokens", *rows]) + "\n")
    return path


def test_the_order_of_day_and_month_is_that_of_the_whole_log(tmp_path: Path) -> None:
    workload = read_workload(_csv(tmp_path, "01/02/2026 10:00:00", "13/02/2026 10:00:00"))
    assert workload.requests[-1].arrival_time == 12 * 86_400, "the first of February"
    workload = read_workload(_csv(tmp_path, "01/02/2026 10:00:00", "02/02/2026 10:00:00"))
    assert workload.requests[-1].arrival_time == 31 * 86_400, "months first, as nothing says otherwise"
    assert [each.code for each in workload.remarks if each.warning] == ["date_order"]
    assert read_workload(_csv(tmp_path, "01/13/2026 10:00:00", "02/02/2026 10:00:00")).remarks[1].warning is False


def test_times_that_a_spreadsheet_rounded_are_refused_unless_nobody_needs_them(tmp_path: Path) -> None:
    path = _csv(tmp_path, *["1.76365E+09"] * 200)
    with pytest.raises(WorkloadError, match=r"rounded to 10,000 s: format its column as a number .*--request-rate"):
        read_workload(path)
    assert len(read_workload(path, load=LoadShape(request_rate=1.0))) == 200


def test_times_with_and_without_a_zone_are_pointed_out(tmp_path: Path) -> None:
    workload = read_workload(_csv(tmp_path, "2026-11-20 14:00:00", "2026-11-20T14:00:01+01:00"))
    assert "1 times say no time zone and are taken as UTC; 1 say one" in workload.notes


@pytest.mark.parametrize(
    ("times", "code"),
    [
        (["2026-11-20 14:00:00"] * 9, "all_at_once"),
        ([f"2026-11-20 14:{i // 3:02}:00" for i in range(9)], "times_rounded"),
        ([f"{1_795_183_200 + 60.5 * i}" for i in range(9)], "evenly_spaced"),
        ([f"{1_795_183_200.5 + i // 4}" for i in range(12)], "times_rounded"),
    ],
)
def test_times_that_no_service_has_are_doubted(tmp_path: Path, times: list[str], code: str) -> None:
    workload = read_workload(_csv(tmp_path, *times))
    assert code in {each.code for each in workload.remarks if each.warning}
    drawn = read_workload(_csv(tmp_path, *times), load=LoadShape(request_rate=1.0))
    assert not [each for each in drawn.remarks if each.warning], "they are not used"


def test_ordinary_times_are_not_doubted(tmp_path: Path) -> None:
    times = [f"2026-11-20 14:00:{i * i / 7:09.6f}" for i in range(12)]
    workload = read_workload(_csv(tmp_path, *times), log=LogOptions())
    assert not [each for each in workload.remarks if each.warning]
