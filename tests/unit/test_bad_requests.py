"""Requests that cannot work are refused at once, by name, field, value and fix; nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.profiles import VLLM_0_22, VLLM_0_33
from tests.support.toy_engine import ToyEngine, make_request, snapshot

from tokenyard.core.config import GroupKind, KVCacheGroup, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import MultiModalItem, Request, SamplingParams
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.errors import ConfigError, RequestError


def _refused(field: str, *args: Any, **options: Any) -> RequestError:
    """The refusal of a request that is being made."""
    with pytest.raises(RequestError) as refusal:
        Request(*args, **options)
    assert refusal.value.field == field
    assert field in str(refusal.value)
    assert refusal.value.fix in str(refusal.value)
    return refusal.value


# ---- when it is made


@pytest.mark.parametrize("request_id", ["", None, 7])
def test_an_id_is_a_text(request_id: Any) -> None:
    _refused("request_id", request_id, [1])


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        [-1],
        [2**31],
        [10**30],
        [1.5],
        [None],
        ["1"],
        "hello",
        5,
        None,
        [[1, 2]],
        [[1], [2, 3]],
        [True],
        np.array([], np.int32),
        np.array([-3], np.int32),
        np.array([1.0]),
    ],
    ids=repr,
)
def test_a_prompt_is_a_list_of_token_ids(prompt: Any) -> None:
    assert _refused("prompt_token_ids", "r", prompt).request_id == "r"


class Id:
    """A number that NumPy does not know."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("prompt", [[1, Id(7)], [Id(1), 7], [np.int64(1), Id(7)], (1, Id(7))])
def test_token_ids_may_be_numbers_of_others(prompt: Any) -> None:
    assert Request("r", prompt).prompt_token_ids == [1, 7]


@pytest.mark.parametrize(
    "prompt", [[1, Id(-7)], [Id(2**31), 7], [Id(2**70)], [Id(1), "7"], [Id(1), 1.5], [Id(1), None]]
)
def test_numbers_of_others_may_be_no_token_ids(prompt: Any) -> None:
    _refused("prompt_token_ids", "r", prompt)


@pytest.mark.parametrize(
    "prompt", [[0], [2**31 - 1], (1, 2), range(3), np.array([1], np.int64), np.array([1], np.uint8)]
)
def test_token_ids_may_come_in_many_dresses(prompt: Any) -> None:
    assert Request("r", prompt).prompt_token_ids == [int(token) for token in prompt]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_tokens", [0, -1, 2**31, 1.5, "16", None, True]),
        ("min_tokens", [-1, 2**31, 0.5, "1", None]),
        ("eos_token_id", [-1, 2**31, "2", 1.0, True]),
        ("stop_token_ids", [5, None, "ab", (-1,), (1, 2**31), ("1",), (1.0,)]),
        ("ignore_eos", [1, "yes", None]),
        ("skip_reading_prefix_cache", [1, "no"]),
        ("prompt_logprobs", [-2, "all", True, 1.5]),
    ],
)
def test_sampling_limits_are_checked(field: str, values: list[Any]) -> None:
    for value in values:
        _refused(field, "r", [1], SamplingParams(**{field: value}))


def test_min_tokens_must_not_exceed_max_tokens() -> None:
    assert "max_tokens (4)" in _refused("min_tokens", "r", [1], SamplingParams(max_tokens=4, min_tokens=5)).fix


@pytest.mark.parametrize("params", [{"max_tokens": 4}, 16, "greedy"])
def test_sampling_parameters_are_of_their_type(params: Any) -> None:
    _refused("sampling_params", "r", [1], params)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (
            "arrival_time",
            [float("nan"), float("inf"), -float("inf"), "soon", 2**44, np.array(3), np.datetime64(3, "s")],
        ),
        ("priority", ["high", 1.5, None, True]),
        ("lora_name", [7, b"x"]),
        ("cache_salt", [7, b"x"]),
        ("job_id", [7]),
        ("ends_after", ["x", 2.5, 0, -1, True, 2**31]),
        ("predicted_output_tokens", ["7", float("nan"), 1.5, -1, 2**31, True]),
        ("output_seed", [2**63, "x", 0.5, None]),
        ("client_index", [-1, None, 2**31]),
        ("is_last_step", ["yes", 1, None]),
        ("meta", [5, "x"]),
        ("kv_transfer_params", [7]),
        ("trace_headers", [7]),
    ],
)
def test_fields_of_a_wrong_type_are_refused(field: str, values: list[Any]) -> None:
    for value in values:
        assert _refused(field, "r", [1], **{field: value}).value is value


