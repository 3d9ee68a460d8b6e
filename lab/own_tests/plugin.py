"""A pytest plugin inside vLLM's environment: vLLM's tests get our scheduler where they ask for vLLM's.

The tests look at a scheduler from outside, but many also at its lists of requests and at their requests' counters.
Those ``Watched`` shows as vLLM's scheduler would have them, copied from ours after every call. Whatever else they look
for is vLLM's inside, and makes a test one that does not apply.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
import vllm.v1.core.sched.async_scheduler as theirs_async
import vllm.v1.core.sched.scheduler as theirs
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT
from vllm.v1.request import RequestStatus

from tokenyard.errors import ConfigError
from tokenyard.vllm import FastScheduler
from tokenyard.vllm.fast.inputs import FastRequest, sync_tokens

__all__ = ["Watched", "WatchedAsync"]

_COPIED = ("num_computed_tokens", "num_output_placeholders", "num_preemptions")


class Watched(FastScheduler):
    """Ours, with what vLLM's tests look at from outside."""

    num_made = 0
    """Schedulers that tests have made so far."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        Watched.num_made += 1
        self._seen: dict[str, FastRequest] = {}
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """What vLLM's scheduler is made of cannot be exchanged here."""
        known = name in self.__dict__ or isinstance(getattr(type(self), name, None), property)
        if getattr(self, "_is_made", False) and not known:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        super().__setattr__(name, value)

    @property
    def running(self) -> list[Any]:
        """vLLM's requests that run, in order."""
        return _theirs(self.core.running)

    @property
    def waiting(self) -> list[Any]:
        """vLLM's requests that wait, those skipped apart."""
        return _theirs(self.core.waiting)

    @property
    def skipped_waiting(self) -> list[Any]:
        """vLLM's requests that were skipped."""
        return _theirs(self.core.skipped_waiting)

    @property
    def requests(self) -> dict[str, Any]:
        """Request id -> vLLM's request, of all that have not ended."""
        return {each.request_id: each for each in _theirs(self.core.requests.values())}

    @property
    def use_v2_model_runner(self) -> bool:
        """Whether plans are for the second model runner; tests of 0.33 choose it after the scheduler is made."""
        return self._plans._second_runner  # noqa: SLF001

    @use_v2_model_runner.setter
    def use_v2_model_runner(self, chosen: bool) -> None:
        self._plans._second_runner = bool(chosen)  # noqa: SLF001

    def add_request(self, request: Any) -> None:
        super().add_request(request)
        self._copy()

    def schedule(self, *args: Any, **options: Any) -> Any:
        output = super().schedule(*args, **options)
        self._copy()
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Brings what vLLM's engine brings and some tests leave out: the outputs of steps without tokens."""
        for flight in list(self._flights):
            if flight.theirs is scheduler_output or flight.theirs.total_num_scheduled_tokens:
                break
            super().update_from_output(flight.theirs, EMPTY_MODEL_RUNNER_OUTPUT)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._copy()
        return outputs

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        super().update_draft_token_ids(draft_token_ids)
        self._copy()

    def finish_requests(self, *args: Any) -> Any:
        ended = super().finish_requests(*args)
        self._copy()
        return ended

    def reset_prefix_cache(self, *args: Any, **options: Any) -> bool:
        done = super().reset_prefix_cache(*args, **options)
        self._copy()
        return done

    def _copy(self) -> None:
        """Tell vLLM's requests what became of ours."""
        self._seen.update(cast("dict[str, FastRequest]", self.core.requests))
        for ours in self._seen.values():
            request = ours.theirs
            request.status = RequestStatus[ours.status.name]
            request.spec_token_ids = list(ours.spec_token_ids)
            for name in _COPIED:
                if hasattr(request, name):
                    setattr(request, name, int(getattr(ours, name)))
            sync_tokens(ours, ours.num_tokens)


class WatchedAsync(Watched):
    """The same where a test asks for vLLM's asynchronous twin, whatever a CPU's configuration makes of that."""

    def __init__(self, vllm_config: Any, *args: Any, **options: Any) -> None:
        vllm_config.scheduler_config.async_scheduling = True
        super().__init__(vllm_config, *args, **options)


def _theirs(requests: Iterable[Any]) -> list[Any]:
    return [each.theirs for each in requests]


theirs.Scheduler = Watched
theirs_async.AsyncScheduler = WatchedAsync


@pytest.fixture
def caplog_vllm(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What vLLM logs, as its own ``conftest.py`` gives it."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    return caplog


_INSIDE = re.compile(r"(?:Watched(?:Async)?\b.* has no attribute '|property ')(\w+)'")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that asks for what we refuse by name, for vLLM's inside, or for no scheduler is left out, and says so."""
    before = Watched.num_made
    try:
        yield
    except ConfigError as error:
        if "FastScheduler" in str(error):
            pytest.skip(f"refused: {str(error).partition(' = ')[0].partition(': ')[0]}")
        raise
    except AttributeError as error:
        inside = _INSIDE.search(str(error))
        if inside:
            pytest.skip(f"inside: scheduler.{inside[1]}")
        raise
    except ValueError as error:
        if "is not in flight" in str(error):
            pytest.skip("inside: gives a SchedulerOutput that no schedule() has returned")
        if "ValidationError" in type(error).__name__ and "ModelConfig" in str(error):
            pytest.skip("model: this environment cannot load its description")
        raise
    if Watched.num_made == before:
        pytest.skip("apart: makes no scheduler")
