"""KV transfers in a replay: nothing is moved, but it takes as long as if it were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from tokenyard.connectors.config import (
    OFFLOADING,
    READ_GB_PER_S,
    SETTINGS,
    STORAGE,
    WRITE_GB_PER_S,
    KVTransferConfig,
    cpu_tier,
)
from tokenyard.connectors.secondary import TieredMemory
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.connectors.tiers import DiskTier, Load, Store, TransferPlan
from tokenyard.core.config import CacheConfig
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.errors import ConfigError
from tokenyard.plugins import called, foreign
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.model import LatencyModel, TransferDirection, transfer_seconds
from tokenyard.steptime.pace import VirtualClock

# ---------------------------------------------------------------------------------------------------------------------
# The worker half of a connector in a replay: nothing is moved, but it takes as long as if it were.
#
#     link      one direction of a wire: what is sent waits until everything sent before is through
#     saves     and blocking loads make the step wait; asynchronous loads and stores run beside it


class Link:
    """Transfers one after the other; ``seconds_of`` says how long so many bytes take."""

    def __init__(self, seconds_of: Callable[[int], float]) -> None:
        self.seconds_of = seconds_of
        self._free_at = 0.0
        self.num_bytes = 0
        """Sent so far."""
        self.busy_seconds = 0.0

    def send(self, now: float, num_bytes: int) -> float:
        """Send at ``now``, or when the link is free; returns the moment at which it has arrived."""
        seconds = self.seconds_of(num_bytes)
        self._free_at = max(now, self._free_at) + seconds
        self.num_bytes += num_bytes
        self.busy_seconds += seconds
        return self._free_at


class _TransferEnd(NamedTuple):
    """When a job is over."""

    moment: float
    number: int
    job: Load | Store


class TransfersUnderWay:
    """Jobs that have been sent, and their ends, on a virtual clock."""

    def __init__(self, now: Callable[[], float], bytes_per_block: int) -> None:
        """Bytes are those of one GPU."""
        self._now = now
        self._bytes_per_block = bytes_per_block
        self._ending_jobs: list[_TransferEnd] = []
        self._count = 0

    def _send(self, link: Link, job: Load | Store, now: float) -> float:
        moment = link.send(now, len(job.blocks) * self._bytes_per_block)
        self._count += 1
        heappush(self._ending_jobs, _TransferEnd(moment, self._count, job))
        return moment

    @property
    def next_moment(self) -> float | None:
        """When the next transfer is over; None if there is none."""
        return self._ending_jobs[0].moment if self._ending_jobs else None

    def report(self) -> ConnectorOutput | None:
        """What has ended by now, since the last call."""
        now, endings = self._now(), self._ending_jobs
        if not endings or endings[0].moment > now:
            return None
        ended = []
        while endings and endings[0].moment <= now:
            ended.append(heappop(endings).job)
        return ConnectorOutput(
            finished_sending=frozenset(job.request_id for job in ended if isinstance(job, Store) and job.request_id),
            finished_receiving=frozenset(job.request_id for job in ended if isinstance(job, Load) and job.is_async),
            completed_jobs=frozenset(job.job_id for job in ended),
        )


class SimulatedTransfers(TransfersUnderWay):
    """Takes a step's plan and reports what has ended, on a virtual clock."""

    def __init__(self, now: Callable[[], float], inwards: Link, outwards: Link, bytes_per_block: int) -> None:
        """``inwards`` leads to the GPU, ``outwards`` away from it; bytes are those of one GPU."""
        super().__init__(now, bytes_per_block)
        self.inwards, self.outwards = inwards, outwards

    def load_seconds(self, num_blocks: int) -> float:
        """How long so many blocks take to the GPU, with nothing else under way."""
        return self.inwards.seconds_of(num_blocks * self._bytes_per_block)

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers; returns the seconds that its computation has to wait for them."""
        if plan is None:
            return 0.0
        now = ready = self._now()
        for save in plan.saves:
            ready = max(ready, self._send(self.outwards, save, now))
        for load in plan.loads:
            arrived = self._send(self.inwards, load, now)
            if not load.is_async:
                ready = max(ready, arrived)
        for store in plan.stores:
            self._send(self.outwards, store, now)
        return ready - now


class TransfersAboveADisk(SimulatedTransfers):
    """The same for CPU memory that has a disk below it, which the tier moves blocks from and to by itself."""

    def __init__(
        self, now: Callable[[], float], inwards: Link, outwards: Link, bytes_per_block: int, tier: TieredMemory
    ) -> None:
        super().__init__(now, inwards, outwards, bytes_per_block)
        self._tier = tier

    @property
    def next_moment(self) -> float | None:
        moments = (super().next_moment, self._tier.next_moment)
        return min((moment for moment in moments if moment is not None), default=None)

    def report(self) -> ConnectorOutput | None:
        self._tier.advance()
        return super().report()


class SimulatedDrive:
    """Reads and writes at the same time, each one after the other."""

    def __init__(self, now: Callable[[], float], reads: Link, writes: Link, bytes_per_block: int) -> None:
        """Bytes are those of all GPUs, which share the drive."""
        self.now = now
        self._reads, self._writes, self._bytes = reads, writes, bytes_per_block

    def read(self, num_blocks: int) -> float:
        return self._reads.send(self.now(), num_blocks * self._bytes)

    def write(self, num_blocks: int) -> float:
        return self._writes.send(self.now(), num_blocks * self._bytes)


# ---------------------------------------------------------------------------------------------------------------------
# A connector for a replay: the scheduler half as an engine has it, the worker half as a model of its links.


class SimulatedConnector(NamedTuple):
    """The scheduler half of a connector, and what stands in the place of its worker half."""

    connector: KVConnector
    transfers: SimulatedTransfers


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTransfer:
    """What is needed to make a connector: one for each replay, since it remembers."""

    config: KVTransferConfig
    bytes_per_block: int
    """Bytes of one GPU."""
    num_gpus: int = 1
    """GPUs that share the model: ``cpu_bytes_to_use`` is for all of them, as in vLLM."""

    def make(self, cache: CacheConfig, clock: VirtualClock, latency: LatencyModel) -> SimulatedConnector:
        """Raises ConfigError if it does not go with the cache, or cannot be replayed by one engine."""
        config = self.config
        if config.kv_connector not in SETTINGS:
            own = foreign("kv_connector", config.kv_connector)
            given = {"cache": cache, "clock": clock, "latency": latency, "config": config}
            made = called(own, "kv_connector", config.kv_connector, **given, bytes_per_block=self.bytes_per_block)
            if not isinstance(made, SimulatedConnector):
                raise ConfigError("kv_connector", config.kv_connector, "it has to make a SimulatedConnector")
            return made
        if config.kv_connector == OFFLOADING:
            tier = cpu_tier(config, self.bytes_per_block, self.num_gpus, partial(self._drive, clock))
            inwards, outwards = _host_links(latency)
            connector = TieredConnector(
                cache, tier, store_on=config.get("store_on", "finish"), load_async=config.get("load_async", True)
            )
        elif config.kv_connector == STORAGE:
            files: set[bytes] = set()
            inwards = _wire(config.positive("read_gb_per_s", READ_GB_PER_S))
            outwards = _wire(config.positive("write_gb_per_s", WRITE_GB_PER_S))
            connector = TieredConnector(
                cache, DiskTier(files, on_stored=files.add), load_async=config.get("load_async", True)
            )
        else:
            fix = "it needs two engines: tokenyard split replays prefill and decode"
            raise ConfigError("kv_connector", config.kv_connector, fix)
        wires = clock.now, inwards, outwards, self.bytes_per_block
        if isinstance(connector.tier, TieredMemory):
            return SimulatedConnector(connector, TransfersAboveADisk(*wires, connector.tier))
        return SimulatedConnector(connector, SimulatedTransfers(*wires))

    def _drive(self, clock: VirtualClock, read_gb_per_s: float, write_gb_per_s: float) -> SimulatedDrive:
        reads, writes = _wire(read_gb_per_s), _wire(write_gb_per_s)
        return SimulatedDrive(clock.now, reads, writes, self.bytes_per_block * self.num_gpus)


def _host_links(latency: LatencyModel) -> tuple[Link, Link]:
    """Links to the GPU and away from it, used at the same time: PCIe is full duplex."""
    return (
        Link(lambda num_bytes: transfer_seconds(latency, num_bytes, TransferDirection.TO_DEVICE)),
        Link(lambda num_bytes: transfer_seconds(latency, num_bytes, TransferDirection.TO_HOST)),
    )


def _wire(gb_per_s: float) -> Link:
    return Link(lambda num_bytes: num_bytes / (gb_per_s * 1e9))


# ---------------------------------------------------------------------------------------------------------------------
# KV on its way from prefill engines to decode engines, in a replay: both worker halves on one clock.
#
# The decode side knows when a transfer will be over as soon as it begins, and tells the prefill side, whose blocks
# are free from then on.


class PrefillTransfers:
    """Open offers, when each of them ends, and the wire that leads away from the engine."""

    def __init__(self, now: Callable[[], float], link: Link) -> None:
        self._now = now
        self.link = link
        self._open: dict[str, float] = {}
        self._early: dict[str, float] = {}
        """Ends of offers that the decode side knew before they were opened."""

    def begin(self, plan: TransferPlan | None) -> float:
        """Open a step's offers; nothing has to be waited for."""
        for offer in plan.offers if plan is not None else ():
            self._open[offer.request_id] = self._early.pop(offer.request_id, offer.deadline)
        return 0.0

    def ends(self, request_id: str, moment: float) -> None:
        """The blocks are not needed after ``moment``; infinity: until that is known."""
        known = self._open if request_id in self._open else self._early
        known[request_id] = moment

    @property
    def next_moment(self) -> float | None:
        """When the next offer ends, as far as is known; None if none does."""
        moment = min(self._open.values(), default=inf)
        return moment if moment < inf else None

    def report(self) -> ConnectorOutput | None:
        """Offers that have ended since the last call."""
        now = self._now()
        ended = frozenset(request_id for request_id, moment in self._open.items() if moment <= now)
        for request_id in ended:
            del self._open[request_id]
        return ConnectorOutput(finished_sending=ended) if ended else None


class DecodeTransfers(TransfersUnderWay):
    """Fetches over the wire of the engine that holds the blocks."""

    def __init__(
        self, now: Callable[[], float], bytes_per_block: int, prefills: Mapping[str, PrefillTransfers]
    ) -> None:
        """``prefills`` by the name of their engine; bytes are those of one GPU."""
        super().__init__(now, bytes_per_block)
        self._prefills = prefills

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers; nothing has to be waited for."""
        if plan is None:
            return 0.0
        for remote in plan.claims:
            self._prefills[remote.engine_id].ends(remote.request_id, inf)
        for remote in plan.releases:
            self._prefills[remote.engine_id].ends(remote.request_id, self._now())
        for load in plan.loads:
            assert load.remote is not None
            source = self._prefills[load.remote.engine_id]
            source.ends(load.remote.request_id, self._send(source.link, load, self._now()))
        return 0.0
