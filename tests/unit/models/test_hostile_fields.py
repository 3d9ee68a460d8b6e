"""Whatever stands in a field of a config.json, it is read, or refused in one error."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.planner_answers import recorded

import tokenyard.models
from tokenyard.errors import ConfigError
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.reading.table import ROWS

_RECORDED = recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]
_DRAWN = [case["config"] for entry in _RECORDED if entry["architecture"] in ROWS for case in entry["cases"]]
_FILES = sorted(Path(tokenyard.models.__file__).parent.joinpath("configs").glob("*.json"))

_HOSTILE: list[Any] = [
    *([], [[1]], {}, {"a": [1]}, "", "x", "a" * 5000, None, [None], ["x"], [-1], [1e308] * 3),
    *(-1, 0, 1, 2.5, 100_000, 2**31 - 1, 2**40, 10**400, 1e308, float("nan"), True, False),
]


def _fields(config: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in config.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from _fields(value, (*path, name))


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_any_value_in_any_field_is_borne(data: st.DataObject) -> None:
    known = st.sampled_from(_FILES).map(lambda file: json.loads(file.read_text()))
    config = copy.deepcopy(data.draw(known | st.sampled_from(_DRAWN)))
    path = data.draw(st.sampled_from(list(_fields(config))))
    section = config
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = data.draw(st.sampled_from(_HOSTILE))
    with suppress(ConfigError):
        model = model_from_config(config, name="x", where="config.json")
        assert min(model.num_parameters, model.num_active_parameters, model.kv_bytes_per_token()) >= 0


@pytest.mark.parametrize("count", [10_001, 2**31 - 1])
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM"])
def test_a_number_of_layers_that_nobody_builds_is_one_error(architecture: str, count: int) -> None:
    """Each layer is looked at by itself: a million took eleven seconds, a billion all memory."""
    known = (json.loads(file.read_text()) for file in _FILES)
    config = next(each for each in known if each.get("architectures") == [architecture])
    with pytest.raises(ConfigError, match=f"num_hidden_layers = {count}: give a whole number from 1 to 10000"):
        model_from_config({**config, "num_hidden_layers": count}, name="x", where="config.json")
