"""Which limits a scheduler has, and in which order it asks them."""

from __future__ import annotations

from tokenyard.config import SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.features.features import Features
from tokenyard.sched.features.grammars import GrammarGate
from tokenyard.sched.features.pins import PinBoard
from tokenyard.sched.limits.candidate import Limit
from tokenyard.sched.limits.limits import (
    AlignmentLimit,
    ConnectorLookup,
    EncoderLimit,
    LateOutputLimit,
    LoraLimit,
    PaddedPrefillLimit,
    PrefillLimit,
    PrefixLookup,
    ReadyLimit,
)
from tokenyard.sched.limits.memory import MemoryLimit
from tokenyard.sched.queues.running import RunningList

__all__ = ["limits_in_order"]


def limits_in_order(
    config: SchedulerConfig,
    kv: KVCacheManager,
    running: RunningList,
    features: Features,
    pins: PinBoard,
    grammars: GrammarGate,
) -> list[Limit]:
    """The limits of the configured features, in the order in which vLLM asks."""
    limits: list[Limit] = [ReadyLimit(features.transfers, grammars)]
    if features.late_outputs is not None:
        limits.append(LateOutputLimit(features.late_outputs))
    if config.max_loras:
        limits.append(LoraLimit(config.max_loras))
    limits.append(PrefixLookup(kv, counts=not config.profile.lookups_count_at_admission))
    if features.transfers is not None:
        limits.append(ConnectorLookup(features.transfers))
    if features.speculation is not None and config.profile.admission_pads_decodes:
        limits.append(PaddedPrefillLimit(config, features.speculation.max_drafts))
    else:
        limits.append(PrefillLimit(config))
    chunk: list[Limit] = []
    if features.encoder is not None:
        chunk.append(EncoderLimit(features.encoder, ends_pass=config.profile.encoder_refusal_ends_pass))
    if features.alignment is not None:
        chunk.append(AlignmentLimit(features.alignment))
    limits += reversed(chunk) if config.profile.chunks_end_at_states else chunk
    limits.append(MemoryLimit(config, kv, running, features, pins))
    return limits
