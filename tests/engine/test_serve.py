"""Text and HTTP over a real model: what clients get is what ``transformers`` generates."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tests.engine.needs_torch  # noqa: F401 - before whatever imports torch
import torch
from tests.engine.adapters import make_adapter, merged
from tests.engine.tiny_models import Checkpoint
from transformers import AutoModelForCausalLM

from tokenyard.errors import RequestError
from tokenyard.serve import LLM, AsyncLLM, GenerationParams, GrammarCompiler, StructuredOutputsParams, load_engine
from tokenyard.serve.openai.app import make_api
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.served_model import make_demo_model
from tokenyard.serve.text import TextTokenizer

PROMPTS = ["hello", "a longer prompt, which has some more tokens than a block", "größer 🦊"]
SETTINGS: dict[str, Any] = {"dtype": "float64", "device": "cpu", "max_model_len": 512, "num_gpu_blocks_override": 60}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_demo_model(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def greedy(folder: Path) -> dict[str, list[int]]:
    """What transformers generates: 24 tokens, or fewer and the end."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokenizer, answers = TextTokenizer.load(folder), {}
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt)])
        made = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)
        answers[prompt] = made[0, ids.shape[1] :].tolist()
    return answers


@pytest.mark.smoke
def test_offline(folder: Path, greedy: dict[str, list[int]]) -> None:
    with LLM(folder, **SETTINGS) as llm:
        outputs = llm.generate(PROMPTS, GenerationParams(max_tokens=24, temperature=0.0, logprobs=2))
        for prompt, output in zip(PROMPTS, outputs, strict=True):
            (answer,) = output.outputs
            assert answer.token_ids == greedy[prompt]
            assert llm.tokenizer is not None
            assert answer.text == llm.tokenizer.decode(greedy[prompt])
            assert answer.logprobs is not None
            assert all(next(iter(row.values())).rank == 1 for row in answer.logprobs)


@pytest.fixture
def context(folder: Path) -> ServerContext:
    core = load_engine(folder, **SETTINGS)
    tokenizer = TextTokenizer.load(folder)
    model = core.executor.model
    grammars = GrammarCompiler(folder, model.vocab_size, model.eos_token_ids)
    return ServerContext(llm=AsyncLLM(core, tokenizer=tokenizer), names=["demo"], grammars=grammars)


def asked(context: ServerContext, *bodies: dict[str, Any], path: str = "/v1/completions") -> list[Any]:
    """The answers to all of them, asked at once."""

    async def work() -> list[Any]:
        app = make_api(context)
        async with context.llm:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
                answers = await asyncio.gather(*(client.post(path, json=body) for body in bodies))
        assert context.llm.core.scheduler.num_free_blocks == 59
        return [each.json() for each in answers]

    return asyncio.run(work())


@pytest.mark.smoke
def test_over_http(context: ServerContext, greedy: dict[str, list[int]]) -> None:
    bodies = [{"prompt": prompt, "max_tokens": 24, "temperature": 0, "n": 2} for prompt in PROMPTS]
    for prompt, answer in zip(PROMPTS, asked(context, *bodies), strict=True):
        assert context.llm.tokenizer is not None
        assert [each["text"] for each in answer["choices"]] == [context.llm.tokenizer.decode(greedy[prompt])] * 2
        assert answer["usage"]["completion_tokens"] == 2 * len(greedy[prompt])