@pytest.mark.parametrize("field", ["lora_name", "cache_salt", "job_id", "this_func_call"])
@pytest.mark.parametrize("text", ["\ud800", "ab\udfff"], ids=ascii)
def test_a_text_that_cannot_be_encoded_is_refused(field: str, text: str) -> None:
    """JSON brings lone surrogates; hashing would raise in every step, also after the request is gone."""
    refusal = _refused(field, "r", [1], **{field: text})
    assert refusal.value == text
    assert f"character at {len(text) - 1} is a lone surrogate" in refusal.fix
    str(refusal).encode()


def test_an_id_that_cannot_be_encoded_is_refused() -> None:
    str(_refused("request_id", "r\ud800", [1])).encode()


@pytest.mark.parametrize("text", ["", "naïve", "\U0001f600", "\x00"], ids=ascii)
def test_any_other_text_enters_the_hashes(text: str) -> None:
    toy = ToyEngine()
    toy.add("r", 9, max_tokens=1, lora_name=text, cache_salt=text, job_id=text)
    toy.drain()
    assert toy.requests["r"].num_output_tokens == 1


@pytest.mark.parametrize("items", [["x"], "x", None, 5, [{"mm_hash": "cat", "offset": 0, "length": 1}]], ids=repr)
def test_pictures_are_multi_modal_items(items: Any) -> None:
    assert _refused("mm_features", "r", [1, 2], mm_features=items).value is items


@pytest.mark.parametrize(
    ("field", "value"),
    [("mm_hash", "\ud800"), ("mm_hash", None), ("mm_hash", b"x"), ("offset", "0"), ("offset", 0.0), ("length", True)],
    ids=ascii,
)
def test_fields_of_a_picture_are_checked(field: str, value: Any) -> None:
    item = MultiModalItem(**{"mm_hash": "cat", "offset": 0, "length": 1, field: value})
    assert _refused(f"mm_features.{field}", "r", [1, 2], mm_features=[item]).value is value


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 0), (0, 5), (4, 1), (3, 2)])
def test_a_picture_lies_within_the_prompt(offset: int, length: int) -> None:
    item = MultiModalItem(mm_hash="cat", offset=offset, length=length)
    assert "within the prompt" in _refused("mm_features", "r", [1, 2, 3, 4], mm_features=[item]).fix


def test_a_picture_has_one_flag_per_placeholder() -> None:
    item = MultiModalItem(mm_hash="cat", offset=0, length=2, is_embed=(True,))
    _refused("mm_features", "r", [1, 2, 3], mm_features=[item])


def test_prompt_embeddings_have_a_row_per_token() -> None:
    assert "(3)" in _refused("prompt_embeds", "r", [1, 2, 3], prompt_embeds=np.ones((2, 4))).fix


@pytest.mark.parametrize(
    "embeds",
    [
        [[0.5], [0.5]],
        [0.5, 0.5],
        "ab",
        np.ones(2),
        np.ones((2, 1, 1)),
        np.array([["a"], ["b"]]),
        np.array([[None], [None]]),
        np.array([[True], [True]]),
    ],
    ids=repr,
)
def test_prompt_embeddings_are_an_array_of_numbers(embeds: Any) -> None:
    """Their bytes enter the hashes, and those of objects are addresses."""
    _refused("prompt_embeds", "r", [1, 2], prompt_embeds=embeds)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.uint16, np.int8])
