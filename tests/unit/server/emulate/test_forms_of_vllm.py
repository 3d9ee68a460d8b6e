"""Answers, errors, streams and metrics have the form of vLLM's: those of 269 calls, as vLLM 0.32 answered them.

``scripts/emulate_conformance.py --record`` has written the forms down, of a vLLM on a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import InTime, emulated

from emulate_calls import SERVERS, Server
from emulate_conformance import EXPLAINED
from emulate_forms import Form, ask, differences, form_of

_RECORDED: Mapping[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "vllm-0.32.json").read_text(encoding="utf-8")
)


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.name)
def test_forms_are_those_of_vllm(server: Server) -> None:
    line = "vllm serve Qwen/Qwen3-0.6B --max-model-len 512 --block-size 32 --served-model-name tiny"
    line += f" --enable-prompt-tokens-details {server.flags}"
    ignores = "pooling" in server.flags
    # A token is a chunk, however busy the machine is.
    with emulated(line, surface="0.32", wall=InTime(), ignore_unmodelled=ignores) as served:
        found = {}
        for call in server.calls:
            recorded = Form(**_RECORDED[f"{server.name}: {call.name}"])
            found[call.name] = differences(recorded, form_of(call, ask(call, "", served.client)))
    assert {name: each for name, each in found.items() if each and name not in EXPLAINED} == {}
