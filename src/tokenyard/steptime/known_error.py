"""How well step times are known: the nearest measured deployments, what of the question was never measured, a range.

What is known depends on all that was asked. Everything that the nearest measured deployments do not have is a gap, and
every gap widens the range by what predictions were further off when just that was left out of the fit:

    gap          left out of the fit to learn its width
    model        a model, in all its precisions
    precision    a model in one precision, where another one stayed
    generation   a model on one generation of GPUs, where another one stayed
    gpu          a GPU, where its models stayed on another one of its generation; adds what a pair adds as well
    pair         a model on one GPU, where both stayed with others
    layout       a model on a GPU in one layout (TP, DP, PP, experts), where another one stayed
    kv_dtype     one format of keys and values, where another one stayed
    version      one version of vLLM, where another one stayed; grows with the root of the minor versions between
    users        the largest and the smallest loads; adds to TPOT what a generation adds as well
    prompts      the longest and the shortest prompts
    outputs      the longest and the shortest answers; all three grow with the root of the doublings beyond what was
                 measured
    term         nothing can be left out, for nothing was measured: counts as a layout, and the seconds that the term
                 takes may be off as far as constants that were estimated lay from what was fitted to measurements

The range of a load that was left out is the base; a model with points of its own has its own part in it, the larger
the more there are. Logarithms of what a gap adds are joined as independent errors, so that no gap ever makes a range
narrower. What each kind adds is scaled until the whole range holds nine of ten of what was left out, no more: a gap is
often as far off as two are that were measured together (conformal calibration, ``lab/known_ranges.py``).
``lab/fit_latency.py`` computes the figures, and how often ranges hold of folds that had no say in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.constants import (
    FEWEST_POINTS,
    Constants,
    MeasuredDeployment,
    minor_version,
    model_key,
    shipped_constants,
)
from tokenyard.steptime.formula import Parallelism, generation, named_generation

LEFT_OUT = {
    "load": "a fifth of the loads",
    "model": "a model, in all its precisions",
    "precision": "a model in one precision",
    "generation": "a model on one generation of GPUs",
    "gpu": "a GPU",
    "pair": "a model on one GPU",
    "layout": "a layout of a model on a GPU",
    "kv_dtype": "a format of the KV cache",
    "version": "a version of vLLM",
    "users": "the largest, and the smallest, loads",
    "prompts": "the longest, and the shortest, prompts",
    "outputs": "the longest, and the shortest, answers",
}
"""Kind of a gap -> what was left out of the fit to learn its width."""
_SHOWN_BY = {"term": ("layout",), "gpu": ("gpu", "pair"), "users": ("users", "generation")}
"""Gap -> kinds of folds that show what it adds, where it is not its own alone. Four GPUs that were left out say little
of the next; that a model and a GPU were not measured together adds to it. More users than any that stayed are off by
more than fewer, on either side of what the other three ends of loads tell: what a generation adds holds them."""
_SHOWN_BY_IN_TTFT = _SHOWN_BY | {"gpu": ("gpu", "pair", "generation"), "users": ("users",)}
"""Likewise for TTFT: what the host launches and the kernels for prompts are a server's as much as a GPU's. Without what
a generation adds, ranges held half of what was measured on the one GPU of four that was furthest off."""
_NEAR = 1.125
"""Loads within an eighth of measured ones count as measured: benchmarks file what they draw from 0.8 to 1 of a length
under that length, so that the mean of such a load lies a tenth below its name."""
_SHARED_POINTS = 20
"""Points of a model that count as much as those of all models together."""
QUANTITIES = ("tpot", "ttft", "e2e")
"""What has errors of its own; tokens a second of a closed loop are off as the inverse of a whole answer."""
_NEAREST, _NAMED = 3, 2
"""Measured deployments that are kept, and that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentLoad:
    """What is sent, as far as it is known; None is not asked about."""

    users: float | None = None
    """Requests in flight at once, on all data-parallel ranks."""
    input_tokens: float | None = None
    """Mean of the prompts."""
    output_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Something that takes time in a step, and that nothing measured."""

    name: str
    tpot_share: float
    """Its share of the time of a step that decodes."""
    ttft_share: float
    """Its share of the time of a step that computes prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDeployment:
    """Everything that step times depend on, as it was requested."""

    spec: ModelSpec
    gpu: GPU
    parallel: Parallelism = field(default_factory=Parallelism)
    kv_cache_dtype: str | None = None
    version: str | None = None
    """Version of vLLM; None: whichever was measured."""
    terms: tuple[Term, ...] = ()
    load: SentLoad = SentLoad()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far measured values lay from predictions."""

    median: float
    """Median of the absolute relative error."""
    low: float
    """Measured over predicted: 5 % of the points lay below."""
    high: float
    """Measured over predicted: 5 % of the points lay above."""

    def around(self, value: float) -> tuple[float, float]:
        """The range in which nine measured values of ten would lie."""
        return value * self.low, value * self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementGap:
    """Something that was asked and that the nearest measured deployments do not have."""

    kind: str
    """The kind as the table above names it."""
    what: str
    """What it is, in words."""
    apart: float = 0.0
    """How far the nearest is that was measured: minor versions of vLLM; doublings of users or tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownError:
    """What is known of a prediction."""

    gaps: tuple[MeasurementGap, ...]
    """What was not measured; nothing: all that was asked was."""
    nearest: tuple[MeasuredDeployment, ...]
    """The measured deployments that are nearest to what was asked, the nearest first."""
    tpot: Spread
    ttft: Spread
    e2e: Spread
    """The spread of whole answers."""
    newest_version: str
    """The newest vLLM of which anything was measured."""

    @property
    def familiarity(self) -> str:
        """Kinds of gaps in a word; ``measured`` where there is none."""
        return " + ".join(dict.fromkeys(gap.kind for gap in self.gaps)) or "measured"

    def spread_of(self, figure: str) -> tuple[float, float] | None:
        """Measured over predicted in nine cases of ten, of a figure's name: ``ttft``, ``e2e_ms.p90`` ...

        Waiting in the queue is as far off as TTFT, of which it is a part; tokens a second by the inverse of a whole
        answer. None of what takes no time.
        """
        name = figure.rpartition(":")[2].partition(".")[0].removesuffix("_ms")
        if name == "throughput":
            return 1 / self.e2e.high, 1 / self.e2e.low
        spreads = {"e2e": self.e2e, "ttft": self.ttft, "queue": self.ttft, "tpot": self.tpot, "itl": self.tpot}
        spread = spreads.get(name)
        return None if spread is None else (spread.low, spread.high)

    @property
    def sentence(self) -> str:
        """For the header of a report."""
        missing = f". Not measured: {', '.join(gap.what for gap in self.gaps)}" if self.gaps else ""
        found = "; ".join(str(each) for each in self.nearest[:_NAMED]) or "nothing like it"
        return f"{self.range_in_words}{missing}. Nearest measured: {found}"

    @property
    def range_in_words(self) -> str:
        """How far off, as it was where as much was left out of the fit, on a machine that is healthy."""
        tpot, ttft, e2e = self.tpot, self.ttft, self.e2e
        return (
            f"nine of ten within {tpot.low:.2f} to {tpot.high:.2f} times what is shown of TPOT, {ttft.low:.2f} to"
            f" {ttft.high:.2f} of TTFT, {1 / e2e.high:.2f} to {1 / e2e.low:.2f} of throughput"
        )


