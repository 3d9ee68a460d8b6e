"""The optional parts of a scheduler, made once from its configuration; None where a feature is off."""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.config import SchedulerConfig, SpeculativeConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.connector import KVConnector
from tokenyard.sched.features.block_alignment import BlockAlignment
from tokenyard.sched.features.compatibility import check_settings, has_cross_attention, splits_at_blocks
from tokenyard.sched.features.encoder import CrossEncoderInputs, EncoderInputs
from tokenyard.sched.features.hooks import StepHooks
from tokenyard.sched.features.placeholders import Placeholders
from tokenyard.sched.features.request_events import RequestEvents
from tokenyard.sched.features.routed_experts import RoutedExperts
from tokenyard.sched.features.speculation import Speculation
from tokenyard.sched.features.transfers import Transfers
from tokenyard.table import RequestTable

__all__ = ["Features"]


@dataclass(frozen=True, slots=True)
class Features:
    """Each adds a limit or a state; none is asked for by name in the middle of a decision."""

    speculation: Speculation | None = None
    """Draft tokens."""
    placeholders: Placeholders | None = None
    """Async scheduling."""
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
    num_lookahead_tokens: int = 0
    """KV slots kept beyond the scheduled tokens."""

    @property
    def hooks(self) -> StepHooks:
        """Their parts in the life of requests and steps: metadata first, then what counts tokens, then events."""
        ordered = (self.transfers, self.placeholders, self.routing, self.events)
        return StepHooks([each for each in ordered if each is not None])

    @classmethod
    def of(
        cls,
        config: SchedulerConfig,
        spec: SpeculativeConfig | None,
        kv: KVCacheManager,
        table: RequestTable,
        connector: KVConnector | None,
        *,
        log_stats: bool = False,
    ) -> Features:
        """The features that the configuration turns on."""
        check_settings(config, kv.config, has_connector=connector is not None)
        num_drafts = spec.num_speculative_tokens if spec else 0
        speculation = Speculation(table, num_drafts) if spec else None
        use_eagle = spec is not None and spec.use_eagle
        splits = splits_at_blocks(kv.config)
        encoder: EncoderInputs | None = None
        if has_cross_attention(kv.config):
            encoder = CrossEncoderInputs(config, table)
        elif config.max_num_encoder_input_tokens:
            unit = kv.config.block_size if splits else 1
            encoder = EncoderInputs(config, table, shift=int(use_eagle), unit=unit)
        return cls(
            speculation=speculation,
            placeholders=Placeholders(table, speculation, num_drafts) if config.async_scheduling else None,
            encoder=encoder,
            transfers=Transfers(connector, kv) if connector is not None else None,
            events=RequestEvents() if log_stats else None,
            routing=RoutedExperts(kv.config, kv) if config.enable_return_routed_experts else None,
            alignment=BlockAlignment(kv.config.block_size, drops_last_hit=use_eagle) if splits else None,
            num_lookahead_tokens=spec.num_lookahead_tokens if spec else 0,
        )
