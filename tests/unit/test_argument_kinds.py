"""What is no id, no text or no path is answered with field, value and fix, whatever it is asked of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tokenyard
from tokenyard import ConfigError, Deployment, Recording, RunResult

SMALL = Deployment(model="llama-3.2-1b", gpu="l4")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    path = tmp_path_factory.mktemp("recorded") / "trace"
    return SMALL.replay("random", num_prompts=2, input_len=8, output_len=2, trace=path)


def _refused(ask: Callable[..., object], *given: Any, **named: Any) -> tuple[str, object, str]:
    with pytest.raises(ConfigError) as caught:
        ask(*given, **named)
    return caught.value.field, caught.value.value, caught.value.fix


@pytest.mark.parametrize("wrong", [3, None, "", ["r0"], b"r0", 1.5])
def test_the_id_of_a_request_is_a_text(recorded: RunResult, wrong: Any) -> None:
    assert recorded.trace is not None
    refused = ("request_id", wrong, "give the id of a request, as a text")
    assert _refused(tokenyard.why, recorded.trace, wrong) == refused
    assert _refused(Recording(recorded.trace).why, wrong) == refused
    assert _refused(recorded.why, wrong) == refused
    if wrong is not None:
        assert _refused(recorded.token_gaps, wrong) == refused
        job = ("job_id", wrong, "give the id of a job, as a text")
        assert _refused(tokenyard.waiting, recorded.trace, wrong) == job
        assert _refused(Recording(recorded.trace).waiting, wrong) == job


@pytest.mark.parametrize("wrong", [3, None, "", ["trace"], b"trace"])
def test_a_trace_is_a_path(recorded: RunResult, wrong: Any) -> None:
    fix = "give a path, as a text or a pathlib.Path"
    for ask in (tokenyard.report, tokenyard.whatif, Recording):
        assert _refused(ask, wrong) == ("trace", wrong, fix)
    for look in (partial(tokenyard.why, request_id="r0"), tokenyard.waiting, tokenyard.standstills):
        assert _refused(look, wrong) == ("path", wrong, fix)
    assert _refused(tokenyard.compare_recordings, recorded.trace, wrong) == ("b", wrong, fix)
    if wrong is not None:
        assert _refused(SMALL.replay, "random", trace=wrong) == ("trace", wrong, fix)


def test_what_is_one_passes(recorded: RunResult) -> None:
    assert recorded.trace is not None
    for path in (recorded.trace, str(recorded.trace), Recording(Path(recorded.trace))):
        assert tokenyard.why(path, recorded.requests["request_id"][0]).finished_us  # type: ignore[arg-type]
