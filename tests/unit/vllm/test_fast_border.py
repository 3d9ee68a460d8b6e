"""The border of FastScheduler, as far as it can be tried without vLLM: stand-ins have the fields that are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tokenyard.core.profiles import NEWEST
from tokenyard.core.request import Request
from tokenyard.errors import ConfigError
from tokenyard.vllm import versions
from tokenyard.vllm.fast.inputs import (
    FastGrammar,
    FastRequest,
    VllmHashes,
    answer_rows,
    sync_tokens,
    translated_answer,
    translated_drafts,
    translated_request,
)
from tokenyard.vllm.fast.settings import EncoderRoom, check_options, translated_settings

SIZE = 4


class TheirRequest:
    """What FastScheduler reads of a vLLM request."""

    def __init__(self, prompt: list[int], **fields: Any) -> None:
        self.request_id = "a"
        self.prompt_token_ids = list(prompt)
        self._all_token_ids = list(prompt)
        self._output_token_ids: list[int] = []
        self.block_hashes: list[bytes] = []
        self.num_prompt_tokens = len(prompt)
        self.num_hashed = 0
        given: dict[str, Any] = {
            "sampling_params": SimpleNamespace(
                extra_args=None,
                min_tokens=0,
                eos_token_id=7,
                stop_token_ids=[9],
                repetition_detection=None,
                structured_outputs=None,
            ),
            "pooling_params": None,
            "lora_request": None,
            "mm_features": [],
            "skip_reading_prefix_cache": False,
            "arrival_time": 1.0,
            "priority": 0,
            "resumable": False,
            "client_index": 3,
            "max_tokens": 20,
        }
        for name, value in {**given, **fields}.items():
            setattr(self, name, value)
        self.update_block_hashes()

    @property
    def num_tokens(self) -> int:
        return len(self._all_token_ids)

    def append_output_token_ids(self, tokens: list[int]) -> None:
        self._all_token_ids += tokens
        self._output_token_ids += tokens
        self.update_block_hashes()

    def update_block_hashes(self) -> None:
        full = len(self._all_token_ids) // SIZE
        for block in range(len(self.block_hashes), full):
            self.num_hashed += 1
            self.block_hashes.append(bytes(self._all_token_ids[: (block + 1) * SIZE]))


def engine(**parts: Any) -> SimpleNamespace:
    """A ``VllmConfig`` of a text model."""
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=8,
            max_num_batched_tokens=128,
            max_num_scheduled_tokens=None,
            policy="fcfs",
            enable_chunked_prefill=True,
            long_prefill_token_threshold=0,
            scheduler_reserve_full_isl=True,
            async_scheduling=False,
            disable_chunked_mm_input=False,
            watermark=0.25,
        ),
        cache_config=SimpleNamespace(block_size=16, enable_prefix_caching=True, mamba_cache_mode="none"),
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1, decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
        model_config=SimpleNamespace(
            max_model_len=256, runner_type="generate", is_encoder_decoder=False, model="m", is_multimodal_model=False
        ),
        observability_config=SimpleNamespace(kv_cache_metrics=False, enable_mfu_metrics=False),
        kv_transfer_config=None,
        kv_events_config=None,
        ec_transfer_config=None,
        lora_config=None,
        speculative_config=None,
        use_v2_model_runner=False,
    )
    for name, fields in parts.items():
        part = getattr(config, name)
        if isinstance(fields, dict) and part is not None:
            vars(part).update(fields)
        else:
            setattr(config, name, fields)
    return config


class FullAttentionSpec(SimpleNamespace):
    """vLLM's spec is known by the name of its class."""


class CircularBufferSpec(SimpleNamespace):
    """One that is not served."""


def cache(spec: Any = None) -> SimpleNamespace:
    """A ``KVCacheConfig``."""
    group = SimpleNamespace(kv_cache_spec=spec or FullAttentionSpec(block_size=16), is_eagle_group=False)
    return SimpleNamespace(
        num_blocks=100, kv_cache_groups=[group], needs_kv_cache_zeroing=False, has_mamba_layers=False
    )


@pytest.fixture(autouse=True)
def _vllm_033(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda: "0.33.0")


# ---- settings


