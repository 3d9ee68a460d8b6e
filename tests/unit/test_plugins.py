"""Latency models, GPUs, models, workloads, formats and connectors of others: FILE.py:NAME, or a registered name."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import tokenyard as ty
from tokenyard import plugins
from tokenyard.errors import ConfigError
from tokenyard.models.named import model_spec

CODE = """
import tokenyard as ty
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import config_of
from tokenyard.sim import SimulatedConnector
from tokenyard.steptime.model import ConstantLatency


class Slow:
    host_seconds = 0.0

    def __init__(self, gpu):
        self.gpu = gpu

    def step_seconds(self, step):
        return 0.5


def load(seed):
    w = ty.WorkloadBuilder("mine", seed=seed or 0)
    for i in range(4):
        w.request(at=i, prompt=10 + i, output=3)
    return w.build()


def read(path, options):
    for i, line in enumerate(path.read_text().split()):
        yield ty.WorkloadRequest(request_id=str(i), prompt=[1] * int(line), max_tokens=2, arrival_time=float(i))


def gpu():
    return named_gpu("l40s")


def model():
    return config_of("qwen3-8b")[2] | {"num_hidden_layers": 12}


def connector(cache, config, bytes_per_block):
    raise KeyError(config.get("shelf", None))


nothing = 7
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(CODE)
    return str(file)


def test_each_by_file_and_name(mine: str, tmp_path: Path) -> None:
    latency = ty.load_latency(f"{mine}:Slow", model="qwen3-8b", gpu="l40s")
    assert latency.step_seconds(None) == 0.5  # type: ignore[arg-type]
    assert latency.gpu.name == "l40s"  # type: ignore[attr-defined]
    assert len(ty.load_workload(f"{mine}:load")) == 4
    assert len(ty.load_workload(f"{mine}:load", limit=2)) == 2
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("5 7 9")
    assert [len(each.prompt) for each in ty.load_workload(lengths, format=f"{mine}:read")] == [5, 7, 9]
    run = ty.run(f"{mine}:load", ty.Deployment(model=f"{mine}:model", gpu=f"{mine}:gpu", latency=f"{mine}:Slow"))
    assert run.report.tpot_ms.p50 == pytest.approx(500, rel=0.1)
    assert model_spec(f"{mine}:model").num_layers == 12


def test_a_connector_is_given_its_settings(mine: str) -> None:
    settings = {
        "kv_connector": f"{mine}:connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shelf": "top"},
    }
    deployment = ty.Deployment(model="qwen3-8b", gpu="l40s", kv_transfer_config=json.dumps(settings))
    with pytest.raises(ConfigError, match="KeyError: 'top'"):
        ty.run("chat", deployment, limit=1)


def test_each_by_a_registered_name(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(mine).parent)
    names = {"latency": "Slow", "gpu": "gpu", "model": "model", "workload": "load", "format": "read"}
    points = {field: [EntryPoint("ours", f"mine:{name}", plugins.GROUPS[field])] for field, name in names.items()}
    points["kv_connector"] = [EntryPoint("broken", "mine:missing", plugins.GROUPS["kv_connector"])]
    monkeypatch.setattr(plugins, "installed", lambda field: points[field])
    run = ty.run("ours", ty.Deployment(model="ours", gpu="ours", latency="ours"))
    assert run.report.tpot_ms.p50 == pytest.approx(500, rel=0.1)
    with pytest.raises(ConfigError, match="cannot be loaded: AttributeError"):
        plugins.foreign("kv_connector", "broken")


@pytest.mark.parametrize("field", ["latency", "gpu", "model", "workload", "format"])
def test_what_is_none_is_refused_in_its_name(mine: str, tmp_path: Path, field: str) -> None:
    for name in ("nothing", "missing", ""):
        with pytest.raises(ConfigError) as error:
            ask(field, f"{mine}:{name}", tmp_path)
        assert error.value.field == field


def ask(field: str, spec: str, folder: Path) -> None:
    if field == "latency":
        ty.load_latency(spec, model="qwen3-8b", gpu="l40s")
    elif field == "workload":
        ty.load_workload(spec)
    elif field == "format":
        (folder / "file").write_text("1")
        ty.load_workload(folder / "file", format=spec)
    else:
        given = {"model": "qwen3-8b", "gpu": "l40s", field: spec}
        ty.Deployment(model=given["model"], gpu=given["gpu"]).resolve()
