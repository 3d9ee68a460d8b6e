"""Prefill and decode apart: what flags say of a split, and the deployments of its two sides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import inf
from typing import NamedTuple

import msgspec

from tokenyard.connectors.config import PREFILL_DECODE, KVTransferConfig
from tokenyard.deploy.settings import SplitSettings
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError
from tokenyard.questions.scenario import Scenario, prepared
from tokenyard.sim.parallel.replay import MOST_ENGINES
from tokenyard.sim.split import KVLink
from tokenyard.sim.sweep.replaying import DecodeSide
from tokenyard.sim.workload import Workload

__all__ = ["ENDS", "NO_SPLIT", "Shape", "Sides", "check_split", "read_shape", "read_shapes", "sides_of"]

NO_SPLIT = "none"
ENDS = (("prefill", "kv_producer"), ("decode", "kv_consumer"))
"""Sides, and their roles in vLLM."""
_FORM = re.compile(r"([0-9]{1,5})\+([0-9]{1,5})")
_RANGE = re.compile(r"([0-9]{1,5})(?:\.\.([0-9]{1,5}))?")
_MOST_SHAPES = 1000
"""That one text may stand for."""


class Shape(NamedTuple):
    """Engines on each side."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}+{self.decode}"


class Sides(NamedTuple):
    """The two deployments of a split."""

    prefill: ReplaySpec
    decode: ReplaySpec
    link: KVLink

    @property
    def recorded(self) -> tuple[ReplaySpec, ReplaySpec]:
        """Prefill and decode, each with a trace directory and a first record of its own."""
        prefill, decode = (_recorded(each, *ends) for each, ends in zip((self.prefill, self.decode), ENDS, strict=True))
        return prefill, decode

    @property
    def num_gpus(self) -> int:
        """Of all engines."""
        return self.prefill.gpus_per_replica + self.decode.gpus_per_replica

    def decode_side(self, *, skip_refused: bool) -> DecodeSide:
        """What a replay has of the decode engines."""
        return DecodeSide(self.decode.replays(skip_refused=skip_refused), self.link)


def _recorded(setup: ReplaySpec, name: str, role: str) -> ReplaySpec:
    path = setup.trace.path
    config = KVTransferConfig(kv_connector=PREFILL_DECODE, kv_role=role, engine_id=name)
    section = {"kv_connector": config.kv_connector, "kv_role": role, "engine_id": name}
    return replace(
        setup,
        trace=replace(setup.trace, path=None if path is None else path / name),
        start=msgspec.structs.replace(setup.start, config={**(setup.start.config or {}), "kv_transfer": section}),
    )


def read_shape(text: str) -> Shape:
    """``2+1``: two engines that prefill, one that decodes. Raises ConfigError."""
    found = _FORM.fullmatch(text.strip())
    if found is None or not all(1 <= int(number) <= MOST_ENGINES for number in found.groups()):
        fix = f"give the engines that prefill and those that decode, from 1 to {MOST_ENGINES} each: 2+1"
        raise ConfigError("split", text, fix)
    return Shape(int(found[1]), int(found[2]))


def read_shapes(texts: Iterable[str]) -> tuple[str | None, ...]:
    """Splits of texts like ``2+1``, ``1..3+1..2`` or ``1+1,none``, each once; None: no split. Raises ConfigError."""
    return tuple(dict.fromkeys(shape for text in texts for part in text.split(",") for shape in _shapes(part.strip())))


def _shapes(text: str) -> Iterator[str | None]:
    if text.lower() == NO_SPLIT:
        yield None
        return
    sides = [_RANGE.fullmatch(side) for side in text.split("+")]
    if len(sides) != 2 or None in sides:
        fix = "give engines that prefill and engines that decode, 2+1, a range of them, 1..3+1..2, or none"
        raise ConfigError("split", text, fix)
    ranges = [range(int(side[1]), int(side[2] or side[1]) + 1) for side in sides if side is not None]
    if not all(ranges):
        raise ConfigError("split", text, "a range goes from the fewest to the most: 1..3")
    if len(ranges[0]) * len(ranges[1]) > _MOST_SHAPES:
        raise ConfigError("split", text, f"these are more than {_MOST_SHAPES:,} splits: give a smaller range")
    yield from (str(read_shape(f"{prefill}+{decode}")) for prefill, decode in product(*ranges))


def sides_of(run: Scenario, apart: SplitSettings, workload: Workload | None = None) -> Sides:
    """Both deployments, settled; without a shape each has as many engines as ``run`` says. Raises TokenyardError."""
    check_split(run, apart)
    size = run.parallel.data_parallel_size
    shape = Shape(size, size) if apart.split is None else read_shape(apart.split)
    prefill = prepared(_of_size(run, shape.prefill), workload)
    decode = prefill if shape.decode == shape.prefill else prepared(_of_size(run, shape.decode), prefill.workload)
    assert prefill.start.bytes_per_block is not None
    return Sides(prefill, decode, KVLink(prefill.start.bytes_per_block, apart.kv_link_gb_per_s))


def _of_size(run: Scenario, size: int) -> Scenario:
    return replace(run, parallel=replace(run.parallel, data_parallel_size=size))


def check_split(run: Scenario, apart: SplitSettings) -> None:
    """Raise ConfigError for a link that carries nothing, and naming what a split is not replayed with."""
    if not 0 < apart.kv_link_gb_per_s < inf:
        raise ConfigError("kv_link_gb_per_s", apart.kv_link_gb_per_s, "give a number above 0")
    parallel, transfer, speculation = run.parallel, run.transfer, run.speculation
    if apart.split is not None and parallel.data_parallel_size > 1:
        fix = f"a split of {apart.split} says how many engines each side has: give one of the two"
        raise ConfigError("data_parallel_size", parallel.data_parallel_size, fix)
    if parallel.replicas is not None:
        fix = "a split is not replayed as several replicas: give data_parallel_size for several engines on each side"
        raise ConfigError("replicas", parallel.replicas, fix)
    if parallel.decode_context_parallel_size > 1:
        fix = "KV that is sent from engine to engine beside it is not modelled: give 1"
        raise ConfigError("decode_context_parallel_size", parallel.decode_context_parallel_size, fix)
    for name in ("kv_offloading_size", "kv_transfer_config"):
        if (value := getattr(transfer, name)) is not None:
            raise ConfigError(name, value, "is not modelled for prefill-decode disaggregation: leave it out")
    for name in ("speculative_config", "spec_method", "spec_tokens", "num_speculative_tokens"):
        if (value := getattr(speculation, name)) is not None:
            raise ConfigError(name, value, "is not modelled for prefill-decode disaggregation: leave it out")
    if run.arrivals.client_timeout is not None:
        fix = "clients of a split do not hang up in a replay: leave it out"
        raise ConfigError("client_timeout", run.arrivals.client_timeout, fix)
