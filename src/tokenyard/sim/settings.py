"""What a group of engines is made of, and the link between two groups."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tokenyard.arguments import given_kind, is_number
from tokenyard.core.config import CacheConfig, SchedulerConfig, require_int
from tokenyard.errors import ConfigError
from tokenyard.policies.eviction import EvictionChoice
from tokenyard.sim.choices import ConnectorChoice, RouterChoice
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.fleet import FleetEvent, FleetPolicy
from tokenyard.sim.replicas import Autoscaling
from tokenyard.sim.routers import Fleet, VLLMBalancing
from tokenyard.steptime.model import LatencyModel

MOST_ENGINES = 1024
"""The limit of one group."""


class KVLink(msgspec.Struct, frozen=True):
    """From a prefill engine's GPUs to those of decode engines."""

    bytes_per_block: int
    """Bytes of one block on one GPU."""
    gb_per_s: float
    """Speed of one GPU's share of the network."""

    def seconds_of(self, num_bytes: int) -> float:
        """Seconds to send so many bytes."""
        return num_bytes / (self.gb_per_s * 1e9)


class ReplaySettings(msgspec.Struct, frozen=True):
    """Everything but workload and policy."""

    scheduler: SchedulerConfig
    """Limits and order; its policy is overridden where one is given."""
    cache: CacheConfig
    """The paged KV cache of one engine."""
    latency: LatencyModel
    """How long a step takes."""
    skip_refused: bool = False
    """Go on without requests that can never be served."""
    kv_transfer: ConnectorChoice | None = None
    """KV kept elsewhere too; None: nowhere."""
    speculation: SimulatedSpeculation | None = None
    """Drafts, and how many of them are right; None: no drafts."""
    fleet: Fleet = Fleet(1)
    """The engines."""
    router: RouterChoice = VLLMBalancing
    """The router, if there are several engines: a name, a class, or a function that makes one; an object serves one
    replay."""
    autoscaling: Autoscaling | None = None
    """How many of the engines there are; None: all."""
    eviction: EvictionChoice | None = None
    """Which cached block is given up when one is needed; None: as the policy says."""

    policy: FleetPolicy | type[FleetPolicy] | None = None
    """What decides over the engines together: a class, or an object for one replay."""
    events: tuple[FleetEvent, ...] = ()
    """What happens to engines."""
    link: KVLink | None = None
    """What KV moves over from one engine to another; None: it takes no time."""
    beside: tuple[ReplaySettings, ...] = ()
    """Further engines, each of its own kind: those of the fleet that follow the others."""

    def seeded(self, seed: int) -> ReplaySettings:
        """The same with the dice of this seed."""
        speculation = self.speculation
        return (
            self if speculation is None else msgspec.structs.replace(self, speculation=replace(speculation, seed=seed))
        )


def check_link(link: object) -> None:
    """Raise ConfigError for what is no link between two groups, or carries nothing."""
    given_kind("link", link, KVLink, "give a KVLink: bytes of one block, and GB a second")
    assert isinstance(link, KVLink)
    require_int("bytes_per_block", link.bytes_per_block, 1, 1 << 50)
    if not is_number(link.gb_per_s, above=True):
        raise ConfigError("gb_per_s", link.gb_per_s, "give a number above 0")


class DecodeSide(msgspec.Struct, frozen=True):
    """What a split has besides its prefill engines."""

    engines: ReplaySettings
    link: KVLink