def known_error(
    asked: AskedDeployment, constants: Constants | None = None, *, told: AskedDeployment | None = None
) -> KnownError:
    """How well the step times of what was asked are known.

    ``told``: a deployment whose step times were measured, and that the question is relative to; its vLLM, and terms
    that it has as well, are no gaps.
    """
    constants = constants or shipped_constants()
    if told is not None:
        names = {term.name for term in told.terms}
        terms = tuple(term for term in asked.terms if term.name not in names)
        asked = replace(asked, terms=terms, version=None if asked.version == told.version else asked.version)
    gaps, reference = gaps_of(asked, constants)
    spreads = {each: _spread(widths_of(asked, constants, each, gaps, reference), asked, each) for each in QUANTITIES}
    spreads["e2e"] = _between(spreads["e2e"], spreads["tpot"], spreads["ttft"])
    key = model_key(asked.spec)
    nearest = tuple(sorted(reference, key=lambda each: _distance(asked, key, each))[:_NEAREST])
    return KnownError(gaps=tuple(gaps), nearest=nearest, newest_version=constants.newest_version, **spreads)


def plain_kv_dtype(dtype: str | None, spec: ModelSpec) -> str:
    """The format of keys and values as measured deployments name it: ``auto`` is the model's own."""
    own = spec.kv_cache_dtype or spec.dtype
    name = own if dtype in (None, "auto") else str(dtype)
    return "fp8" if name.startswith("fp8") else "auto" if name in (spec.dtype, "bfloat16", "float16") else name


# ---- gaps


def gaps_of(asked: AskedDeployment, constants: Constants) -> tuple[list[MeasurementGap], list[MeasuredDeployment]]:
    """What was not measured of what was asked, and the measured deployments that say so."""
    gaps, reference = _of_model_and_gpu(asked, constants)
    return gaps + _of_the_rest(asked, reference), reference


