"""The optional parts of a scheduler, made once from its configuration; None where a feature is off."""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.config import SchedulerConfig, SpeculativeConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.connector import KVConnector
from tokenyard.sched.encoder import EncoderInputs
from tokenyard.sched.placeholders import Placeholders
from tokenyard.sched.request_events import RequestEvents
from tokenyard.sched.routing import RoutedExperts
from tokenyard.sched.speculation import Speculation
from tokenyard.sched.transfers import Transfers

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
    num_lookahead_tokens: int = 0
    """KV slots kept beyond the scheduled tokens."""

    @classmethod
    def of(
        cls,
        config: SchedulerConfig,
        spec: SpeculativeConfig | None,
        kv: KVCacheManager,
        connector: KVConnector | None,
        *,
        log_stats: bool = False,
    ) -> Features:
        """The features that the configuration turns on."""
        table = kv.table
        num_drafts = spec.num_speculative_tokens if spec else 0
        speculation = Speculation(table, num_drafts) if spec else None
        shift = 1 if spec is not None and spec.use_eagle else 0
        return cls(
            speculation=speculation,
            placeholders=Placeholders(table, speculation, num_drafts) if config.async_scheduling else None,
            encoder=EncoderInputs(config, shift=shift) if config.max_num_encoder_input_tokens else None,
            transfers=Transfers(connector, kv) if connector is not None else None,
            events=RequestEvents() if log_stats else None,
            routing=RoutedExperts(kv.config, kv) if config.enable_return_routed_experts else None,
            num_lookahead_tokens=spec.num_lookahead_tokens if spec else 0,
        )
