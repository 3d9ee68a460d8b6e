"""Where versions of vLLM decide differently: one switch per difference, and a profile per version.

A profile is a set of switches. Nothing that decides asks for a version: it is made with the part that its switch
chooses. Which version turned which switch stands once, in :mod:`tokenyard.core.releases`; ``docs/parity.md`` has a
line for each.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import lru_cache

from tokenyard.core.releases import RELEASES, VERSIONS
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionProfile:
    """The switches; a default is what the oldest version does. ``dataclasses.replace`` turns single ones."""

    vllm_version: str = VERSIONS[0]
    """Name of the profile, for headers and messages."""

    # ---- blocks and hits

    unhashed_blocks_first: bool = False
    """Freed blocks without cached content go to the front of the free queue: they are used again next."""
    uncached_blocks_first: bool = False
    """So do all freed blocks where prefix caching is off."""
    windows_free_unhashed_first: bool = False
    """Blocks without cached content, of what sliding windows give back and windows and states leave, go to the
    front of the free queue."""
    lookups_count_at_admission: bool = False
    """Statistics count a prefix lookup when its request is admitted, not whenever it is made."""

    prefix_cache_retention_interval: int | None = None
    """Which blocks of a sliding window stay findable: None, all that a hit can use; 0, the window before the last
    position that a repeated prompt can resume at, and before one where prompts part; n, the window before every n-th
    token as well."""
    windows_free_processed_only: bool = False
    """What a window has left behind is freed when no step in flight reads it any more, not when it is scheduled; a
    request may then hold the tokens of all steps in flight."""
    output_blocks_hash_last_image: bool = True
    """A block that output has filled and that several images overlap is hashed with the last one only."""
    eagle_publishes_block_beyond: bool = False
    """Beside other groups an EAGLE head, which drops the last matched block, finds the one beyond the last position
    that a hit can end at; of windows, those one block later are kept."""
    eagle_caches_prompt_tail: bool = False
    """With such a head a block of several hashes counts as cached if a prompt's last hash ends within it."""
    eagle_keeps_block_below: bool = False
    """With a retention interval and an EAGLE head repeated and longer prompts resume a block lower."""
    eagle_peeks_all_hashed: bool = False
    """The block that is dropped may lie beyond the longest hit that is asked for."""
    eagle_peeks_beyond_states: bool = True
    """A state beyond the candidate is looked for where no group is marked as the head's, though no state is dropped."""
    hashes_look_ahead: bool = False
    """With an EAGLE head the hash of a block covers the token behind it, and no matched block is dropped."""

    # ---- layers with a state

    mamba_mode_all: bool = True
    """Mamba layers can keep the state after every block; else only mode ``align`` has prefix hits."""
    admissions_end_at_junctions: bool = False
    """With Mamba layers in mode ``align`` a request is first computed up to where prompts part."""
    chunks_end_where_blocks_do: bool = False
    """In that mode every chunk ends at a position where a block does, or where prompts part, up to the last whole block
    of a prompt. Else each has whole blocks of tokens, wherever it begins."""
    chunks_end_at_states: bool = False
    """In that mode every chunk of a prompt but the last ends so, also within its last block."""
    states_cut_before_images: bool = False
    """What encoder inputs allow is asked after where chunks end, not before."""
    last_state_leaves_token: bool = False
    """The last state of a prompt that is kept leaves a token to compute."""
    states_free_across_gaps: bool = False
    """States behind the positions that a chunk jumped over are given back as well."""
    kept_states_wait_again: bool = False
    """The last state of a prompt counts as written in every step in which it is still held, so that others that hit it
    wait for the next."""
    zeroes_all_attention: bool = False
    """Beside Mamba layers workers zero the new blocks of all attention layers, not only of full attention."""

    # ---- who runs

    lone_request_prefills_whole: bool = False
    """``long_prefill_token_threshold`` does not hold for a request that is alone in the engine."""
    running_index_drifts: bool = True
    """Where a preemption makes the running pass lose its place, leave out the next running request (issue 49097)."""
    # It happens when the victim got no tokens in this step and stands before the request it makes room for: vLLM's
    # index into the running list slips.
    self_preemption_ends_pass: bool = True
    """A request that has preempted itself ends the running pass, even if others come behind it (PRIORITY)."""
    adapters_of_all_running: bool = False
    """Adapters of requests that run but got no tokens in this step count against ``max_loras`` as well; else more
    adapters than that can be among those that run."""
    requests_with_blocks_first: bool = False
    """Waiting requests that hold blocks have a queue of their own, which is tried first; any other that was skipped
    keeps its place. Else all that were skipped, or wait for something other than their turn, have that queue."""
    pauses_spare_blocks: bool = False
    """While new requests are paused, waiting ones that hold blocks are tried, and count as unfinished."""
    paused_sessions_hold_slots: bool = False
    """Sessions that wait for input count against the most requests that may run: workers still keep their rows."""
    prefill_ranks_spread_kv: bool = True
    """With prefill context parallelism a block holds as many times its tokens."""
    encoder_refusal_ends_pass: bool = True
    """A waiting request that can have no token because of its encoder inputs ends the admission pass; else the next
    one is tried."""

    # ---- encoder inputs

    encoder_refers_to_items: bool = False
    """A request refers to items in the encoder cache that it was given, not to all contents that it shows."""
    encoder_waits_for_tokens: bool = False
    """It lets go of an item when the tokens behind it are surely computed, not when they are scheduled."""
    encoder_lags_behind_head: bool = False
    """With an EAGLE head it lets go of an item one token later."""
    encoder_counts_head: bool = False
    """An item is computed as well where only an EAGLE head would read its first embedding in the step."""
    encoder_tells_lost_only: bool = False
    """Encoder outputs that were evicted and computed again since are not reported as freed: workers keep them."""
    encoder_holds_repeated: bool = False
    """A request that shows an image twice keeps it until it has passed both."""
    encoder_takes_repeated: bool = False
    """Where an image stands twice in a step the request refers to both; whether a step would cut it is asked first."""
    encoder_runs_up_to_items: bool = False
    """A request is computed right up to an item that cannot be had, whatever an EAGLE head would read there; an item
    that must be computed whole is, also where a step begins with it."""

    # ---- drafts

    admission_reserves_lookahead: bool = False
    """A request gets its lookahead slots when it is admitted, not one step later."""
    drafts_take_input_slots: bool = False
    """Each scheduled request takes the slots that its drafter adds to the batch out of the step's budget."""
    admission_pads_decodes: bool = False
    """A request with one token to compute is admitted with as many placeholder drafts as others have drafts, or not."""
    idle_admission_pads: bool = False
    """It gets placeholder drafts also where nothing runs, if some of it is computed already."""
    padding_leaves_room: bool = False
    """A request whose placeholders and the token after them exceed ``max_model_len`` gets none; else one whose
    placeholders do ends the admission pass."""
    accepted_drafts_publish_at_once: bool = False
    """Blocks that accepted drafts have filled become findable with the output, not when room is next made."""
    stops_take_back_rest: bool = False
    """Tokens that the model returned beyond a stop do not count as computed."""

    # ---- stages of a pipeline

    decodes_go_round_stages: bool = False
    """With async scheduling a pipeline of n stages has n + 1 steps in flight, and a request decodes in every n-th; else
    n steps, each of which has all that decode."""

    # ---- outputs in flight

    stale_outputs_change_nothing: bool = False
    """Outputs in flight of a preempted request are delivered, but change no counter, and have to come before it is
    admitted again; those that a reset made worthless release no image either."""
    resets_drop_sync_output: bool = False
    """Without async scheduling too, a reset between a step and its output drops what comes for those it preempts."""

    # ---- ends

    min_tokens_bar_stops: bool = True
    """Below ``min_tokens`` nothing ends a request, not even its length; else only repetition does not."""

    # ---- the engine's loop and what a step reports

    fills_queue_first: bool = False
    """With several steps in flight the engine takes an output in only when no further step can be scheduled."""
    resets_count_as_preemptions: bool = False
    """A step also names the requests that a cache reset has preempted since the step before."""
    reports_common_prefix: bool = True
    """Steps can say how many leading blocks all requests share; vLLM without cascade attention never does."""

    def __repr__(self) -> str:
        """By its name, with the switches that were turned."""
        named = PROFILES.get(self.vllm_version)
        if self == named:
            return f"decision_profile({self.vllm_version!r})"
        usual = DecisionProfile() if named is None else named
        turned = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(usual, field.name)
        ]
        of = f"decision_profile({usual.vllm_version!r})"
        return f"replace({of}, {', '.join(turned)})"