def _of_model_and_gpu(
    asked: AskedDeployment, constants: Constants
) -> tuple[list[MeasurementGap], list[MeasuredDeployment]]:
    """What is missing of them, and the measured deployments to compare the rest with."""
    spec, gpu, everything = asked.spec, asked.gpu, constants.deployments
    key, age = model_key(spec), generation(gpu)
    shape, _, form = key.partition(":")
    same_age = [each for each in everything if named_generation(each.gpu) == age]
    steps: list[tuple[list[MeasuredDeployment], list[MeasurementGap]]] = [
        ([each for each in same_age if each.key == key and each.gpu == gpu.name], []),
        ([each for each in same_age if each.key == key], [_elsewhere(asked, constants)]),
    ]
    precision = MeasurementGap(kind="precision", what=f"{spec.name} with weights of {spec.weight_format.name}")
    on_age = MeasurementGap(kind="generation", what=f"{spec.name} on {age} GPUs")
    own_gpu = [] if constants.measured_gpu(gpu) else [_unmeasured(gpu)]
    siblings = [each for each in same_age if each.shape == shape]
    steps.append(([each for each in siblings if each.gpu == gpu.name], [precision]))
    steps.append((siblings, [precision, _elsewhere(asked, constants)]))
    steps.append(([each for each in everything if each.key == key], [on_age, *own_gpu]))
    steps.append(([each for each in everything if each.shape == shape], [precision, on_age, *own_gpu]))
    for reference, gaps in steps:
        if sum(each.points for each in reference) >= FEWEST_POINTS:
            return list(gaps), reference
    reference = [each for each in everything if each.gpu == gpu.name] or same_age or list(everything)
    gaps = [MeasurementGap(kind="model", what=spec.name), *own_gpu]
    if form not in {each.key.partition(":")[2] for each in reference}:
        gaps.append(MeasurementGap(kind="precision", what=f"weights of {spec.weight_format.name} on {age} GPUs"))
    return gaps, reference


def _elsewhere(asked: AskedDeployment, constants: Constants) -> MeasurementGap:
    """The model was measured on another GPU of the generation: was this one, with other models?"""
    if constants.measured_gpu(asked.gpu):
        return MeasurementGap(kind="pair", what=f"{asked.spec.name} on {asked.gpu.name}")
    return _unmeasured(asked.gpu)


def _unmeasured(gpu: GPU) -> MeasurementGap:
    return MeasurementGap(kind="gpu", what=gpu.name)


def _of_the_rest(asked: AskedDeployment, reference: Sequence[MeasuredDeployment]) -> list[MeasurementGap]:
    gaps = []
    if all(each.layout != _layout(asked.parallel) for each in reference):
        gaps.append(MeasurementGap(kind="layout", what=MeasuredDeployment.layout_in_words(*_layout(asked.parallel))))
    kv_dtype = plain_kv_dtype(asked.kv_cache_dtype, asked.spec)
    if all(each.kv_dtype != kv_dtype for each in reference):
        gaps.append(MeasurementGap(kind="kv_dtype", what=f"KV {kv_dtype}"))
    if asked.version is not None and all(asked.version not in each.versions for each in reference):
        gaps.append(_of_version(asked.version, reference))
    gaps += _of_load(asked.load, reference)
    gaps += [MeasurementGap(kind="term", what=term.name) for term in asked.terms]
    return gaps


def _of_version(version: str, reference: Sequence[MeasuredDeployment]) -> MeasurementGap:
    number = minor_version(version)
    measured = {each: minor_version(each) for one in reference for each in one.versions}
    known = {each: found for each, found in measured.items() if found is not None}
    if number is None or not known:
        return MeasurementGap(kind="version", what=f"vLLM {version}")
    newest = max(known, key=lambda each: known[each])
    apart = min(abs(number - found) for found in known.values())
    return MeasurementGap(kind="version", what=f"vLLM {version} (the newest is {newest})", apart=apart)


def _of_load(load: SentLoad, reference: Sequence[MeasuredDeployment]) -> Iterator[MeasurementGap]:
    checks = (
        ("users", "requests at once", load.users, [each.users for each in reference]),
        ("prompts", "prompt tokens", load.input_tokens, [each.input_tokens for each in reference]),
        ("outputs", "output tokens", load.output_tokens, [each.output_tokens for each in reference]),
    )
    for kind, unit, value, spans in checks:
        least, most = min(span[0] for span in spans), max(span[1] for span in spans)
        if value is not None and not least / _NEAR <= value <= most * _NEAR:
            apart = max(math.log2(least / value), math.log2(value / most)) if value > 0 else 0.0
            yield MeasurementGap(kind=kind, what=f"{value:,.0f} {unit} ({least:,} to {most:,} were)", apart=apart)


def _layout(parallel: Parallelism) -> tuple[int, int, int, bool]:
    return parallel.tensor, parallel.data, parallel.pipeline, parallel.expert