def test_prompt_embeddings_of_any_number_are_served(kind: type[np.generic]) -> None:
    toy = ToyEngine()
    toy.add("r", 9, max_tokens=1, prompt_embeds=np.ones((9, 4), kind))
    toy.drain()
    assert toy.requests["r"].num_output_tokens == 1


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        Request("r", [1], maximum_tokens=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        SamplingParams(temprature=0.5)  # type: ignore[call-arg]


# ---- when it is added


@pytest.fixture
def toy() -> ToyEngine:
    """Ten usable blocks of four, at most 36 tokens; one request runs, one waits."""
    toy = ToyEngine(num_gpu_blocks=11, max_model_len=36, max_num_seqs=1)
    toy.add("running", 8)
    toy.step()
    toy.add("waiting", 8)
    return toy


def _not_added(toy: ToyEngine, request: Request) -> RequestError:
    before = snapshot(toy.scheduler)
    with pytest.raises(RequestError) as refusal:
        toy.scheduler.add_request(request)
    assert snapshot(toy.scheduler) == before
    assert toy.watcher.names().count("request_arrived") == 2
    return refusal.value


@pytest.mark.parametrize("name", ["running", "waiting"])
def test_an_id_is_used_once(toy: ToyEngine, name: str) -> None:
    refusal = _not_added(toy, make_request(name))
    assert (refusal.field, refusal.value) == ("request_id", name)


def test_a_request_is_added_once(toy: ToyEngine) -> None:
    assert _not_added(toy, toy.requests["waiting"]).field == "request_id"


def test_a_finished_request_is_not_added_again(toy: ToyEngine) -> None:
    toy.abort("waiting")
    refusal = _not_added(toy, toy.requests["waiting"])
    assert (refusal.field, refusal.value) == ("status", "FINISHED_ABORTED")


def test_a_request_of_another_scheduler_is_not_added(toy: ToyEngine) -> None:
    other = ToyEngine()
    other.add("a")
    other.step()
    assert _not_added(toy, other.requests["a"]).field == "status"


@pytest.mark.parametrize("length", [36, 37, 1000])
def test_a_prompt_is_shorter_than_max_model_len(toy: ToyEngine, length: int) -> None:
    refusal = _not_added(toy, make_request("long", length))
    assert refusal.field == "prompt_token_ids"
    assert "max_model_len (36)" in refusal.fix
    assert f"{length} tokens" in str(refusal)


def test_the_longest_prompt_is_served(toy: ToyEngine) -> None:
    request = toy.add("long", 35, max_tokens=50)
    toy.drain()
    assert request.num_output_tokens == 1


def test_a_request_that_could_never_reach_min_tokens_is_refused(toy: ToyEngine) -> None:
    """No stop is looked at before min_tokens: it would run into max_model_len and stay there."""
    refusal = _not_added(toy, make_request("greedy", 30, min_tokens=7, max_tokens=10))
    assert (refusal.field, refusal.value) == ("min_tokens", 7)
    assert "6 output tokens" in refusal.fix
    toy.add("just", 30, min_tokens=6, max_tokens=10)
    toy.drain()
    assert toy.requests["just"].num_output_tokens == 6


@pytest.mark.parametrize(("profile", "ends"), [(VLLM_0_22, False), (VLLM_0_33, True)])
def test_min_tokens_lengthen_a_recorded_answer_where_they_bar_its_end(profile: DecisionProfile, *, ends: bool) -> None:
    """It was recorded with 5 tokens: with 60 at least the pool cannot hold it, unless nothing but repetition waits."""
    toy = ToyEngine(profile=profile, num_gpu_blocks=9, max_model_len=256)
    request = Request("r", [1] * 8, SamplingParams(min_tokens=60, max_tokens=80, ignore_eos=True), ends_after=5)
    if ends:
        toy.scheduler.add_request(request)
        toy.drain()
        assert request.num_output_tokens == 5
    else:
        with pytest.raises(RequestError, match=r"max_tokens.*can need"):
            toy.scheduler.add_request(request)


@pytest.mark.parametrize(("prompt", "max_tokens", "needed"), [(17, 1, 5), (10, 8, 5), (4, 2_000_000_000, 9)])
def test_a_request_that_can_never_fit_is_refused_at_once(prompt: int, max_tokens: int, needed: int) -> None:
    """It would wait for ever for blocks that do not exist."""
    toy = ToyEngine(num_gpu_blocks=5, max_model_len=36)
    before = snapshot(toy.scheduler)
    with pytest.raises(RequestError, match=f"can need {needed} blocks and the pool has 4") as refusal:
        toy.add("big", prompt, max_tokens=max_tokens)
    assert (refusal.value.field, refusal.value.value) == ("max_tokens", max_tokens)
    less = "shorten the prompt" if prompt > 16 else "lower max_tokens"
    assert refusal.value.fix.endswith(f"{less}, or raise num_gpu_blocks (5) to {needed + 1}")
    assert snapshot(toy.scheduler) == before


@pytest.mark.parametrize(("prompt", "max_tokens"), [(16, 1), (10, 7), (1, 16)])
def test_the_largest_request_that_fits_is_served(prompt: int, max_tokens: int) -> None:
    """The last token is sampled, never computed: it needs no place."""
    toy = ToyEngine(num_gpu_blocks=5, max_model_len=36)
    request = toy.add("big", prompt, max_tokens=max_tokens)
    toy.drain()
    assert request.num_output_tokens == max_tokens


def test_what_the_refusal_advises_helps() -> None:
    """A pool of just as many blocks as it says serves the request."""
    toy = ToyEngine(num_gpu_blocks=10, max_model_len=36)
    request = toy.add("big", 4, max_tokens=2_000_000_000)
    toy.drain()
    assert request.num_output_tokens == 32


def test_a_pool_of_the_null_block_alone_serves_nobody() -> None:
    toy = ToyEngine(num_gpu_blocks=1)
    with pytest.raises(RequestError, match="the pool has 0"):
        toy.add("a", 1, max_tokens=1)
    assert toy.scheduler.make_stats().kv_cache_usage == 0.0


def test_lookahead_slots_count_against_the_pool() -> None:
    """An EAGLE head needs slots beyond every step's tokens: eleven tokens and three slots do not fit twelve places."""
    speculative = SpeculativeConfig(num_speculative_tokens=3, method=SpeculativeMethod.EAGLE)
    toy = ToyEngine(num_gpu_blocks=4, speculative=speculative)
    with pytest.raises(RequestError, match="can need 4 blocks and the pool has 3"):
        toy.add("a", 9, max_tokens=2)
    toy.add("b", 8, max_tokens=2)
    assert toy.drain() > 0


def test_settings_that_exclude_each_other_are_refused_together() -> None:
    groups = (KVCacheGroup(), KVCacheGroup(kind=GroupKind.CHUNKED_LOCAL, window=16))
    speculative = SpeculativeConfig(num_speculative_tokens=3, method=SpeculativeMethod.EAGLE)
    with pytest.raises(ConfigError, match="chunked local attention"):
        ToyEngine(groups=groups, speculative=speculative)


@pytest.mark.parametrize(("field", "value"), [("num_gpu_blocks", 0), ("max_num_seqs", 0), ("block_size", -4)])
def test_a_scheduler_without_room_cannot_be_made(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        ToyEngine(**{field: value})


# ---- what the model answers


@pytest.mark.parametrize("token", [-1, -(2**63), 2**31, 2**40])
@pytest.mark.parametrize("row", [0, 2])
def test_arrays_of_sampled_tokens_hold_ids(token: int, row: int) -> None:
    """They would end up wrong in the request, and its next prompt in another's cache."""
    sampled = np.array([[5, 6], [7, 8], [9, 0]])
    sampled[row, 1] = token
    with pytest.raises(ValueError, match=f"row {row} holds token {token}: give ids from 0 to {2**31 - 1}"):
        ModelOutput(sampled, np.array([2, 2, 2]))


def test_padding_of_sampled_tokens_may_hold_anything() -> None:
    sampled = np.array([[5, -1], [2**40, -1], [2**31 - 1, 0]])
    assert ModelOutput(sampled, np.array([1, 0, 2])).sampled is sampled
    assert ModelOutput(np.zeros((0, 1), np.int64), np.zeros(0, np.int64)).sampled.size == 0


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_sampled_tokens_may_be_narrow(kind: type[np.signedinteger[Any]]) -> None:
    assert ModelOutput(np.array([[7]], kind), np.array([1])).sampled.dtype == np.int64
    with pytest.raises(ValueError, match="row 0 holds token -7"):
        ModelOutput(np.array([[-7]], kind), np.array([1]))


def test_what_a_host_attaches_is_kept() -> None:
    """Neither decides anything: they are for the host's tracing and for its connector."""
    headers, transfer = {"traceparent": "00-1"}, {"remote_host": "prefill"}
    request = Request("r", [1], trace_headers=headers, kv_transfer_params=transfer)
    assert (request.trace_headers, request.kv_transfer_params) == (headers, transfer)


# ---- what only a step would have stumbled over


@pytest.mark.parametrize("time", [10**400, float("nan"), float("inf"), True, "1"], ids=lambda time: str(time)[:4])
def test_an_arrival_is_a_finite_number(time: Any) -> None:
    _refused("arrival_time", "r", [1], arrival_time=time)


@pytest.mark.parametrize("value", ["json", 1, [], object()], ids=["text", "number", "list", "object"])
def test_a_grammar_can_be_asked(value: Any) -> None:
    _refused("structured_output", "r", [1], structured_output=value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", "0"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", None),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", -0.1),
        ("min_p", 1.01),
        ("presence_penalty", 2.1),
        ("presence_penalty", float("inf")),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 10**400),
        ("seed", 1.0),
        ("seed", True),
        ("seed", 2**63),
        ("logprobs", -2),
        ("logprobs", 1.5),
        ("logit_bias", [1]),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"5": 1.0}),
    ],
)
def test_how_tokens_are_drawn_can_work(field: str, value: Any) -> None:
    _refused(field, "r", [1], SamplingParams(**{field: value}))


