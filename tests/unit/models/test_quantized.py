"""Quantised checkpoints, against what vLLM builds of them and plans for them.

``lab/planner/quantized.py`` puts settings as published files have them into known models, and
``lab/compare_configs.py --record`` asked vLLM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import differences, recorded

RECORDED = recorded(Path(__file__).with_name("quantized.json.gz"))


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["variant"])
def test_weights_and_plan_of_a_quantised_model_are_vllms(case: dict[str, Any]) -> None:
    entry = {"architecture": case["config"]["architectures"][0], "cases": [case]}
    assert list(differences(entry, RECORDED)) == []


def test_many_settings_were_asked_about() -> None:
    methods = {case["config"]["quantization_config"]["quant_method"] for case in RECORDED["cases"]}
    assert methods >= {"awq", "gptq", "fp8", "compressed-tensors", "modelopt", "auto-round", "quark", "mxfp4"}
    assert len(RECORDED["cases"]) > 75
