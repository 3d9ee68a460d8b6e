"""The seam to KV that lives elsewhere: another engine, CPU memory, shared storage.

The scheduler's half of a connector says how many tokens it can load, and gets the blocks that were allocated; its
worker half moves the tensors and reports back through :class:`ConnectorOutput`. The life of an asynchronous load:

    WAITING -> blocks allocated, WAITING_FOR_REMOTE_KVS -> finished_receiving -> WAITING, computed up to what was loaded
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import msgspec

from tokenyard.core.basics import check_hook_names
from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.kv.block_pool import BlockPool
from tokenyard.core.kv.events import KVEvent
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.core.sched.serving_one import ServesOne
from tokenyard.errors import ConnectorError, shown


class Match(msgspec.Struct, frozen=True):
    """Tokens that a connector can bring beyond the local prefix hit."""

    num_tokens: int | None
    """A whole number from 0 on. None: not known yet, ask again in the next step."""
    is_async: bool = False
    """The load takes longer than a step."""


class ConnectorContext(msgspec.Struct, frozen=True):
    """What a connector may know of its scheduler, for good."""

    pool: BlockPool
    """The blocks that it will be notified of, to be read and not to be changed; ``subscribe`` tells of evictions."""
    max_model_len: int
    """Most tokens of a request."""


def checked_match(connector: KVConnector, answer: object) -> Match:
    """What ``get_num_new_matched_tokens`` has answered; ConnectorError if it cannot be."""
    if isinstance(answer, Match) and isinstance(answer.is_async, bool):
        count = answer.num_tokens
        if count is None:
            return answer
        if isinstance(count, Integral) and not isinstance(count, bool) and count >= 0:
            return Match(int(count), answer.is_async)
    fix = "return a Match with a whole number of tokens from 0 on, or with None for not known yet"
    raise ConnectorError(connector, "get_num_new_matched_tokens", f"returned {shown(answer)}: {fix}")


def checked_end(connector: KVConnector, answer: object) -> tuple[bool, Mapping[str, object] | None]:
    """What ``request_finished`` has answered; ConnectorError if it cannot be."""
    if isinstance(answer, tuple) and len(answer) == 2:
        needed, params = answer
        if isinstance(needed, bool) and (params is None or isinstance(params, Mapping)):
            return needed, params
    fix = "return (whether its blocks are still needed, parameters for the client or None)"
    raise ConnectorError(connector, "request_finished", f"returned {shown(answer)}: {fix}")


class KVConnector(ServesOne[ConnectorContext]):
    """A connector that brings and keeps nothing: override what yours does.

    A class with a method that is called almost as one of these is refused when it is made (ConfigError).
    """

    _field, _error = "kv_connector", ConnectorError

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "kv_connector")

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        """Tokens available beyond the first ``num_computed_tokens``.

        At most the rest of the request is taken; one token less if the load is part of the step, or the request has no
        other: its logits are needed.
        """
        return Match(0)

    def update_state_after_alloc(self, request: Request, blocks: Blocks, num_external_tokens: int) -> None:
        """The request has these blocks now; the external tokens, as many as were taken, follow the local hit."""

    def build_connector_meta(self, output: SchedulerOutput) -> object:
        """Whatever the worker half has to know for this step."""
        return None

    def request_finished(self, request: Request, blocks: Blocks) -> tuple[bool, Mapping[str, object] | None]:
        """The request has ended, ``request.status`` says how: (its blocks are still needed, parameters for the client).

        Blocks that are needed stay until ``finished_sending`` names the request.
        """
        return False, None

    def request_preempted(self, request: Request, blocks: Blocks) -> None:
        """A running request is about to lose these blocks, and will be admitted again: what this step's plan saves of
        them is read before anything is written.
        """

    def update_connector_output(self, output: ConnectorOutput) -> None:
        """The workers have reported."""

    def on_new_request(self, request: Request) -> None:
        """A request is about to be added; RequestError refuses it."""

    def reset_cache(self) -> bool:
        """Forget everything kept; False if that cannot be done now."""
        return True

    def take_events(self) -> Sequence[KVEvent]:
        """What entered and left its cache since the last call."""
        return ()

    def take_stats(self) -> Mapping[str, int] | None:
        """Its own counts since the last call (vLLM's ``kv_connector_stats``)."""
        return None

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks of a tier in CPU memory, if it has one."""
        return None

    def shutdown(self) -> None:
        """Let go of all resources."""
