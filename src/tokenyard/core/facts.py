"""What versions of vLLM differ in beside decisions: defaults, checks at start, the plan of the KV cache, balancing.

Code asks for a fact by name (``release_facts(version).hybrid_models_cache_prefixes``), never for a version. Which
version changed which fact is stated in :mod:`tokenyard.core.releases`. What decides is a switch of
:mod:`tokenyard.core.profiles`; which flags there are is recorded, and ``tokenyard.vllm.versions`` looks what an
installed vLLM has.
"""

from __future__ import annotations

from dataclasses import replace

from tokenyard.core.profiles import nearest_version
from tokenyard.core.releases import RELEASES
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """A default is what the oldest version does."""

    # ---- defaults of vllm serve

    largest_budget_on_160_gib: bool = False
    """GPUs of 160 GiB and more have a larger default budget for a step."""
    hybrid_models_cache_prefixes: bool = False
    """Models that keep states cache prefixes unless a setting forbids it."""
    draft_models_schedule_ahead: bool = False
    """Async scheduling is the default beside a draft model."""
    all_drafts_schedule_ahead: bool = False
    """Async scheduling goes with every method of drafts and with pipelines, but in the older model runner, which a
    variable asks for."""
    ray_executor_can_be_older: bool = True
    """A variable asks for an executor on Ray that schedules nothing ahead."""
    yarn_counts_factor: bool = True
    """The length of a YaRN model is its original one times the factor; else the file is taken to count it in."""
    videos_have_own_bounds: bool = False
    """Bounds of pixels in ``--mm-processor-kwargs`` are those of images alone where videos have their own processor."""
    images_whole_if_any_come: bool = False
    """Images are computed whole only where some can come, as pixels or as embeddings."""

    # ---- checks at start

    drafts_need_room: bool = False
    """A step has to hold a token beside its drafts."""
    shared_images_need_spawn: bool = False
    """Images in shared memory go with workers that are spawned."""
    media_device_is_checked: bool = False
    """Images are read on the GPU of an engine that encodes alone, and of no other."""
    has_bitsandbytes: bool = True
    gpt_neox_takes_adapters: bool = False
    starcoder2_takes_adapters: bool = False
    kv_dtype_follows_model: bool = False
    """Keys and values of 16 bits have the model's own dtype."""
    looks_for_all_kv_scales: bool = True
    """Every checkpoint of compressed-tensors may bring scales of keys and values; else those that declare a dtype."""
    expert_blocks_shrink: bool = False
    """Blocks of quantised experts are made smaller to fit a slice."""
    cuts_expert_groups: bool = True
    """A slice of an expert of compressed-tensors may cut groups of integers that share a scale."""
    encoder_thresholds_are_checked: bool = False
    """``long_prefill_token_threshold`` may not exceed ``max_model_len``."""

    # ---- memory

    steps_in_flight_hold_windows: bool = False
    """The plan counts the tokens of all steps in flight to what a window keeps."""
    windows_plus_themselves: bool = False
    """Cohere's windows are one token longer than their number, as they were trained."""
    mamba_keeps_all_states: bool = True
    """With prefix caching the state after every block is kept, not that at the end of a step."""
    latent_pages_align: bool = False
    """Beside states the blocks of latent attention are multiples of 128 tokens."""
    mamba2_states_within_prefill: bool = False
    """Mamba 2's kernels can hand out states in the middle of a prefill, which take blocks of their own."""
    delta_states_within_prefill: bool = False
    """Layers of gated delta rules as well."""
    images_split_backends_on_blackwell: bool = False
    """Where images attend both ways, a Blackwell GPU takes another kernel for them than for text."""
    plan_reserves_null_block: bool = False
    """The block that is never handed out counts when it is seen whether a request fits."""
    graphs_to_1024_on_blackwell: bool = False
    graphs_of_decodes_with_drafts: bool = False
    """CUDA graphs are captured for steps of decodes of every number of requests, where each has drafts."""
    graphs_of_all_decodes: bool = False
    """And without drafts for the step in which as many requests as can run decode."""

    # ---- front ends

    front_ends_rotate: bool = False
    """The first engine that is looked at moves on with every request."""
    front_ends_count_own: bool = False
    """Balancing looks at a front end's own requests under way, and at the use of the KV cache."""
    dense_ranks_are_alone: bool = False
    """Ranks that do not share experts neither wait for each other nor report through the coordinator's waves."""

    streams_tell_transfers: bool = False
    """Chunks of streams tell ``kv_transfer_params`` and ``weight_versions``."""
    responses_tell_cuts: bool = False
    """The item of a response that was cut is incomplete, too, and the last event says so."""
    messages_name_errors: bool = False
    """Errors of ``/v1/messages`` have Anthropic's names, not those of the other paths."""
    scaling_tells_phase: bool = False
    """``/is_scaling_elastic_ep`` tells phase, epoch and error as well."""

    # ---- what its scheduler answers

    hits_count_at_last_lookup: bool = True
    """Statistics of a prompt are those of its last lookup before its first output, admitted then or not; else of its
    first admission."""
    resets_ask_no_connector: bool = False
    """Resetting the cache of a connector counts as done where there is no connector."""


def _derived() -> dict[str, ReleaseFacts]:
    made: dict[str, ReleaseFacts] = {}
    facts = ReleaseFacts()
    for release in RELEASES:
        facts = made[release.version] = replace(facts, **release.facts)
    return made


_FACTS = _derived()


def release_facts(version: str) -> ReleaseFacts:
    """Facts of a version of vLLM, or of the last before it that is known."""
    return _FACTS[nearest_version(version)]


def versions_with(fact: str) -> tuple[str, ...]:
    """The versions that have a fact, by the name of its field."""
    return tuple(version for version, facts in _FACTS.items() if getattr(facts, fact))
