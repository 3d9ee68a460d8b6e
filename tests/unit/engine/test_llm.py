"""Offline generation: all prompts before the first step, and every answer right."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from tests.support.toy_model import EOS, VOCAB_SIZE, ToyExecutor, answer_to, text_to, toy_core, toy_tokenizer

from tokenyard.core.params import SamplingParams
from tokenyard.errors import ConfigError, EngineDeadError, RequestError
from tokenyard.serve.generation import GenerationParams, Turn
from tokenyard.serve.llm import LLM

TOKENIZER = toy_tokenizer()


@pytest.fixture
def llm() -> LLM:
    return LLM(toy_core(), tokenizer=TOKENIZER)


def executor(llm: LLM) -> ToyExecutor:
    assert isinstance(llm.core.executor, ToyExecutor)
    return llm.core.executor


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)


def test_answers_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"prompt {i}" for i in range(40)]
    outputs = llm.generate(prompts, [SamplingParams(max_tokens=1 + i) for i in range(40)])
    assert [each.prompt for each in outputs] == prompts
    for i, each in enumerate(outputs):
        (answer,) = each.outputs
        assert answer.token_ids == answer_to(ids(prompts[i]), 1 + i)
        assert answer.text == text_to(ids(prompts[i]), 1 + i)
        assert each.finished
        assert answer.finish_reason == ("stop" if answer.token_ids[-1] == EOS else "length")
    assert llm.core.scheduler.num_free_blocks == 399
    assert not llm.core.scheduler.requests


def test_one_prompt_may_stand_alone_whatever_kind_of_mapping_it_is(llm: LLM) -> None:
    for alone in ("hello", {"prompt": "hello"}, MappingProxyType({"prompt": "hello"})):
        (output,) = llm.generate(alone, SamplingParams(max_tokens=3))
        assert output.outputs[0].token_ids == answer_to(ids("hello"), 3)


def test_all_prompts_are_there_before_the_first_step(llm: LLM) -> None:
    """Document 001's user: 16 prompts that fit the budget together are admitted together."""
    llm.generate([{"prompt_token_ids": [i] * 16} for i in range(16)], SamplingParams(max_tokens=2))
    assert len(executor(llm).steps[0]) == 16


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_stop_string_cuts_the_answer_and_frees_its_blocks(async_scheduling: bool) -> None:
    llm = LLM(toy_core(async_scheduling=async_scheduling), tokenizer=TOKENIZER)
    whole = text_to(ids("hello"), 60)
    stop = whole[10:14]
    at = whole.find(stop)
    params = GenerationParams(max_tokens=60, stop=("no such text", stop))
    cut, included = llm.generate(["hello"] * 2, [params, replace(params, include_stop_str_in_output=True)])
    assert (cut.outputs[0].text, cut.outputs[0].finish_reason, cut.outputs[0].stop_reason) == (whole[:at], "stop", stop)
    assert included.outputs[0].text == whole[:at] + stop
    assert len(cut.outputs[0].token_ids) == len(whole[: at + len(stop)].encode())
    while llm.core.has_work:
        llm.core.step()
    assert llm.core.scheduler.num_free_blocks == 399


def test_min_tokens_come_before_a_stop_string(llm: LLM) -> None:
    whole = text_to(ids("hello"), 80)
    (output,) = llm.generate("hello", GenerationParams(max_tokens=80, min_tokens=40, stop=(" ",)))
    assert output.outputs[0].text.encode() == whole.encode()[: len(output.outputs[0].text.encode())]
    assert len(output.outputs[0].token_ids) > 40


def test_the_end_has_a_text_only_where_it_is_wanted(llm: LLM) -> None:
    said = answer_to(ids("hello"), 20)
    stop = SamplingParams(max_tokens=20, stop_token_ids=(said[5],))
    (output,) = llm.generate("hello", stop)
    assert output.outputs[0].stop_reason == said[5]
    assert output.outputs[0].token_ids == said[: said.index(said[5]) + 1]
    assert output.outputs[0].text == bytes(said[: said.index(said[5])]).decode(errors="replace")


