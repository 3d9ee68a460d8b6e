"""From a prefill engine to a decode engine: the worker half of both, and the place where they meet.

:class:`OfferExchange` connects engines of one process. One that spans machines has the same four calls; its claims
have to be renewed, so that the blocks of a decode engine that has died are freed in the end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from tokenyard.connectors.plan import Address, Load, Offer, RemoteRequest, Store, TransferPlan
from tokenyard.connectors.tier_worker import BlockMemory, FinishedTransfer, Tensors, TierWorker
from tokenyard.connectors.tiers import require_amount, require_text
from tokenyard.core.sched.outputs import ConnectorOutput

_MOST_EARLY = 10_000


class _OpenOffer:
    """An offer that stands."""

    __slots__ = ("claimed", "memory", "offer")

    def __init__(self, offer: Offer, memory: BlockMemory) -> None:
        self.offer = offer
        self.memory = memory
        self.claimed = False


class OfferExchange:
    """Open offers, by engine and request.

    The client of a prefill can be faster than the step that opens its offer: claims and releases of an offer that does
    not stand yet wait for it.
    """

    def __init__(self) -> None:
        self._open: dict[RemoteRequest, _OpenOffer] = {}
        self._early: OrderedDict[RemoteRequest, bool] = OrderedDict()
        """Offers that did not stand when they were claimed (False) or released (True)."""
        self._closed_requests: dict[str, set[str]] = {}
        """Engine -> requests of its own whose blocks are not needed any more."""
        self._lock = Lock()

    def offer(self, engine_id: str, offer: Offer, memory: BlockMemory) -> None:
        """Blocks of ``memory`` can be fetched."""
        remote = RemoteRequest(engine_id, offer.request_id)
        with self._lock:
            opened = self._open[remote] = _OpenOffer(offer, memory)
            opened.claimed = remote in self._early
            if self._early.pop(remote, False):
                self._close(remote)

    def claim(self, remote: RemoteRequest) -> None:
        """An engine will fetch or release it."""
        with self._lock:
            if remote in self._open:
                self._open[remote].claimed = True
            else:
                self._remember_early(remote, released=False)

    def _remember_early(self, remote: RemoteRequest, *, released: bool) -> None:
        self._early[remote] = released
        if len(self._early) > _MOST_EARLY:  # offers that had ended: they will not come
            self._early.popitem(last=False)

    def is_open(self, remote: RemoteRequest) -> bool:
        """Whether it can be fetched."""
        with self._lock:
            return remote in self._open

    def fetch(self, remote: RemoteRequest, block: int) -> Tensors:
        """A block's content. OSError if the offer does not stand, or not for this block."""
        with self._lock:
            found = self._open.get(remote)
        if found is None or block not in found.offer.blocks:
            raise OSError(f"engine {remote.engine_id} does not offer block {block} of {remote.request_id!r}")
        return found.memory.read(block)

    def release(self, remote: RemoteRequest) -> None:
        """An offer has been fetched, or will not be: its blocks are not needed any more."""
        with self._lock:
            if remote in self._open:
                self._close(remote)
            else:
                self._remember_early(remote, released=True)

    def _close(self, remote: RemoteRequest) -> None:
        del self._open[remote]
        self._closed_requests.setdefault(remote.engine_id, set()).add(remote.request_id)

    def take_closed(self, engine_id: str, now: float) -> set[str]:
        """Requests of an engine whose offers have ended since the last call, by themselves if none claimed them."""
        with self._lock:
            for remote, each in list(self._open.items()):
                if remote.engine_id == engine_id and not each.claimed and now >= each.offer.deadline:
                    self._close(remote)
            return self._closed_requests.pop(engine_id, set())


class _NoStore:
    """Nothing is stored on the way from prefill to decode."""

    def get(self, address: Address) -> Tensors:
        raise OSError("blocks on their way from prefill to decode are another engine's")

    def put(self, address: Address, tensors: Tensors) -> None:
        raise OSError("the way from prefill to decode stores nothing")


class PrefillDecodeWorker(TierWorker):
    """Opens offers, fetches those of others; with ``num_threads`` beside the model.

    A load whose offer does not stand yet waits for it, ``patience`` seconds at most; then it has failed.
    """

    def __init__(
        self,
        memory: BlockMemory,
        exchange: OfferExchange,
        engine_id: str,
        clock: Callable[[], float],
        *,
        patience: float = 5.0,
        num_threads: int = 0,
    ) -> None:
        """Raises ConfigError for a setting that cannot work."""
        require_text("engine_id", engine_id)
        require_amount("patience", patience, or_zero=True)
        super().__init__(memory, _NoStore(), num_threads=num_threads)
        self._patience = patience
        self._waiting_loads: list[tuple[Load, float]] = []
        """Loads without an offer, and how long they wait for it."""
        self._exchange = exchange
        self._engine_id = engine_id
        self._clock = clock

    def before_step(self, plan: TransferPlan | None) -> None:
        if plan is not None:
            for remote in plan.claims:
                self._exchange.claim(remote)
            for remote in plan.releases:
                self._exchange.release(remote)
        super().before_step(plan)

    def after_step(self, plan: TransferPlan | None) -> None:
        for offer in plan.offers if plan is not None else ():
            self._exchange.offer(self._engine_id, offer, self.memory)

    def begin(self, job: Load | Store) -> None:
        assert isinstance(job, Load), "the way from prefill to decode stores nothing"
        assert job.remote is not None
        if self._exchange.is_open(job.remote):
            super().begin(job)
        else:
            self._waiting_loads.append((job, self._clock() + self._patience))

    def _retry_waiting_loads(self) -> None:
        """Begin loads whose offers stand by now, and those that waited long enough: they fail."""
        now, waiting, self._waiting_loads = self._clock(), self._waiting_loads, []
        for load, until in waiting:
            if load.remote is not None and not self._exchange.is_open(load.remote) and now < until:
                self._waiting_loads.append((load, until))
            else:
                super().begin(load)

    def fetch(self, load: Load, source: Address) -> Tensors:
        assert load.remote is not None
        return self._exchange.fetch(load.remote, int(source))

    def _get_all(self, load: Load) -> FinishedTransfer:
        done = super()._get_all(load)
        assert load.remote is not None
        self._exchange.release(load.remote)
        return done

    def report(self) -> ConnectorOutput | None:
        self._retry_waiting_loads()
        own, sent = super().report(), frozenset(self._exchange.take_closed(self._engine_id, self._clock()))
        if not sent:
            return own
        if own is None:
            return ConnectorOutput(finished_sending=sent)
        return ConnectorOutput(
            finished_sending=sent,
            finished_receiving=own.finished_receiving,
            invalid_block_ids=own.invalid_block_ids,
            completed_jobs=own.completed_jobs,
        )
