"""Structured output by llguidance: whatever the random model prefers, its text follows the grammar."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.engine.drive import serve
from tests.engine.needs_torch import torch, transformers

from tokenyard.core.request import FinishReason, Request, SamplingParams
from tokenyard.errors import ConfigError, FileError
from tokenyard.serve import GrammarCompiler, load_engine

pytest.importorskip("llguidance", reason="grammars need llguidance: make test-engine brings it")
tokenizers: Any = pytest.importorskip("tokenizers", reason="grammars need tokenizers: make test-engine brings it")

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
VOCABULARY = 300
EOS = 256


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model whose tokens are bytes."""
    path = tmp_path_factory.mktemp("bytes")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(path / "tokenizer.json"))
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=EOS,
        initializer_range=0.3,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


def _texts(folder: Path, grammars: list[dict[str, Any]], **options: Any) -> tuple[list[str], Any]:
    """What a random model says by each grammar, at a high temperature."""
    core = load_engine(folder, dtype="float32", device="cpu", num_gpu_blocks_override=200, debug=True, **options)
    compiler = GrammarCompiler(folder, VOCABULARY, core.executor.model.eos_token_ids)
    decode = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).decode
    try:
        requests = []
        for i, each in enumerate(grammars):
            params = SamplingParams(max_tokens=120, temperature=1.5, seed=i, eos_token_id=EOS)
            grammar = compiler.compile(**each) if each else None
            requests.append(Request(f"r{i}", [1, 2, 3 + i], params, structured_output=grammar))
        run = serve(core, requests)
        return [decode(tokens) for tokens in run.tokens], run
    finally:
        core.shutdown()
        compiler.shutdown()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("drafts", [False, True], ids=["no drafts", "drafts"])
def test_texts_follow_their_grammars(folder: Path, is_async: bool, drafts: bool) -> None:
    drafter = {"model": str(folder), "num_speculative_tokens": 3} if drafts else None
    grammars: list[dict[str, Any]] = [
        {"json": SCHEMA},
        {"regex": "[a-f]{3}-[0-9]{2}"},
        {"choice": ["yes", 'no, "never"', "perhaps"]},
        {"grammar": 'start: "a" ("b" | "c")~2 "d"'},
        {},
        {"json": json.dumps({"enum": [17]})},
    ]
    texts, run = _texts(folder, grammars, async_scheduling=is_async, speculative_config=drafter)
    person = json.loads(texts[0])
    assert set(person) == {"name", "age"}
    assert 0 <= person["age"] <= 99
    assert re.fullmatch("[a-f]{3}-[0-9]{2}", texts[1])
    assert texts[2] in ("yes", 'no, "never"', "perhaps")
    assert re.fullmatch("a[bc]{2}d", texts[3])
    assert texts[5] == "17"
    assert {run.reasons[f"r{i}"] for i in (0, 1, 2, 3, 5)} == {FinishReason.STOP}


def test_a_grammar_that_cannot_be_compiled_ends_its_request_alone(folder: Path) -> None:
    texts, run = _texts(folder, [{"regex": "[0-9"}, {"regex": "[0-9]{2}"}])
    assert run.reasons["r0"] is FinishReason.ERROR
    assert re.fullmatch("[0-9]{2}", texts[1])


def test_what_is_no_grammar_is_named(folder: Path, tmp_path: Path) -> None:
    compiler = GrammarCompiler(folder, VOCABULARY, [EOS])
    given: dict[str, Any]
    for given, field in (
        ({}, "structured_outputs"),
        ({"regex": "a", "json_object": True}, "structured_outputs"),
        ({"choice": "yes"}, "structured_outputs.choice"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"regex": 5}, "structured_outputs.regex"),
    ):
        with pytest.raises(ConfigError) as error:
            compiler.compile(**given)
        assert error.value.field == field
    for given in ({"regex": "("}, {"grammar": "start: nothing"}, {"json": "{"}, {"json": {"type": "wrong"}}):
        with pytest.raises(ConfigError, match="cannot be compiled"):
            compiler.compile(**given).check()
    compiler.compile(json_object=True).check()
    compiler.shutdown()
    with pytest.raises(ConfigError, match="eos_token_id"):
        GrammarCompiler(folder, VOCABULARY, [])
    (tmp_path / "tokenizer.json").write_text("{}")
    for bad in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FileError):
            GrammarCompiler(bad, VOCABULARY, [EOS])
