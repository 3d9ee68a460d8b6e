"""A worker that raises ends the engine of `vllm serve`, as with vLLM's own scheduler; the trace is whole until then."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, ask_all, served
from tests.vllm.tiny_models import make_model
from tests.vllm.traffic import LIMITS

import tokenyard
from tokenyard.trace.reader import TraceReader

pytestmark = needs_engine

_STEPS = 40
_PACKAGE = {
    "brittle.py": f"""
def break_workers():
    from vllm.v1.worker.gpu_worker import Worker
    run, calls = Worker.execute_model, []

    def execute_model(self, scheduler_output, *args, **options):
        if scheduler_output.total_num_scheduled_tokens:
            calls.append(1)
            if len(calls) > {_STEPS}:
                raise RuntimeError("the worker is broken")
        return run(self, scheduler_output, *args, **options)

    Worker.execute_model = execute_model
""",
    "brittle-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: brittle\nVersion: 1.0\n",
    "brittle-1.0.dist-info/entry_points.txt": "[vllm.general_plugins]\nbrittle = brittle:break_workers\n",
}
"""A plugin of vLLM's: workers run so many steps."""
_ASKED = [Asked(f"stream {i} of many " * 4, max_tokens=200) for i in range(32)]


class _End(NamedTuple):
    """How it ended."""

    exit_code: int
    error: str
    """What the clients got: the type of the exception."""


def _run(model: Path, folder: Path, flags: tuple[str, ...], trace: Path | None) -> _End:
    for name, text in _PACKAGE.items():
        (folder / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "package" / name).write_text(text)
    paths = [str(folder / "package"), str(Path(tokenyard.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if trace is not None:
        env["SCHED_TRACE_PATH"] = str(trace)
    with served(model, folder / "log", [*LIMITS, *flags], env) as server:
        with pytest.raises(Exception) as error:  # noqa: PT011 - the same as with vLLM's own
            ask_all(server, _ASKED)
        code = server.process.wait(60)
    assert "the worker is broken" in (folder / "log").read_text()
    return _End(code, type(error.value).__name__)


@cache
def _own(model: Path, folder: Path) -> _End:
    return _run(model, folder, (), None)


@pytest.mark.parametrize("scheduler", ["TracingScheduler", "FastScheduler"])
def test_server_ends_as_with_vllms_own(models: Path, tmp_path: Path, scheduler: str) -> None:
    model = make_model("llama", models)
    (own := model / "broken").mkdir(exist_ok=True)
    flags = ("--scheduler-cls", f"tokenyard.vllm.{scheduler}")
    ended = _run(model, tmp_path, flags, tmp_path / "trace")
    assert ended == _own(model, own)
    steps = list(TraceReader(tmp_path / "trace", requests=False).steps())
    decided = [step.number for step in steps if step.decision is not None]
    completed = [step.number for step in steps if step.completed is not None]
    assert decided == list(range(len(decided)))
    assert completed == decided[: len(completed)]
    assert _STEPS <= len(completed) < len(decided)