def test_a_bias_is_named_by_its_token() -> None:
    _refused("logit_bias[5]", "r", [1], SamplingParams(logit_bias={5: float("nan")}))


def test_drawing_at_the_edges_of_what_can_work() -> None:
    Request(
        "r",
        [1],
        SamplingParams(
            temperature=0,
            top_p=1,
            top_k=-1,
            min_p=1,
            presence_penalty=-2,
            frequency_penalty=2,
            repetition_penalty=0.1,
            seed=-1,
            logprobs=-1,
            logit_bias={0: -100},
        ),
    )


@pytest.mark.parametrize("value", ["x", 1, [1], {}])
def test_repetition_detection_is_what_it_is_called(value: Any) -> None:
    _refused("repetition_detection", "r", [1], SamplingParams(repetition_detection=value))


@pytest.mark.parametrize("value", [np.array([1, 2]), "x", -2])
def test_prompt_logprobs_are_a_count(value: Any) -> None:
    _refused("prompt_logprobs", "r", [1], SamplingParams(prompt_logprobs=value, skip_reading_prefix_cache=True))


@pytest.mark.parametrize("value", [1, 1.5, "ab", [0.5, 1], object()])
def test_is_embed_is_flags(value: Any) -> None:
    item = MultiModalItem(mm_hash="h", offset=0, length=2, is_embed=value)
    _refused("mm_features.is_embed", "r", [1, 2, 3], mm_features=[item])