def test_settings_are_taken_over() -> None:
    made = translated_settings(engine(), cache(), EncoderRoom(), 16)
    assert made.scheduler.max_num_seqs == 8
    assert made.scheduler.profile.vllm_version == "0.33"
    assert made.cache.num_gpu_blocks == 100
    assert made.cache.watermark == pytest.approx(0.25)
    assert made.speculative is None


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"kv_transfer_config": "NixlConnector"}, "--kv-transfer-config"),
        ({"kv_events_config": SimpleNamespace(enable_kv_cache_events=True)}, "--kv-events-config"),
        ({"parallel_config": {"pipeline_parallel_size": 2}}, "--pipeline-parallel-size"),
        ({"model_config": {"is_encoder_decoder": True}}, "encoder-decoder"),
        ({"model_config": {"runner_type": "pooling"}}, "--runner"),
        ({"observability_config": {"kv_cache_metrics": True}}, "--kv-cache-metrics"),
        ({"scheduler_config": {"prefill_schedule_interval": 3}}, "--prefill-schedule-interval"),
        ({"scheduler_config": {"max_num_active_seqs": 4}}, "--max-num-active-seqs"),
        ({"use_v2_model_runner": True, "model_config": {"is_multimodal_model": True}}, "multi-modal"),
    ],
)
def test_what_is_not_served_is_refused_by_its_option(parts: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_options(engine(**parts), cache())
    assert named in str(refused.value)


def test_events_that_are_configured_but_off_are_no_reason() -> None:
    check_options(engine(kv_events_config=SimpleNamespace(enable_kv_cache_events=False)), cache())


def test_layers_with_rules_of_their_own_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="CircularBufferSpec"):
        translated_settings(engine(), cache(CircularBufferSpec(block_size=16)), EncoderRoom(), 16)


def test_hashes_of_another_size_are_refused() -> None:
    with pytest.raises(ConfigError, match="hash_block_size = 8"):
        translated_settings(engine(), cache(), EncoderRoom(), 8)


def test_drafts_of_an_unknown_kind_are_refused() -> None:
    theirs = SimpleNamespace(
        num_speculative_tokens=3, method="suffix", uses_draft_model=lambda: False, use_eagle=lambda: False
    )
    with pytest.raises(ConfigError, match="'suffix'"):
        translated_settings(engine(speculative_config=theirs), cache(), EncoderRoom(), 16)


# ---- requests and their hashes


def test_a_request_keeps_what_decides() -> None:
    theirs = TheirRequest([1, 2, 3], priority=2, lora_request=SimpleNamespace(lora_int_id=5))
    ours = translated_request(theirs, None)
    assert (ours.priority, ours.client_index, ours.lora_name, ours.max_tokens) == (2, 3, "5", 20)
    assert ours.sampling_params.stop_token_ids == (9,)
    assert ours.prompt_token_ids == [1, 2, 3]
    assert ours.theirs is theirs


def test_the_prompt_is_hashed_once_by_vllm() -> None:
    theirs = TheirRequest(list(range(10)))
    ours = translated_request(theirs, None)
    assert VllmHashes(SIZE, 0).extend(ours) is theirs.block_hashes
    assert theirs.num_hashed == 2


def test_a_full_block_of_output_is_hashed_with_what_went_before() -> None:
    theirs = TheirRequest(list(range(10)))
    ours = translated_request(theirs, None)
    for token in (50, 51):
        ours.append_token(token)
    assert VllmHashes(SIZE, 0).extend(ours)[2] == bytes([*range(10), 50, 51])
    assert theirs._output_token_ids == [50, 51]  # noqa: SLF001 - vLLM's name


def test_tokens_that_a_grammar_has_asked_for_are_not_taken_twice() -> None:
    theirs = TheirRequest(list(range(10)))
    ours = translated_request(theirs, None)
    for token in (50, 51):
        ours.append_token(token)
    sync_tokens(ours, 12)
    VllmHashes(SIZE, 0).extend(ours)
    assert theirs._all_token_ids == [*range(10), 50, 51]  # noqa: SLF001 - vLLM's name
    assert len(ours.block_hashes) == 3


def test_hashes_of_dropped_tokens_are_forgotten() -> None:
    theirs = TheirRequest(list(range(12)))
    ours = translated_request(theirs, None)
    VllmHashes(SIZE, 0).forget_beyond(ours, 9)
    assert len(ours.block_hashes) == 2
    assert len(theirs._all_token_ids) == 9  # noqa: SLF001 - vLLM's name


