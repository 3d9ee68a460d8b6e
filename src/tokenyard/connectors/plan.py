"""What the scheduler half of a connector asks of its worker half in one step.

Order within a step: saves (what the step would overwrite), blocking loads, the model, stores. Asynchronous loads and
stores may take any time after their place; a job that is over is named in ``ConnectorOutput.completed_jobs``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from tokenyard.core.sched.outputs import ConnectorOutput

Address = int | bytes
"""Where a block is kept: the number of a block of memory, or the hash of its content."""


class RemoteRequest(msgspec.Struct, frozen=True):
    """A request of another engine, which keeps blocks for this engine to fetch."""

    engine_id: str
    request_id: str


class Load(msgspec.Struct, frozen=True):
    """Fill blocks of the GPU."""

    job_id: int
    request_id: str
    blocks: tuple[int, ...]
    """Blocks of the GPU, in position order."""
    sources: tuple[Address, ...]
    """Where each one's content is."""
    is_async: bool
    """The request waits until ``finished_receiving`` names it; else the load is part of the step."""
    remote: RemoteRequest | None = None
    """The request of another engine that holds the sources, where they are its blocks; it frees them afterwards."""


class Store(msgspec.Struct, frozen=True):
    """Keep a copy of blocks of the GPU."""

    job_id: int
    request_id: str | None
    """An ended request whose blocks stay until ``finished_sending`` names it; None: no request's blocks wait for it."""
    blocks: tuple[int, ...]
    targets: tuple[Address, ...]


class Offer(msgspec.Struct, frozen=True):
    """Blocks of an ended request that another engine may fetch; they stay until ``finished_sending`` names it."""

    request_id: str
    blocks: tuple[int, ...]
    deadline: float
    """When it ends if no engine has claimed it, in seconds on the engine's clock."""


class TransferPlan(NamedTuple):
    """The transfers that begin with one step."""

    saves: tuple[Store, ...] = ()
    """Blocks that this very step gives away: they are read before anything is written."""
    loads: tuple[Load, ...] = ()
    stores: tuple[Store, ...] = ()
    offers: tuple[Offer, ...] = ()
    claims: tuple[RemoteRequest, ...] = ()
    """Offers of others that will be fetched or released: they must not end before."""
    releases: tuple[RemoteRequest, ...] = ()
    """Offers of others that will not be fetched."""

    def __bool__(self) -> bool:
        return any(self)


class ConnectorWorker(Protocol):
    """The half of a connector that moves tensors."""

    def before_step(self, plan: TransferPlan | None) -> None:
        """Before the model runs; on return all saves and blocking loads are complete."""

    def after_step(self, plan: TransferPlan | None) -> None:
        """After the model ran, or would have run if there was nothing to compute: begin the stores."""

    def report(self) -> ConnectorOutput | None:
        """What has ended since the last call; None: nothing."""

    def shutdown(self) -> None:
        """End all transfers and let go of all resources."""