def _derived() -> dict[str, DecisionProfile]:
    """A profile a version: the one before it, with what this one turned."""
    made: dict[str, DecisionProfile] = {}
    profile = DecisionProfile()
    for release in RELEASES:
        profile = made[release.version] = replace(profile, vllm_version=release.version, **release.switches)
    return made


PROFILES = _derived()
"""By the version of vLLM whose decisions they reproduce, the oldest first."""

OLDEST, *_, NEWEST = PROFILES.values()
"""The oldest; and what decides where no version is named."""


def turned_between(older: str, newer: str) -> dict[str, str]:
    """Switches that two versions have differently, each with the last version between them that turned it."""
    one, other = decision_profile(older), decision_profile(newer)
    low, high = sorted((VERSIONS.index(older), VERSIONS.index(newer)))
    turned = {switch: each.version for each in RELEASES[low + 1 : high + 1] for switch in each.switches}
    return {switch: since for switch, since in turned.items() if getattr(one, switch) != getattr(other, switch)}


@lru_cache(maxsize=64)
def nearest_version(vllm_version: str) -> str:
    """Name of the profile of this version of vLLM, or of the last before it; the newest for what is no version."""
    found = re.match(r"(\d+)\.(\d+)", vllm_version)
    if found is None:
        return NEWEST.vllm_version
    version = tuple(map(int, found.groups()))
    oldest, *later = PROFILES
    begun = [name for name in later if tuple(map(int, name.split("."))) <= version]
    return begun[-1] if begun else oldest


