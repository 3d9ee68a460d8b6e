"""`vllm serve` with ContinuumScheduler: pins keep an agent's turn, and what a client says wrongly is its own error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.conftest import needs_engine
from tests.vllm.serving import Asked, Server, ask_all, served
from tests.vllm.tiny_models import make_model

import tokenyard
from tokenyard.trace.reader import TraceReader
from tokenyard.vocabulary import ENTRY_POINT_GROUP

pytestmark = needs_engine

_LIMITS = ("--max-num-seqs", "8", "--max-num-batched-tokens", "512", "--num-gpu-blocks-override", "40")
_HISTORY = "an agent reads the whole of a file " * 12
_OTHERS = [Asked(f"{i} others come by " * 18, max_tokens=8) for i in range(6)]


_PACKAGE = {
    "patient.py": """
from tokenyard.policies.continuum.policy import continuum_fixed

def patient():
    return continuum_fixed(threshold=600.0)
""",
    "patient-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: patient\nVersion: 1.0\n",
    "patient-1.0.dist-info/entry_points.txt": f"[{ENTRY_POINT_GROUP}]\npatient = patient:patient\n",
}
"""Another package's policy: pins that no busy machine outlives."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server's log and trace are."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(models: Path, folder: Path) -> Iterator[Server]:
    for name, text in _PACKAGE.items():
        (folder / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "package" / name).write_text(text)
    paths = [str(folder / "package"), str(Path(tokenyard.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "SCHED_TRACE_PATH": str(folder / "trace"),
        "TOKENYARD_POLICY": "patient",
    }
    flags = [*_LIMITS, "--scheduler-cls", "tokenyard.vllm.ContinuumScheduler"]
    with served(make_model("llama", models), folder / "log", flags, env) as started:
        yield started


def _turn(prompt: str, job: str, **said: object) -> Asked:
    return Asked(prompt, max_tokens=4, extra={"vllm_xargs": {"job_id": job, **said}})


def _hits_of_second_turn(server: Server, name: str, **said: object) -> float:
    """Tokens that the second turn of a job finds cached, after others have filled the cache."""
    history = f"{name}: {_HISTORY}"
    ask_all(server, [_turn(history, name, **said)])
    for each in _OTHERS:
        ask_all(server, [each])
    before = server.total("vllm:prefix_cache_hits_total")
    ask_all(server, [_turn(history + "and its tool answers", name, is_last_step=True)])
    return server.total("vllm:prefix_cache_hits_total") - before


def test_a_pin_keeps_the_first_turn(server: Server) -> None:
    assert _hits_of_second_turn(server, "pinned", this_func_call="pytest") >= 384
    assert _hits_of_second_turn(server, "ended", this_func_call="pytest", is_last_step=True) < 384


def test_what_cannot_work_is_the_requests_own_error(server: Server, folder: Path) -> None:
    with pytest.raises(Exception, match=r"is_last_step|[Ii]nternal"):  # 0.32 keeps the reason from its clients
        ask_all(server, [_turn("a turn", "wrong", is_last_step="perhaps")])
    assert "vllm_xargs is_last_step = 'perhaps': give true or false" in (folder / "log").read_text()
    assert len(ask_all(server, [_turn("a turn", "right")])[0]) == 4


def test_trace_names_the_jobs_and_the_policy(server: Server, folder: Path) -> None:
    assert server.stop() == 0
    reader = TraceReader(folder / "trace", requests=False)
    steps = list(reader.steps())
    assert {each.job_id for step in steps for each in step.finished} >= {"pinned", "ended", "right"}
    assert reader.start is not None
    assert reader.start.policy == "patient"
    assert any(step.snapshot is not None and step.snapshot.num_pinned for step in steps)
