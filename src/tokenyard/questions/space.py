"""What a plan may choose from, and a sweep goes through: settings with their values; and what GPUs cost."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from math import inf
from typing import Any

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.setting_values import value_of
from tokenyard.errors import ConfigError
from tokenyard.files import packaged
from tokenyard.models.gpus import named_gpu
from tokenyard.questions.scenario import Scenario
from tokenyard.questions.sweeping.rows import Setting
from tokenyard.questions.sweeping.variants import Grid, read_grid
from tokenyard.questions.variant_sources import KnownSource, WorkloadVariants
from tokenyard.questions.variants import check_split, each_value, is_load, read_shape, read_shapes

Space = Mapping[str, Any] | Iterable[str] | str
"""Settings and their values: ``{"max_num_seqs": [64, 256]}``, or texts as for ``--set``."""

DEFAULT = (
    "max_num_seqs=64,128,256,512",
    "max_num_batched_tokens=2048,4096,8192,16384",
    "long_prefill_token_threshold=0,1024",
)
"""32 variants."""
COSTLY = frozenset(
    ("gpu", "split", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "replicas", "autoscale")
)
"""Settings by which variants cost more or less."""


def gpus_of(text: str) -> tuple[str, ...]:
    """Several GPUs with commas between them. Raises ConfigError."""
    gpus = tuple(name.strip() for name in text.split(","))
    if not all(gpus):
        raise ConfigError("gpu", text, "give names with commas between them, for example h100,h200")
    return gpus


def grid_of(space: Space | None, source: KnownSource, field: str = "space") -> Grid:
    """Every combination of the values of a space. Raises ConfigError naming ``field`` and what is wrong."""
    if isinstance(space, Mapping):
        dimensions: dict[str, tuple[Setting, ...]] = {}
        for given, values in space.items():
            several = values if isinstance(values, Iterable) and not isinstance(values, str | Mapping) else [values]
            pairs = [source.convert(given, each, field) for value in several for each in each_value(given, value)]
            if not pairs or pairs[0][0] in dimensions:
                fix = "give at least one value" if not pairs else f"{pairs[0][0]} is given twice: give it once"
                raise ConfigError(field, given, fix)
            dimensions[pairs[0][0]] = tuple(dict.fromkeys(value for _, value in pairs))
        return Grid(list(dimensions.items()))
    if space is not None and not isinstance(space, Iterable):
        raise ConfigError(field, space, 'give settings with their values, {"max_num_seqs": [64, 128]}')
    texts = () if space is None else (space,) if isinstance(space, str) else tuple(space)
    for each in texts:
        if not isinstance(each, str):
            fix = 'give settings with their values, {"max_num_seqs": [64, 128]}; a list of variants is variants=[...]'
            raise ConfigError(field, each, fix)
    return read_grid(texts, partial(source.convert, flag=field), field, spread=each_value)


def space_of(
    space: Space | None,
    source: KnownSource,
    *,
    gpus: Sequence[str] = (),
    splits: Iterable[str] = (),
    most_gpus: int | None = None,
    field: str = "space",
) -> Grid:
    """The settings that a plan may choose from, and their values; without a ``space`` the ``splits`` alone, and
    without these what people change first, or ways to use ``most_gpus``. Raises ConfigError.
    """
    shapes = read_shapes(splits)
    usual = DEFAULT if most_gpus is None else _ways_to_use(most_gpus)
    grid = grid_of(space or (None if shapes else usual), source, field)
    dimensions: list[tuple[str, tuple[Setting, ...]]] = list(grid.dimensions)
    if shapes:
        if any(name == "split" for name, _ in dimensions):
            raise ConfigError(field, "split", "§split names some as well: give one of them")
        source.convert("split", shapes[0], "split")
        dimensions.insert(0, ("split", shapes))
    if len(gpus) > 1:
        if any(name == "gpu" for name, _ in dimensions):
            raise ConfigError(field, "gpu", "§gpu names several as well: give one of them")
        dimensions.insert(0, ("gpu", tuple(dict.fromkeys(gpus))))
    _require_choices(dimensions, source, field)
    whole = Grid(dimensions, grid.allows if grid.is_narrowed else None)
    return whole if most_gpus is None else _within(whole, source, most_gpus)


def _require_choices(dimensions: Sequence[tuple[str, tuple[Setting, ...]]], source: KnownSource, field: str) -> None:
    """Raise ConfigError for a value that is no choice of a server's."""
    for name, values in dimensions:
        if is_load(name):
            fix = "another workload is no choice of a server's: give it as a flag, or vary it with tokenyard sweep"
            raise ConfigError(field, name, fix)
        for value in values:
            source.convert(name, value, field)
            if name == "split" and value is not None and isinstance(source, WorkloadVariants):
                run = changed(source.run, {name: value})
                check_split(run, run.split_settings)


