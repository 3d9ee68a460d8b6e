"""What each version of vLLM changed: the one table of it, and the one module that names a version.

A version is the one before it with what its entry changes. :mod:`tokenyard.core.profiles` makes a decision profile of
its switches, :mod:`tokenyard.core.profiles` the facts that defaults, checks, memory and front ends go by. What was
recorded of it lies in files of its name: the flags of ``vllm serve`` in ``deploy/vllm_serve/recorded/0.33.json``, its
decisions in ``conformance/vectors/0.33``, plans of its KV cache in ``tests/unit/models/kv_plans_0.33.json.gz``.
A change stands at the first release whose sources have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A version, and what came with it."""

    version: str
    """Name of its profile."""
    tested: str
    """The release that was recorded and compared, and that our schedulers were run inside."""
    ran_models: bool = False
    """Whether they were run there with tiny models as well."""
    switches: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``DecisionProfile`` that it turned."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``ReleaseFacts`` that changed with it."""


RELEASES: tuple[Release, ...] = (
    Release(
        "0.22",
        tested="0.22.1",
    ),
    Release(
        "0.23",
        tested="0.23.0",
        switches={
            "admission_reserves_lookahead": True,
            "decodes_go_round_stages": True,
            "fills_queue_first": True,
            "encoder_refers_to_items": True,
            "windows_free_unhashed_first": True,
            "eagle_publishes_block_beyond": True,
        },
    ),
    Release(
        "0.24",
        tested="0.24.0",
        ran_models=True,
        switches={
            "windows_free_unhashed_first": False,
            "unhashed_blocks_first": True,
            "uncached_blocks_first": True,
            "encoder_waits_for_tokens": True,
            "encoder_lags_behind_head": True,
            "admissions_end_at_junctions": True,
        },
        facts={"cuts_expert_groups": False},
    ),
    Release(
        "0.25",
        tested="0.25.1",
        switches={
            "admission_pads_decodes": True,
            "paused_sessions_hold_slots": True,
            "resets_count_as_preemptions": True,
        },
        facts={
            "front_ends_rotate": True,
            "starcoder2_takes_adapters": True,
        },
    ),
    Release(
        "0.26",
        tested="0.26.0",
        switches={
            "windows_free_processed_only": True,
            "eagle_caches_prompt_tail": True,
            "prefill_ranks_spread_kv": False,
            "admissions_end_at_junctions": False,
            "chunks_end_where_blocks_do": True,
            "eagle_peeks_beyond_states": False,
        },
        facts={
            "steps_in_flight_hold_windows": True,
            "hits_count_at_last_lookup": False,
        },
    ),
    Release(
        "0.27",
        tested="0.27.1",
        ran_models=True,
        switches={
            "uncached_blocks_first": False,
            "lookups_count_at_admission": True,
            "stale_outputs_change_nothing": True,
            "resets_drop_sync_output": True,
            "chunks_end_at_states": True,
        },
        facts={
            "encoder_thresholds_are_checked": True,
            "latent_pages_align": True,
            "front_ends_count_own": True,
        },
    ),
    Release(
        "0.28",
        tested="0.28.0",
        switches={
            "uncached_blocks_first": True,
            "zeroes_all_attention": True,
            "running_index_drifts": False,
            "drafts_take_input_slots": True,
            "encoder_counts_head": True,
            "encoder_tells_lost_only": True,
            "states_cut_before_images": True,
        },
        facts={
            "hybrid_models_cache_prefixes": True,
            "largest_budget_on_160_gib": True,
            "draft_models_schedule_ahead": True,
            "drafts_need_room": True,
            "shared_images_need_spawn": True,
            "media_device_is_checked": True,
            "has_bitsandbytes": False,
            "graphs_to_1024_on_blackwell": True,
            "mamba_keeps_all_states": False,
        },
    ),
    Release(
        "0.29",
        tested="0.29.0",
        switches={
            "prefix_cache_retention_interval": 0,
            "padding_leaves_room": True,
            "min_tokens_bar_stops": False,
            "encoder_holds_repeated": True,
        },
        facts={
            "plan_reserves_null_block": True,
            "graphs_of_decodes_with_drafts": True,
            "windows_plus_themselves": True,
        },
    ),
    Release(
        "0.30",
        tested="0.30.0",
        ran_models=True,
        switches={
            "idle_admission_pads": True,
            "eagle_keeps_block_below": True,
            "states_free_across_gaps": True,
        },
        facts={
            "yarn_counts_factor": False,
            "images_split_backends_on_blackwell": True,
        },
    ),
    Release(
        "0.31",
        tested="0.31.0",
        switches={
            "output_blocks_hash_last_image": False,
            "lone_request_prefills_whole": True,
            "requests_with_blocks_first": True,
        },
        facts={
            "expert_blocks_shrink": True,
            "images_whole_if_any_come": True,
            "graphs_of_all_decodes": True,
            "resets_ask_no_connector": True,
        },
    ),
    Release(
        "0.32",
        tested="0.32.0",
        ran_models=True,
        switches={
            "eagle_peeks_all_hashed": True,
            "mamba_mode_all": False,
            "pauses_spare_blocks": True,
            "reports_common_prefix": False,
            "encoder_takes_repeated": True,
            "last_state_leaves_token": True,
            "kept_states_wait_again": True,
        },
        facts={
            "gpt_neox_takes_adapters": True,
            "mamba2_states_within_prefill": True,
        },
    ),
    Release(
        "0.33",
        tested="0.33.0",
        switches={
            "hashes_look_ahead": True,
            "kept_states_wait_again": False,
            "self_preemption_ends_pass": False,
            "adapters_of_all_running": True,
            "encoder_refusal_ends_pass": False,
            "encoder_lags_behind_head": False,
            "encoder_runs_up_to_items": True,
            "accepted_drafts_publish_at_once": True,
            "stops_take_back_rest": True,
        },
        facts={
            "all_drafts_schedule_ahead": True,
            "ray_executor_can_be_older": False,
            "kv_dtype_follows_model": True,
            "looks_for_all_kv_scales": False,
            "delta_states_within_prefill": True,
            "dense_ranks_are_alone": True,
            "videos_have_own_bounds": True,
            "streams_tell_transfers": True,
            "responses_tell_cuts": True,
            "messages_name_errors": True,
            "scaling_tells_phase": True,
        },
    ),
)
"""The oldest first."""

VERSIONS = tuple(each.version for each in RELEASES)
"""Their names."""


def version_that_brought(name: str) -> str:
    """The last version that turned a switch or changed a fact of that name."""
    return [each.version for each in RELEASES if name in each.switches or name in each.facts][-1]
