"""Numbers at every edge, of Python's kind and of NumPy's, in every field of a request.

What a request keeps is Python's own, or the request is refused by field, value and fix. Whatever was kept is ordered by
every policy, written to a trace and encoded with its step: no request takes an engine down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.trace.recorded import RecordedYard, records_of

from tokenyard.core.params import RepetitionDetectionParams
from tokenyard.core.request import Request, SamplingParams
from tokenyard.errors import RequestError
from tokenyard.policies.named import policy_maker
from tokenyard.vocabulary import BUILT_IN, SHIPPED

WHOLE = (0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**5000)
REAL = (0.0, -0.0, 1.0, 0.5, 1e-320, 1e308, float("nan"), float("inf"), -float("inf"), Fraction(1, 3))
OF_NUMPY = (
    *(kind(3) for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64)),
    *(np.int8(-1), np.uint64(2**64 - 1), np.float32("nan"), np.float64("inf"), np.bool_(True), np.bool_(False)),
    *(np.array(3), np.array([1, 2]), np.str_("3"), np.datetime64(3, "s")),
)
OTHERS: tuple[Any, ...] = (
    *(None, True, False, "7", "", b"7"),
    *((), (1,), [np.int64(2)], (np.uint8(2), 3), {}, {np.int64(1): np.float32(0.5)}),
)
EDGES = st.sampled_from([*WHOLE, *REAL, *OF_NUMPY, *OTHERS])

SAMPLING = tuple(field.name for field in fields(SamplingParams) if field.name != "repetition_detection")
REPETITION = tuple(field.name for field in fields(RepetitionDetectionParams))
NUMBERS = ("arrival_time", "priority", "predicted_output_tokens", "ends_after", "output_seed", "client_index")
OTHER_FIELDS = ("is_last_step", "resumable", "lora_name", "cache_salt", "job_id", "this_func_call")
MAPPINGS = ("trace_headers", "kv_transfer_params", "meta")
FIELDS = st.sampled_from((*NUMBERS, *OTHER_FIELDS, *MAPPINGS, *SAMPLING, *REPETITION))
OWN = (int, float, bool, str, type(None))


def made(request_id: str, given: Mapping[str, Any]) -> Request:
    sampling = {name: value for name, value in given.items() if name in SAMPLING}
    repeated = {name: value for name, value in given.items() if name in REPETITION}
    if repeated:
        usual = {"max_pattern_size": 3, "min_count": 2}
        sampling["repetition_detection"] = RepetitionDetectionParams(**usual | repeated)
    others = {name: value for name, value in given.items() if name not in SAMPLING and name not in REPETITION}
    return Request(request_id, [1, 2, 3], SamplingParams(**{"max_tokens": 4} | sampling), **others)


def attempt(given: Mapping[str, Any]) -> tuple[Request, None] | tuple[None, RequestError]:
    try:
        return made("r", given), None
    except RequestError as refusal:
        return None, refusal


def is_own(value: object) -> bool:
    if type(value) is tuple:
        return all(map(is_own, value))
    if type(value) is dict:
        return all(is_own(each) for item in value.items() for each in item)
    return type(value) in OWN


@given(FIELDS, EDGES)
def test_a_value_is_made_pythons_own_or_refused_by_its_field(field: str, value: Any) -> None:
    request, refusal = attempt({field: value})
    if request is None:
        assert refusal is not None
        name = str(refusal.field).partition("[")[0].removeprefix("repetition_detection.")
        assert name == field or (name, field) == ("min_tokens", "max_tokens")
        assert refusal.fix
        str(refusal).encode()
        return
    for name in (*NUMBERS, *OTHER_FIELDS):
        assert is_own(getattr(request, name)), f"{name} is {getattr(request, name)!r}"
    for name in SAMPLING:
        assert is_own(getattr(request.sampling_params, name)), name
    if (repeated := request.sampling_params.repetition_detection) is not None:
        assert all(is_own(getattr(repeated, name)) for name in REPETITION)


@given(FIELDS, EDGES)
def test_a_value_that_was_kept_is_the_one_that_was_given(field: str, value: Any) -> None:
    if value is None or field in (*MAPPINGS, *REPETITION):
        return
    request, _ = attempt({field: value})
    if request is None:
        return
    kept = getattr(request.sampling_params if field in SAMPLING else request, field)
    assert kept == (tuple(value) if field == "stop_token_ids" else value) or np.float64(value) == kept


def run(policy: str, given: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Serve what is not refused, in one engine."""
    yard = RecordedYard(folder, policy_object=policy_maker(policy)(), num_gpu_blocks=12, max_num_seqs=2)
    added = []
    for number, each in enumerate(({}, *given, {})):
        try:
            request = made(f"r{number}", {"job_id": "j", **each})
            yard.scheduler.add_request(request)
        except RequestError:
            continue
        added.append(request.request_id)
    while yard.scheduler.has_unfinished_requests():
        assert yard.scheduler.step < 500, "it does not end"
        assert yard.step().encode()
    yard.writer.close()
    assert sorted(each["req_id"] for each in records_of(folder, "request_finished")) == added


ONE_SERVED = st.dictionaries(st.sampled_from(NUMBERS) | FIELDS.filter(lambda field: field != "resumable"), EDGES)


@given(st.lists(ONE_SERVED.filter(lambda given: len(given) < 3), min_size=1, max_size=6))
def test_no_value_that_was_kept_takes_an_engine_down(given: list[dict[str, Any]]) -> None:
    for policy in (*BUILT_IN, *SHIPPED):
        with TemporaryDirectory() as folder:
            run(policy, given, Path(folder))
