"""What one step must be able to hold: requests that vLLM 0.33 accepts and never goes on with are refused."""

from __future__ import annotations

import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.params import MultiModalItem
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError, RequestError

METHODS = (SpeculativeMethod.NGRAM, SpeculativeMethod.EAGLE, SpeculativeMethod.DRAFT_MODEL)


def _serve(scheduler: Scheduler, drafts: int = 0) -> None:
    """Until no request is left; no draft is right."""
    for _ in range(80):
        if not scheduler.has_requests():
            return
        output = scheduler.schedule()
        chunk = output.is_prefill_chunk
        sampled = [[] if chunk is not None and chunk[row] else [1] for row in range(len(output.req_ids))]
        scheduler.update_from_output(output, ModelOutput.from_lists(sampled))
        if drafts:
            scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[2] * drafts for _ in sampled]))
    raise AssertionError("it waits for ever")


def _speculating(
    version: str, method: SpeculativeMethod, *, budget: int = 64, blocks: int = 100, size: int = 16, drafts: int = 4
) -> Scheduler:
    return Scheduler(
        SchedulerConfig(
            max_num_seqs=2, max_num_batched_tokens=budget, max_model_len=64, profile=decision_profile(version)
        ),
        CacheConfig(num_gpu_blocks=blocks, block_size=size),
        speculative_config=SpeculativeConfig(num_speculative_tokens=drafts, method=method),
    )


def _request(name: str, length: int, max_tokens: int = 1) -> Request:
    return Request(name, list(range(length)), SamplingParams(max_tokens=max_tokens, ignore_eos=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", range(1, 8))
@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_a_step_holds_a_token_with_its_drafts_or_the_engine_is_not_made(
    version: str, budget: int, method: SpeculativeMethod
) -> None:
    """The second request finds all of its prompt but one token."""
    least = 5 + (method is SpeculativeMethod.DRAFT_MODEL) if version == "0.33" else 1
    if budget < least:
        with pytest.raises(ConfigError, match=rf"max_num_batched_tokens.*{least} tokens in one step"):
            _speculating(version, method, budget=budget)
        return
    scheduler = _speculating(version, method, budget=budget)
    for name in ("a", "b"):
        scheduler.add_request(_request(name, 17))
        _serve(scheduler, drafts=4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_what_is_accepted_finds_room_for_its_placeholder_drafts(version: str, method: SpeculativeMethod) -> None:
    """Blocks shorter than a token with its drafts, and a pool that hardly holds the request."""
    refused = 0
    for size in (1, 2, 4):
        for blocks in range(5, 20):
            scheduler = _speculating(version, method, blocks=blocks, size=size)
            for name, length, output in (("a", 8, 1), ("b", 9, 1), ("c", 8, 3), ("d", 9, 5)):
                try:
                    scheduler.add_request(_request(name, length, output))
                except RequestError as error:
                    refused += "placeholder drafts" in str(error)
                    continue
                _serve(scheduler, drafts=4)
    assert bool(refused) == (version == "0.33")


@pytest.mark.parametrize("is_eagle", [False, True])
@pytest.mark.parametrize("offset", [0, 50])
@pytest.mark.parametrize("threshold", [256, 575, 576, 577, 0])
@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_an_image_that_must_be_computed_whole_fits_a_slice_or_is_refused(
    version: str, threshold: int, offset: int, *, is_eagle: bool
) -> None:
    """Others are there as well, so that the threshold holds."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_batched_tokens=2048,
            max_model_len=1024,
            max_num_encoder_input_tokens=2048,
            disable_chunked_mm_input=True,
            long_prefill_token_threshold=threshold,
            profile=decision_profile(version),
        ),
        CacheConfig(num_gpu_blocks=400, block_size=16),
        speculative_config=SpeculativeConfig(num_speculative_tokens=2, method=METHODS[1]) if is_eagle else None,
    )
    stops_before = is_eagle and offset > 0
    needed = 576 + stops_before if version == "0.33" or stops_before else 0
    for name in "abc":
        item = MultiModalItem(mm_hash=name, offset=offset, length=576)
        request = Request(name, [1] * 700, SamplingParams(max_tokens=2), mm_features=[item])
        if 0 < threshold < needed:
            with pytest.raises(RequestError, match="long_prefill_token_threshold"):
                scheduler.add_request(request)
        else:
            scheduler.add_request(request)
    _serve(scheduler, drafts=2 if is_eagle else 0)
