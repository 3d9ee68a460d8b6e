"""Every row of the table of architectures, against what vLLM's own planner and model classes say.

``lab/record_registry.py`` records the fixture: it builds every decoder of vLLM's registry with the defaults of its
configuration class and with drawn sizes, and knows nothing of our rows.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import is_proof, recorded

from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.expressions import Expressions, Fill
from tokenyard.models.fields import Fields
from tokenyard.models.mixers import NgramEmbedding
from tokenyard.models.named import MODELS, config_of
from tokenyard.models.reading import table
from tokenyard.models.reading.read import ORDINARY, may_matter, model_from_config
from tokenyard.models.reading.table import ROWS

sys.path.insert(0, str(Path(__file__).parents[3] / "lab"))
import generate_models

RECORDED = recorded(Path(__file__).with_name("registry.json.gz"))
FAMILIES = sorted(Path(table.__file__).with_name("families").glob("*.json"))
ENTRIES = {entry["architecture"]: entry for entry in RECORDED["architectures"]}


def test_no_architecture_is_in_the_table_without_proof() -> None:
    named = {MODELS[name].architecture for name in MODELS}  # those have recordings of their own
    assert {name for name in ROWS if name not in named and not is_proof(ENTRIES.get(name, {"cases": []}))} == set()


def test_no_architecture_and_no_row_is_written_twice_and_none_is_without_use() -> None:
    rows = [(name, row) for file in FAMILIES for name, row in json.loads(file.read_text())["rows"].items()]
    named = Counter(each for _, row in rows for each in row.get("architectures", ()))
    assert named == Counter([*ROWS]), "an architecture has two rows"
    assert max(Counter(name for name, _ in rows).values()) == 1
    liked = set(re.findall(r'"like": "(\w+)"', "".join(file.read_text() for file in FAMILIES)))
    assert {name for name, row in rows if "architectures" not in row} <= liked | {ORDINARY}


def test_fields_are_called_harmless_only_where_their_names_look_as_if_they_mattered() -> None:
    named = ((name, each) for name, row in table.written_rows().items() for each in _harmless(row))
    assert [(name, each) for name, each in named if not may_matter(each)] == []


def _harmless(row: dict[str, Any]) -> list[str]:
    return [*row.get("harmless", ()), *row.get("harmless_around", ())]


def test_a_name_that_there_is_not_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = table.written_rows() | {"wrong": {"like": "llama", "towers": [{"blok": 1}]}}
    monkeypatch.setattr(table, "written_rows", lambda: written)
    with pytest.raises(ValueError, match=r"row 'wrong': .*unknown field `blok`.*towers"):
        table.named_row("wrong")


def test_a_row_adds_to_the_fields_of_the_one_that_it_is_like(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        "first": {
            "mixers": {
                "full_attention": {"is": "grouped", "qkv_bias": True},
                "sliding_attention": {"like": "full_attention", "window": "window"},
            },
            "names": {"width": "ffn_dim", "heads": "n_head"},
            "harmless": ["one"],
            "towers": [{"block": "vit", "names": {"h": "wide", "n": "deep"}}],
        },
        "second": {
            "like": "first",
            "norms": 4,
            "names": {"heads": "num_heads"},
            "harmless": ["two"],
            "towers": [{"like": "first", "block": 5, "names": {"n": "depth"}}],
        },
    }
    monkeypatch.setattr(table, "written_rows", lambda: rows)
    row = table.named_row("second")
    table.named_row.cache_clear()
    assert row.mixers["sliding_attention"] == ({"is": "grouped", "qkv_bias": True, "window": "window"},)
    assert (row.norms, row.harmless, row.names) == (4, ("one", "two"), {"width": "ffn_dim", "heads": "num_heads"})
    assert (row.towers[0].block, row.towers[0].names) == (5, {"h": "wide", "n": "depth"})


@pytest.mark.slow
def test_every_architecture_comes_to_what_vllm_says_and_the_page_of_models_is_written() -> None:
    """Rows that differ are printed."""
    assert generate_models.wrong_rows() == []
    assert "LlamaForCausalLM" in generate_models.document()


def test_the_recordings_are_of_the_whole_registry() -> None:
    kinds = [entry["kind"] for entry in ENTRIES.values()]
    assert (kinds.count("text"), kinds.count("multimodal"), kinds.count("pooling")) == (124, 127, 61)


def test_a_model_that_sees_prompts_both_ways_keeps_nothing_and_is_not_replayed() -> None:
    raw = ENTRIES["BertModel"]["cases"][0]["config"]
    model = model_from_config(raw, name="bert", where="config.json")
    plan = plan_kv_cache(model, available_bytes=1 << 30)
    assert (plan.groups, plan.num_blocks) == ((), 1)
    with pytest.raises(ConfigError, match="keeps no KV cache"):
        plan.cache_config()


def test_a_decoder_that_pools_is_loaded_without_its_output_head() -> None:
    raw = ENTRIES["LlamaModel"]["cases"][0]["config"]
    pools, generates = (
        model_from_config({**raw, "architectures": [name]}, name="x", where="config.json")
        for name in ("LlamaModel", "LlamaForCausalLM")
    )
    assert generates.weight_bytes() - pools.weight_bytes() == 2 * generates.head_parameters


def test_a_model_that_vllm_does_not_share_out_is_refused_a_second_gpu() -> None:
    model = model_from_config(ENTRIES["DoryForCausalLM"]["cases"][0]["config"], name="dory", where="config.json")
    with pytest.raises(ConfigError, match="must be 1: vLLM runs dory on one GPU only"):
        model.check_tensor_parallel(2)


def test_a_ring_has_room_for_drafts_that_may_be_rejected() -> None:
    raw = ENTRIES["Glm5NextForCausalLM"]["cases"][1]["config"]
    model = model_from_config(raw, name="x", where="config.json")
    sizes = [
        plan_kv_cache(model, available_bytes=1 << 34, num_speculative_tokens=drafts).groups[-1].first.block_size
        for drafts in (0, 1, 17)
    ]
    assert sizes == [16, 32, 64]


def test_embeddings_of_n_grams_are_in_the_layers_that_are_named() -> None:
    raw = ENTRIES["Qwen4ExpForCausalLM"]["cases"][2]["config"]
    model = model_from_config(raw, name="x", where="config.json")
    named = [i + 1 for i, layer in enumerate(model.layers) if isinstance(layer.mixers[0], NgramEmbedding)]
    assert named == raw["ple_layer_ids"]


# ---- expressions


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("heads * 2 + experts", 16),
        ("kv_heads", 8),
        ("n_groups=3", 3),
        ("missing|hidden_size", 64),
        ("flag and 5", 5),
        ("i in chosen", True),
        ("i not in chosen", False),
        ("kinds[i] == 'sparse'", True),
        ("hidden_size[i]", 64),
        ("each[i].head_dim or 7", 512),
        ("each[i + 1].head_dim or 7", 7),
        ("-(-10 // 4) * 4", 12),
        ("max(hidden // heads, 3)", 8),
        ("sum_positive(pyramid) - len_positive(pyramid)", 5),
        (("heads * 2", "hidden // heads"), 24),
    ],
)
def test_an_expression_comes_to_this(expression: Fill, value: object) -> None:
    raw = {
        "num_attention_heads": 8, "hidden_size": 64, "flag": True, "chosen": [1, 2], "kinds": ["dense", "sparse"],
        "pyramid": [-1, -1, 3, 4],
        "each": {"01": {"head_dim": 512}},
    }  # fmt: skip
    names = {"heads": "num_attention_heads", "kv_heads": "num_key_value_heads=heads", "hidden": "hidden_size"}
    assert (
        Expressions(Fields("config.json", raw), {**names, "experts": "num_experts=0"}).value(expression, i=1) == value
    )


@pytest.mark.parametrize("value", ["4", [4], {}, None, -1, 0.5])
def test_a_size_that_is_none_names_its_field(value: object) -> None:
    expressions = Expressions(Fields("config.json", {"hidden_size": value}), {"hidden": "hidden_size"})
    with pytest.raises(ConfigError, match=r"config\.json: hidden_size"):
        expressions.count("hidden * 2")


def test_a_list_that_is_too_short_names_its_field() -> None:
    expressions = Expressions(Fields("config.json", {"kinds": ["dense"]}), {})
    with pytest.raises(ConfigError, match=r"kinds = .*give a value for layer 3"):
        expressions.value("kinds[i]", i=3)


def test_a_decoder_that_is_not_known_behind_a_tower_is_refused() -> None:
    entry = ENTRIES["LlavaForConditionalGeneration"]["cases"][0]["config"]
    text = {**entry["text_config"], "model_type": "nobody"}
    with pytest.raises(ConfigError, match=r"model_type = 'nobody': is not modelled here: use llama or mistral"):
        model_from_config({**entry, "text_config": text}, name="x", where="config.json")


def test_what_the_outer_part_says_of_tied_embeddings_counts() -> None:
    _, where, raw = config_of("mistral-small-3.1-24b")
    text = {**raw["text_config"], "tie_word_embeddings": False}
    tied = model_from_config({**raw, "tie_word_embeddings": True, "text_config": text}, name="x", where=where)
    assert tied.tie_word_embeddings
    assert not model_from_config({**raw, "text_config": text}, name="x", where=where).tie_word_embeddings