def test_several_answers_to_a_prompt(llm: LLM) -> None:
    (output,) = llm.generate("hello there", GenerationParams(max_tokens=9, n=3, seed=5))
    assert [each.index for each in output.outputs] == [0, 1, 2]
    assert {each.text for each in output.outputs} == {text_to(ids("hello there"), 9)}
    assert sorted(executor(llm).steps[-1]) == ["0_0", "1_0", "2_0"]


def test_log_probabilities_have_their_texts(llm: LLM) -> None:
    (output,) = llm.generate("hello", GenerationParams(max_tokens=3, logprobs=2))
    (answer,) = output.outputs
    assert answer.logprobs is not None
    assert answer.cumulative_logprob == -1.5
    for token, row in zip(answer.token_ids, answer.logprobs, strict=True):
        assert list(row) == [token, token + 1]  # the second likeliest is the token itself once more
        assert (row[token].logprob, row[token].rank) == (-0.5, 1)
        assert row[token].decoded_token == TOKENIZER.token_text(token)


def test_a_prompt_that_cannot_be_served_stops_all_before_the_first_step(llm: LLM) -> None:
    with pytest.raises(RequestError, match="max_model_len"):
        llm.generate(["short", "x" * 600])
    assert not llm.core.scheduler.requests
    assert executor(llm).steps == []
    llm.generate("short")


@pytest.mark.parametrize(
    ("prompt", "params", "field"),
    [
        ([VOCAB_SIZE], SamplingParams(), "prompt_token_ids"),
        ({"text": "x"}, SamplingParams(), "prompt"),
        ("\ud800", SamplingParams(), "prompt"),
        ("", SamplingParams(), "prompt_token_ids"),
        ("x", GenerationParams(n=0), "n"),
        ("x", GenerationParams(stop=("",)), "stop"),
        ("x", GenerationParams(stop="word"), "stop"),  # type: ignore[arg-type]
        ("x", SamplingParams(logprobs=21), "logprobs"),
        ("x", SamplingParams(stop_token_ids=(VOCAB_SIZE,)), "stop_token_ids"),
        ("x", SamplingParams(logit_bias={VOCAB_SIZE: 1.0}), "logit_bias"),
        ("x", SamplingParams(temperature=-1), "temperature"),
    ],
)
def test_mistakes_name_their_field(llm: LLM, prompt: object, params: SamplingParams, field: str) -> None:
    with pytest.raises(RequestError) as refused:
        llm.generate([prompt], params)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_settings_for_each_prompt_are_as_many_as_prompts(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="sampling_params"):
        llm.generate(["a", "b"], [SamplingParams()])


def test_an_engine_that_is_there_takes_no_settings() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs"):
        LLM(toy_core(), max_num_seqs=4)


def test_what_the_model_raises_leaves_nothing_behind(llm: LLM) -> None:
    executor(llm).fails_at = 3
    with pytest.raises(RuntimeError, match="the device is gone"):
        llm.generate(["a", "b"])
    with pytest.raises(EngineDeadError, match="the device is gone"):
        llm.generate(["a"])


def test_turns_of_an_agent_reach_the_scheduler() -> None:
    llm = LLM(toy_core(policy="priority", max_num_seqs=1), tokenizer=TOKENIZER)
    llm.generate(["a", "b"], SamplingParams(max_tokens=2), turns=[Turn(priority=2), Turn(priority=1, job_id="j")])
    assert executor(llm).steps[0] == ("1",)


def test_without_a_tokenizer_there_are_tokens_alone() -> None:
    llm = LLM(toy_core())
    (output,) = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4))
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("", answer_to([1, 2, 3], 4))
    with pytest.raises(RequestError, match="no tokenizer"):
        llm.generate("text")


def test_a_progress_bar_goes_to_standard_error(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b"], use_tqdm=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "generating" in captured.err