# ---- answers


def answer(ids: list[str], tokens: list[list[int]], **more: Any) -> SimpleNamespace:
    """A ``ModelRunnerOutput``."""
    rows = {request_id: row for row, request_id in enumerate(ids)}
    fields = {"req_ids": ids, "req_id_to_index": rows, "sampled_token_ids": tokens, "pooler_output": None}
    return SimpleNamespace(**{**fields, **more})


def test_workers_answer_in_an_order_of_their_own() -> None:
    given = answer(["b", "a"], [[2], [1]])
    rows = answer_rows(("a", "b"), given)
    assert rows == [1, 0]
    assert translated_answer(("a", "b"), given, rows).sampled[:, 0].tolist() == [1, 2]


def test_the_same_order_needs_no_second_list() -> None:
    assert answer_rows(("a", "b"), answer(["a", "b"], [[1], [2]])) is None


def test_chunks_and_accepted_drafts_have_other_lengths() -> None:
    made = translated_answer(("a", "b", "c"), answer(["a", "b", "c"], [[], [4, 5], [6]]), None)
    assert made.num_sampled.tolist() == [0, 2, 1]
    assert made.sampled[1].tolist() == [4, 5]


def test_an_empty_step_has_an_empty_answer() -> None:
    assert len(translated_answer((), answer([], []), None).num_sampled) == 0


def test_results_of_poolers_follow_their_requests() -> None:
    given = answer(["b", "a"], [], pooler_output=["of b", None])
    made = translated_answer(("a", "b"), given, answer_rows(("a", "b"), given))
    assert made.extras is not None
    assert made.extras.pooler_output == [None, "of b"]


def test_drafts_of_others_are_none() -> None:
    made = translated_drafts(("a", "b"), SimpleNamespace(req_ids=["b"], draft_token_ids=[[3, 4]]))
    assert made.counts.tolist() == [0, 2]


# ---- grammars


def test_a_grammar_that_does_not_compile_is_told() -> None:
    errors: dict[str, Exception] = {}
    theirs = TheirRequest([1], structured_output_request=SimpleNamespace(grammar=ValueError("no such rule")))
    assert not FastGrammar(SimpleNamespace(), theirs, errors).is_ready
    assert str(errors["a"]) == "no such rule"


def test_a_grammar_sees_the_tokens_so_far() -> None:
    seen: list[tuple[int, list[int]]] = []

    def accept(request: TheirRequest, tokens: list[int]) -> bool:
        seen.append((request.num_tokens, tokens))
        return True

    manager = SimpleNamespace(accept_tokens=accept)
    theirs = TheirRequest([1, 2], structured_output_request=SimpleNamespace(grammar=object()))
    grammar = FastGrammar(manager, theirs, {})
    grammar.ours = ours = translated_request(theirs, grammar)
    ours.append_token(8)
    assert grammar.accept_tokens([8])
    assert seen == [(3, [8])]


def test_only_requests_of_the_border_are_hashed_so() -> None:
    assert issubclass(FastRequest, Request)


# ---- versions


def test_a_version_that_was_never_compared_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(versions.DECIDES_AS, raising=False)
    monkeypatch.setattr(versions, "installed_version", lambda: "9.1.0")
    with (
        pytest.warns(versions.UntestedVersionWarning),
        pytest.raises(ConfigError, match=r"vllm = '9\.1\.0'") as refused,
    ):
        versions.profile_name()
    assert f"{versions.DECIDES_AS}={NEWEST.vllm_version}" in str(refused.value)


def test_the_profile_of_a_version_that_was_never_compared_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "check_version", lambda: "9.1.0")
    monkeypatch.setenv(versions.DECIDES_AS, "0.32")
    with pytest.warns(versions.NotComparedWarning, match=r"decides as vLLM 0\.32 and this is 9\.1\.0"):
        assert versions.profile_name() == "0.32"
    monkeypatch.setenv(versions.DECIDES_AS, "0.99")
    with pytest.raises(ConfigError, match=versions.DECIDES_AS):
        versions.profile_name()


def test_a_patch_release_is_served_by_its_minor_versions_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "check_version", lambda: "0.27.9")
    assert versions.profile_name() == "0.27"
