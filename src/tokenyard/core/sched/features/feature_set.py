"""The optional parts of a scheduler, made once from its configuration; None where a feature is off."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.sched.candidate import FeatureHook, StepHooks
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.features.ahead import DecodeRound, LateOutputs, Placeholders, ResetOutputs, Speculation
from tokenyard.core.sched.features.encoder import CrossEncoderInputs, EncoderInputs
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.per_slot import BlockAlignment, JunctionAlignment, RoutedExperts, StateAlignment
from tokenyard.core.sched.features.transfers import Transfers
from tokenyard.core.sched.in_flight import StepsInFlight
from tokenyard.core.sched.outputs import RequestEvents
from tokenyard.core.sched.request_checks import PaddedAdmission, check_settings, has_cross_attention, splits_at_blocks
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Each adds a limit or a state; none is asked for by name in the middle of a decision."""

    speculation: Speculation | None = None
    """Draft tokens."""
    placeholders: Placeholders | None = None
    """Async scheduling."""
    decode_round: DecodeRound | None = None
    """Stages of a pipeline, with async scheduling."""
    reset_outputs: ResetOutputs | None = None
    """Resets while a step runs, without async scheduling."""
    late_outputs: LateOutputs | None = None
    """Outputs of requests preempted while a step runs."""
    encoder: EncoderInputs | None = None
    """Multi-modal inputs."""
    transfers: Transfers | None = None
    """A KV connector."""
    events: RequestEvents | None = None
    """Events of single requests."""
    routing: RoutedExperts | None = None
    """Routed experts."""
    alignment: BlockAlignment | None = None
    """Mamba states at block ends."""
    padded_admission: PaddedAdmission | None = None
    """None where no request is admitted with placeholder drafts while the engine is idle."""
    num_draft_slots: int = 0
    """Input slots that a request takes beside its tokens, for its drafter."""
    num_lookahead_tokens: int = 0
    """KV slots kept beyond the scheduled tokens."""

    def hooks_with(self, further: Sequence[FeatureHook]) -> StepHooks:
        """Their parts in the life of requests and steps: metadata first, then what counts tokens, then events, and last
        the ``further`` ones of plug-ins.
        """
        ordered = (
            self.transfers,
            self.placeholders,
            self.decode_round,
            self.reset_outputs,
            self.late_outputs,
            self.routing,
            self.events,
        )
        return StepHooks([*[each for each in ordered if each is not None], *further])

    @classmethod
    def of(
        cls,
        config: SchedulerConfig,
        spec: SpeculativeConfig | None,
        kv: KVCacheManager,
        connector: KVConnector | None,
        in_flight: StepsInFlight,
        grammars: GrammarGate,
        *,
        log_stats: bool = False,
    ) -> Features:
        """The features that the configuration turns on."""
        check_settings(config, kv.config, spec, has_connector=connector is not None)
        num_drafts = spec.num_speculative_tokens if spec else 0
        speculation = Speculation(num_drafts, grammars) if spec else None
        profile, is_async = config.profile, config.async_scheduling
        late = profile.stale_outputs_change_nothing
        use_eagle = spec is not None and spec.use_eagle
        splits = splits_at_blocks(kv.config)
        encoder: EncoderInputs | None = None
        if has_cross_attention(kv.config):
            encoder = CrossEncoderInputs(config)
        elif config.max_num_encoder_input_tokens:
            unit = kv.config.block_size if splits else 1
            encoder = EncoderInputs(config, shift=int(use_eagle), unit=unit)
        return cls(
            speculation=speculation,
            placeholders=Placeholders(speculation, end_with_preemption=late) if is_async else None,
            decode_round=DecodeRound(config.steps_per_decode) if config.steps_per_decode > 1 else None,
            reset_outputs=ResetOutputs() if profile.resets_drop_sync_output and not is_async else None,
            late_outputs=LateOutputs(in_flight) if late and is_async else None,
            encoder=encoder,
            transfers=Transfers(connector, kv) if connector is not None else None,
            events=RequestEvents() if log_stats else None,
            routing=RoutedExperts(kv.config, kv) if config.enable_return_routed_experts else None,
            alignment=_alignment(config, kv, use_eagle=use_eagle) if splits else None,
            padded_admission=_padded_admission(config, kv.config, num_drafts, has_connector=connector is not None),
            num_draft_slots=spec.num_draft_slots if spec and profile.drafts_take_input_slots else 0,
            num_lookahead_tokens=spec.num_lookahead_tokens if spec else 0,
        )


def _padded_admission(
    config: SchedulerConfig, cache: CacheConfig, num_drafts: int, *, has_connector: bool
) -> PaddedAdmission | None:
    has_hits = cache.enable_prefix_caching or has_connector
    if not (num_drafts and has_hits and config.profile.idle_admission_pads):
        return None
    return PaddedAdmission(1 + num_drafts, 1 if has_connector else lcm(*cache.group_block_sizes))


def _alignment(config: SchedulerConfig, kv: KVCacheManager, *, use_eagle: bool) -> BlockAlignment:
    drops = use_eagle and not kv.hashes_look_ahead
    if config.profile.chunks_end_where_blocks_do:
        return StateAlignment(kv.config.block_size, config, drops_last_hit=drops)
    if config.profile.admissions_end_at_junctions:
        return JunctionAlignment(kv, drops_last_hit=drops)
    return BlockAlignment(kv.config.block_size, drops_last_hit=drops)