def _within(grid: Grid, source: KnownSource, most_gpus: int) -> Grid:
    """The variants that take no more GPUs. Raises ConfigError if there are none."""
    if not isinstance(source, WorkloadVariants):
        raise ConfigError("gpus", most_gpus, "is for a workload: a trace is of one engine, so give its sizes with §set")
    found = grid.narrowed(lambda settings: num_gpus(source.run, settings) <= most_gpus)
    if not found.all():
        raise ConfigError("gpus", most_gpus, "every variant takes more: raise it, or give smaller ones with §set")
    return found


_SIZES = (1, 2, 4, 8)
"""GPUs of an engine that are tried."""


def _ways_to_use(gpus: int) -> tuple[str, ...]:
    """Engines of each size, up to the number of GPUs, and what people change first."""
    sizes = [size for size in _SIZES if size <= gpus]
    couples = tuple(f"tensor_parallel_size={size},replicas={gpus // size}" for size in sizes)
    return (*couples, "max_num_seqs=128,256", "max_num_batched_tokens=4096,8192")


def num_gpus(run: Scenario, settings: Mapping[str, Setting]) -> int:
    """The GPUs that a variant of a run takes, at most."""
    of = changed(run, {name: value for name, value in settings.items() if name != "split"})
    engine = value_of(of, "tensor_parallel_size") * value_of(of, "pipeline_parallel_size")
    shape, replicas = settings.get("split"), of.parallel.replicas_in_words
    engines = of.parallel.data_parallel_size if shape is None else sum(read_shape(str(shape)))
    return int(engine * engines * (1 if replicas is None else int(replicas.rpartition("..")[2])))


# ---------------------------------------------------------------------------------------------------------------------
# What GPUs cost for an hour, as texts and mappings say it.


def read_prices(given: Iterable[Iterable[str]]) -> dict[str, float]:
    """GPU -> price of an hour, of texts: ``h100=2.5``. Raises ConfigError."""
    prices: dict[str, float] = {}
    for part in (part for texts in given for text in texts for part in text.split(",")):
        name, _, number = part.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = -1.0
        if not 0 <= price < inf:
            raise ConfigError("price", part, "give GPU=PRICE of an hour, for example h100=2.5")
        prices[named_gpu(name.strip()).name] = price
    return prices


def prices_of(price: Mapping[str, float] | None) -> dict[str, float]:
    """GPU -> price of an hour, of a mapping. Raises ConfigError."""
    if price is None:
        return {}
    if not isinstance(price, Mapping):
        raise ConfigError("price", price, 'give what each GPU costs for an hour: {"h100": 2.5}')
    try:
        return read_prices([[f"{gpu}={each}" for gpu, each in price.items()]])
    except ConfigError as error:
        raise ConfigError("price", error.value, error.marked_fix) from None


class ListPrices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one provider, for a plan of the least cost to which none were given: ``models/gpu_prices.toml``."""

    as_of: str
    source: str
    usd_per_hour: dict[str, float]

    @property
    def sentence(self) -> str:
        """Say whose prices these are, and how to give others."""
        return f"prices are in dollars, as listed in {self.as_of} by {self.source}; give yours with --price"


@cache
def list_prices() -> ListPrices:
    """Read the prices that come with the package."""
    return msgspec.convert(tomllib.loads(packaged("tokenyard.models", "gpu_prices.toml").decode()), ListPrices)