def test_flags_are_true_or_false() -> None:
    _refused("resumable", "r", [1], resumable=np.array([1, 2]))
    item = MultiModalItem(mm_hash="h", offset=0, length=2, cross=np.array([1, 2]))  # type: ignore[arg-type]
    _refused("mm_features.cross", "r", [1, 2, 3], mm_features=[item])


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    """One of them as an item's offset ended every step that hashed its blocks."""
    engine = ToyEngine(num_gpu_blocks=20, max_num_encoder_input_tokens=16, encoder_cache_size=16)
    hashes = []
    kinds: list[tuple[str, Any]] = [("a", int), ("b", np.int64)]
    for rid, number in kinds:
        item = MultiModalItem(mm_hash="h", offset=number(2), length=number(3))
        request = make_request(rid, list(range(40)), mm_features=[item])
        engine.scheduler.add_request(request)
        engine.step()
        hashes.append(request.block_hashes[:2])
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2


def _small(offset: int, length: int) -> dict[str, Any]:
    return {"offset": np.uint8(offset), "length": np.uint8(length)}


def test_texts_and_numbers_of_numpy_are_taken_as_pythons_own() -> None:
    """A column of NumPy or pandas brings them; they enter hashes and traces."""
    toy = ToyEngine()
    flags: Any = (np.bool_(True), np.bool_(False))
    text, item = np.str_("t"), MultiModalItem(mm_hash=np.str_("h"), **_small(0, 2), is_embed=flags)
    toy.add(np.str_("r"), 9, max_tokens=1, lora_name=text, cache_salt=text, job_id=text, this_func_call=text)
    toy.drain()
    request = toy.requests["r"]
    kept = (request.request_id, request.lora_name, request.cache_salt, request.job_id, request.this_func_call)
    assert [type(each) for each in (*kept, item.mm_hash)] == [str] * 6
    assert [type(each) for each in (item.offset, item.length, item.num_embeds)] == [int] * 3


def test_a_picture_of_small_numbers_does_not_wrap() -> None:
    item = MultiModalItem(mm_hash="h", **_small(250, 10))
    assert item.end == 260
    assert "within the prompt" in _refused("mm_features", "r", [1] * 20, mm_features=[item]).fix


@pytest.mark.parametrize("priority", [2**63, -(2**63), 10**5000], ids=["above", "below", "far above"])
def test_priorities_have_64_bits(priority: int) -> None:
    str(_refused("priority", "r", [1], priority=priority))