def decision_profile(vllm_version: str) -> DecisionProfile:
    """The profile of that name; ConfigError if there is none."""
    profile = PROFILES.get(vllm_version) if isinstance(vllm_version, str) else None
    if profile is None:
        raise ConfigError("vllm_version", vllm_version, f"use one of: {', '.join(PROFILES)}")
    return profile


# ---------------------------------------------------------------------------------------------------------------------
# What versions of vLLM differ in beside decisions: defaults, checks at start, the plan of the KV cache, balancing.
#
# Code asks for a fact by name (``release_facts(version).hybrid_models_cache_prefixes``), never for a version. Which
# version changed which fact is stated in :mod:`tokenyard.core.releases`. What decides is a switch of
# :mod:`tokenyard.core.profiles`; which flags there are is recorded, and ``tokenyard.vllm.versions`` looks what an
# installed vLLM has.


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


def _derived_facts() -> dict[str, ReleaseFacts]:
    made: dict[str, ReleaseFacts] = {}
    facts = ReleaseFacts()
    for release in RELEASES:
        facts = made[release.version] = replace(facts, **release.facts)
    return made


_FACTS = _derived_facts()


def release_facts(version: str) -> ReleaseFacts:
    """Facts of a version of vLLM, or of the last before it that is known."""
    return _FACTS[nearest_version(version)]


def versions_with(fact: str) -> tuple[str, ...]:
    """The versions that have a fact, by the name of its field."""
    return tuple(version for version, facts in _FACTS.items() if getattr(facts, fact))