def _distance(asked: AskedDeployment, key: str, one: MeasuredDeployment) -> tuple[float, ...]:
    """Small is near: another layout counts before another KV format, and that before another version."""
    sizes = zip(_layout(asked.parallel)[:3], one.layout[:3], strict=True)
    apart = sum(abs(math.log2(a / b)) for a, b in sizes) + (asked.parallel.expert != one.layout[3])
    same_kv = plain_kv_dtype(asked.kv_cache_dtype, asked.spec) == one.kv_dtype
    of_model = key != one.key, asked.gpu.name != one.gpu
    sizes_apart = abs(math.log(asked.spec.num_layers * asked.spec.hidden_size / one.size))
    return (*of_model, sizes_apart, apart, not same_kv, -one.points)


# ---- ranges


class Width(NamedTuple):
    """How far one part of a range reaches: a median error, and logarithms of both ends, both positive."""

    median: float
    low: float
    high: float

    def scaled(self, by: float) -> Width:
        """The same, so many times as wide."""
        return Width(*(each * by for each in self))


class Widths(NamedTuple):
    """What a range is made of."""

    base: Width
    gaps: tuple[tuple[str, Width], ...]
    """What each kind of gap adds."""
    estimates: Mapping[str, float]

    @property
    def joined(self) -> Width:
        """All of it, as independent errors."""
        return Width(*(math.hypot(*each) for each in zip(self.base, *(own for _, own in self.gaps), strict=True)))


def widths_of(
    asked: AskedDeployment,
    constants: Constants,
    quantity: str,
    gaps: Sequence[MeasurementGap],
    reference: Sequence[MeasuredDeployment],
) -> Widths:
    """The base of the reference's models, and what every gap adds to it."""
    errors = constants.errors(quantity)
    keys = {each.key for each in reference} if all(gap.kind != "model" for gap in gaps) else set[str]()
    own = [constants.error_of_model(quantity, key) for key in sorted(keys)] or [errors["load"]]
    base = Width(*map(max, zip(*(_blended(each, errors["load"]) for each in own), strict=True)))
    shown_by = _SHOWN_BY if quantity == "tpot" else _SHOWN_BY_IN_TTFT
    added = [(gap.kind, _added(errors, gap, shown_by.get(gap.kind, (gap.kind,)))) for gap in gaps]
    return Widths(base.scaled(errors["load"].get("scale", 1.0)), tuple(added), constants.estimates)


def _blended(own: Mapping[str, float], everything: Mapping[str, float]) -> Width:
    """What loads of one model are off by, as far as its points say, and else those of all."""
    share = own["n"] / (own["n"] + _SHARED_POINTS)
    both = zip(_width(own), _width(everything), strict=True)
    return Width(*(math.sqrt(share * a * a + (1 - share) * b * b) for a, b in both))


def _spread(widths: Widths, asked: AskedDeployment, quantity: str) -> Spread:
    """The whole, and what the seconds of terms may be off by that nothing measured."""
    median, low, high = widths.joined
    down, up = 1.0, 1.0
    for term in asked.terms:
        share = term.ttft_share if quantity == "ttft" else term.tpot_share
        median = math.hypot(median, share * widths.estimates["median"])
        down *= max(widths.estimates["low"], 1 - share * (1 - widths.estimates["low"]))
        up *= 1 + share * (widths.estimates["high"] - 1)
    return Spread(median=median, low=math.exp(-low) * down, high=math.exp(high) * up)


def _between(whole: Spread, tpot: Spread, ttft: Spread) -> Spread:
    """The range of a whole answer, which cannot be further off than both of its parts."""
    low, high = min(tpot.low, ttft.low), max(tpot.high, ttft.high)
    return replace(whole, low=max(whole.low, low), high=min(whole.high, high))


def _added(errors: Mapping[str, Any], gap: MeasurementGap, kinds: Sequence[str]) -> Width:
    """What one gap adds to the median error, and to the logarithms of both ends: as folds of ``kinds`` show it."""
    found = [_beyond(errors["load"], errors[kind]) for kind in kinds]
    own = errors[gap.kind if gap.kind in errors else kinds[0]]
    further = math.sqrt(max(1.0, gap.apart / own["apart"])) if gap.apart else 1.0
    joined = Width(*(math.hypot(*each) for each in zip(*found, strict=True)))
    return joined.scaled(further * own.get("scale", 1.0))


def _beyond(base: Mapping[str, float], found: Mapping[str, float]) -> Width:
    """The median error, and logarithms of both ends, less those of the base as of an independent error."""
    both = zip(_width(base), _width(found), strict=True)
    return Width(*(math.sqrt(max(0.0, with_gap**2 - without**2)) for without, with_gap in both))


def _width(found: Mapping[str, float]) -> Width:
    return Width(found["median"], -math.log(found["low"]), math.log(found["high"]))
