"""Answers, errors, streams and metrics have the form of vLLM's: of 269 calls, as vLLM 0.32 and 0.33 answered them.

``lab/emulate_conformance.py --record`` has written the forms down: of a vLLM 0.32 on a CPU, and of 0.33's server
and scheduler with the executor that stands in for a GPU (``--made-up``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import InTime, emulated

from emulate_conformance import EXPLAINED, EXPLAINED_MADE_UP
from emulate_forms import SERVERS, Form, Server, ask, differences, form_of

_KNOWN = {"0.32": EXPLAINED, "0.33": EXPLAINED_MADE_UP}
"""Version -> calls whose answers differ."""


@lru_cache
def _recorded(version: str) -> Mapping[str, Any]:
    path = Path(__file__).parent / "recorded" / f"vllm-{version}.json"
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("version", _KNOWN)
@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.name)
def test_forms_are_those_of_vllm(server: Server, version: str) -> None:
    line = "vllm serve Qwen/Qwen3-0.6B --max-model-len 512 --block-size 32 --served-model-name tiny"
    line += f" --enable-prompt-tokens-details {server.flags}"
    ignores = "pooling" in server.flags
    # A token is a chunk, however busy the machine is.
    with emulated(line, surface=version, wall=InTime(), ignore_unmodelled=ignores) as served:
        found = {}
        for call in server.calls:
            recorded = Form(**_recorded(version)[f"{server.name}: {call.name}"])
            found[call.name] = differences(recorded, form_of(call, ask(call, "", served.client)))
    assert {name: each for name, each in found.items() if each and name not in _KNOWN[version]} == {}