@pytest.mark.smoke
def test_embeddings(context: ServerContext, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokenizer = TextTokenizer.load(folder)
    ids = [tokenizer.encode(each) for each in PROMPTS]
    with torch.no_grad():
        states = [model.base_model(torch.tensor([each])).last_hidden_state[0] for each in ids]
    texts, tokens, mean, wrong = asked(
        context,
        {"input": PROMPTS, "model": "demo", "user": "me"},
        {"input": ids[1], "encoding_format": "base64"},
        {"input": PROMPTS[0], "pooling_type": "MEAN", "normalize": False},
        {"input": []},
        path="/v1/embeddings",
    )
    counts = {name: texts["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert list(counts.values()) == [sum(map(len, ids)), 0, sum(map(len, ids))]
    last = [(each[-1] / each[-1].norm()).numpy() for each in states]
    for i, each in enumerate(texts["data"]):
        assert each["index"] == i
        assert np.allclose(each["embedding"], last[i], atol=1e-6)
    told = np.frombuffer(base64.b64decode(tokens["data"][0]["embedding"]), "<f4")
    assert np.allclose(told, last[1], atol=1e-6)
    assert np.allclose(mean["data"][0]["embedding"], states[0].mean(0).numpy(), atol=1e-6)
    assert wrong["error"]["param"] == "input"


@pytest.mark.smoke
def test_an_adapter_is_asked_for_as_a_model(folder: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    base = Checkpoint("llama", folder, model)
    adapter = make_adapter(base, tmp_path / "poet")
    tokenizer = TextTokenizer.load(folder)
    core = load_engine(folder, **SETTINGS, enable_lora=True, lora_modules={"poet": adapter})
    context = ServerContext(llm=AsyncLLM(core, tokenizer=tokenizer), names=["demo"])
    body = {"prompt": PROMPTS[1], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    mine, plain, unknown = asked(context, body | {"model": "poet"}, body | {"model": "demo"}, body | {"model": "x"})
    prompt = tokenizer.encode(PROMPTS[1])
    for answer, name, wanted in ((mine, "poet", merged(base, adapter)), (plain, "demo", base)):
        assert answer["model"] == name
        assert answer["choices"][0]["text"] == tokenizer.decode(wanted.greedy(prompt, 8))
    assert mine["choices"] != plain["choices"]
    assert unknown["error"]["code"] == "model_not_found"


@pytest.mark.smoke
def test_log_probabilities_of_prompts(context: ServerContext, folder: Path) -> None:
    """They are transformers', and stand before the answer's where the prompt is echoed."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    ids = TextTokenizer.load(folder).encode(PROMPTS[1])
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    common = {"prompt": PROMPTS[1], "max_tokens": 2, "temperature": 0}
    told, echoed, refused, streamed = asked(
        context,
        {**common, "prompt_logprobs": 3},
        {**common, "echo": True, "logprobs": 1},
        {**common, "prompt_logprobs": 21},
        {**common, "prompt_logprobs": 1, "stream": True},
    )
    rows = told["choices"][0]["prompt_logprobs"]
    assert len(rows) == len(ids)
    assert rows[0] is None
    for i, row in enumerate(rows[1:]):
        assert row[str(ids[i + 1])]["logprob"] == pytest.approx(float(expected[i, ids[i + 1]]), abs=1e-5)
        likeliest = [int(token) for token, each in row.items() if each["rank"] <= 3]
        assert sorted(likeliest) == sorted(expected[i].topk(3).indices.tolist())
    said = echoed["choices"][0]["logprobs"]
    assert len(said["tokens"]) == len(ids) + 2
    assert said["token_logprobs"][0] is None
    own = [rows[i][str(ids[i])]["logprob"] for i in range(1, len(ids))]
    assert said["token_logprobs"][1 : len(ids)] == pytest.approx(own)
    assert refused["error"]["param"] == "prompt_logprobs"
    assert streamed["error"]["param"] == "prompt_logprobs"


@pytest.mark.smoke
def test_offline_answers_keep_to_grammars(folder: Path) -> None:
    with LLM(folder, **SETTINGS) as llm:
        params = GenerationParams(
            max_tokens=9, n=2, seed=1, structured_outputs=StructuredOutputsParams(regex="[a-c]{4}")
        )
        free = GenerationParams(max_tokens=9, seed=1)
        kept, other = llm.generate(["x", "y"], [params, free])
        for answer in kept.outputs:
            assert re.fullmatch("[a-c]{4}", answer.text)
        assert not re.fullmatch("[a-c]{4}", other.outputs[0].text)
        wrong = StructuredOutputsParams(regex="("), StructuredOutputsParams()
        for asked_for, field in zip(wrong, ("structured_outputs.regex", "structured_outputs"), strict=True):
            with pytest.raises(RequestError) as caught:
                llm.generate("x", GenerationParams(structured_outputs=asked_for))
            assert caught.value.field == field
        assert not llm.core.scheduler.requests


@pytest.mark.smoke
def test_an_answer_keeps_to_a_schema(context: ServerContext) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "yy"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
    grammar = {"regex": "[a-c]{4}"}
    bodies = [{"prompt": "json", "max_tokens": 200, "seed": seed, "response_format": wanted} for seed in range(4)]
    *objects, plain = asked(context, *bodies, {"prompt": "x", "max_tokens": 9, "structured_outputs": grammar})
    for answer in objects:
        (choice,) = answer["choices"]
        if choice["finish_reason"] == "stop":
            assert json.loads(choice["text"]) in ({"a": "x"}, {"a": "yy"})
    assert len(plain["choices"][0]["text"]) == 4
    assert set(plain["choices"][0]["text"]) <= set("abc")
    assert any(answer["choices"][0]["finish_reason"] == "stop" for answer in objects)
