"""What a plan or sweep was asked and has come to: its identity, its space, what is kept on disk, how far it may be
off.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from glob import glob
from hashlib import blake2s
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.deploy.given import changed
from tokenyard.deploy.header import load_of
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.explain.slo import SLO
from tokenyard.models.gpus import named_gpu
from tokenyard.questions.by_class import bounds_by_class, read_bounds
from tokenyard.questions.planning.goal import Goal, value_of
from tokenyard.questions.planning.search import Trying
from tokenyard.questions.recorded.ask import replay_as_it_was
from tokenyard.questions.scenario import Say, Scenario
from tokenyard.questions.sweeping.measuring import VariantWorker
from tokenyard.questions.sweeping.rows import Journal, Row, Setting, words_of
from tokenyard.questions.sweeping.variants import Grid, read_grid
from tokenyard.questions.variant_sources import RecordedVariants, WorkloadVariants, is_trace
from tokenyard.questions.variants import check_split, is_load, read_shapes
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.version import __version__
from tokenyard.workload.load import doubt_of_policy
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# What ``plan`` and ``sweep`` were asked: the source, prices, and what makes rows of theirs comparable.

KnownSource = WorkloadVariants | RecordedVariants
_CHUNK = 1 << 20


def source_of(scenario: Scenario) -> KnownSource:
    """The trace, or the workload with the deployment."""
    if isinstance(scenario.workload, str) and is_trace(scenario.workload):
        return RecordedVariants(scenario.workload)
    return WorkloadVariants(scenario)


def measuring_for(
    scenario: Scenario, source: KnownSource, prices: Mapping[str, float], traces: Path | None = None
) -> VariantWorker:
    """The worker. Raises ConfigError for a bound that is none."""
    return VariantWorker(
        source=source,
        slos=read_bounds(scenario.slo, scenario.by),
        by=scenario.by,
        prices=prices,
        traces=None if traces is None else traces.absolute(),
    )


def with_classes(job: VariantWorker, workload: Workload) -> VariantWorker:
    """The same, each bound with the class of the workload's that it is of. Raises ConfigError for one there is not."""
    return job if job.by is None else replace(job, slos=bounds_by_class(job.slos, workload, job.by))


def say_idle_policies(source: KnownSource, policies: Iterable[Any], say: Say) -> None:
    """Warn of policies that find nothing in the workload to decide by: those requested, or else the source's own."""
    for policy in dict.fromkeys(map(str, policies)) or (source.policy,):
        doubt = doubt_of_policy(policy, source.workload)
        if doubt is not None:
            say(f"{policy} has nothing to decide by: {doubt}")


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
    return read_prices([[f"{gpu}={each}" for gpu, each in price.items()]])


def identity_of(
    scenario: Scenario, prices: Mapping[str, float], around: Mapping[str, Any], grid: Grid | None = None
) -> Mapping[str, Any]:
    """All that rows of a sweep depend on, apart from their own settings; JSON can hold it.

    ``around`` is what else they depend on. Whether a variant of a plan is replayed to its end depends on the others, so
    a plan's ``grid`` belongs to it.
    """
    groups = ("arrivals", "hardware", "scheduler", "parallel", "adapters", "transfer", "speculation")
    asked = scenario.launch.asked
    workload = scenario.workload
    known: dict[str, Any] = {
        "tokenyard": __version__,
        "workload": scenario.name,
        "contents": contents_of(workload),
        **{f"contents of {each}": _contents(Path(each)) for each in scenario.more},
        "vllm_version": scenario.launch.vllm_version,
        "ignore_unmodelled": scenario.launch.ignore_unmodelled,
        "vllm_flags": sorted(str(each) for each in asked.given),
        "environment": dict(sorted(asked.environment.items())),
        **{group: asdict(getattr(scenario, group)) for group in groups},
        "slo": [str(slo) for slo in read_bounds(scenario.slo, scenario.by)],
        "by": scenario.by,
        "price": dict(prices),
        **around,
    }
    if grid is not None:
        known["grid"] = [[name, list(values)] for name, values in grid.dimensions]
    return known | {"files": _files(known)}


def contents_of(workload: str | Workload) -> str | None:
    """A digest of what arrives: of a workload that was made in Python, or of its file; None for a built-in one."""
    if isinstance(workload, Workload):
        what = list(workload), workload.max_concurrency, workload.clients
        return blake2s(pickle.dumps(what), digest_size=16).hexdigest()
    return _contents(Path(workload))


def _files(known: Any) -> dict[str, str | None]:
    """Digests of the files that are named in it: a model's config.json, a policy's FILE.py:CLASS, a trace to fit to."""
    if isinstance(known, Mapping):
        return _files(list(known.values()))
    if isinstance(known, list | tuple):
        return {name: digest for each in known for name, digest in _files(each).items()}
    if not isinstance(known, str):
        return {}
    before, colon, behind = known.rpartition(":")
    path = next((path for path in (known, before) if os.path.isfile(path)), behind if colon else "")  # noqa: PTH113
    return {known: _contents(Path(path))} if path and os.path.exists(path) else {}  # noqa: PTH110 - never raises


def _contents(path: Path) -> str | None:
    """A digest of the file, or of all files of a directory or a pattern; None where there is none."""
    digest = blake2s(digest_size=16)
    fitting = [path] if path.exists() else [Path(each) for each in glob(str(path))]  # noqa: PTH207 - as it is read
    if not fitting:
        return None
    for each in sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else sorted(fitting):
        digest.update(each.name.encode())
        with each.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# What a plan may choose from: as requested, or what people change first.

Space = Mapping[str, Any] | Iterable[str] | str
"""Settings and their values: ``{"max_num_seqs": [64, 256]}``, or texts as for ``--set``."""

DEFAULT = (
    "max_num_seqs=64,128,256,512",
    "max_num_batched_tokens=2048,4096,8192,16384",
    "long_prefill_token_threshold=0,1024",
)
"""32 variants."""
COSTLY = frozenset(("gpu", "split", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "replicas"))
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
            pairs = [source.convert(given, value, field) for value in several]
            if not pairs or pairs[0][0] in dimensions:
                fix = "give at least one value" if not pairs else f"{pairs[0][0]} is given twice: give it once"
                raise ConfigError(field, given, fix)
            dimensions[pairs[0][0]] = tuple(dict.fromkeys(value for _, value in pairs))
        return Grid(list(dimensions.items()))
    texts = () if space is None else (space,) if isinstance(space, str) else tuple(space)
    for each in texts:
        if not isinstance(each, str):
            fix = 'give settings with their values, {"max_num_seqs": [64, 128]}; a list of variants is variants=[...]'
            raise ConfigError(field, each, fix)
    return read_grid(texts, partial(source.convert, flag=field), field)


def space_of(
    space: Space | None,
    source: KnownSource,
    *,
    gpus: Sequence[str] = (),
    splits: Iterable[str] = (),
    field: str = "space",
) -> Grid:
    """The settings that a plan may choose from, and their values; without a ``space`` what people change first.

    Raises ConfigError.
    """
    grid = grid_of(space or DEFAULT, source, field)
    dimensions: list[tuple[str, tuple[Setting, ...]]] = list(grid.dimensions)
    shapes = read_shapes(splits)
    if shapes:
        if any(name == "split" for name, _ in dimensions):
            raise ConfigError(field, "split", "§split names some as well: give one of them")
        source.convert("split", shapes[0], "split")
        dimensions.insert(0, ("split", shapes))
    if len(gpus) > 1:
        if any(name == "gpu" for name, _ in dimensions):
            raise ConfigError(field, "gpu", "§gpu names several as well: give one of them")
        dimensions.insert(0, ("gpu", tuple(dict.fromkeys(gpus))))
    for name, values in dimensions:
        if is_load(name):
            fix = "another workload is no choice of a server's: give it as a flag, or vary it with tokenyard sweep"
            raise ConfigError(field, name, fix)
        for value in values:
            source.convert(name, value, field)
            if name == "split" and value is not None and isinstance(source, WorkloadVariants):
                run = changed(source.run, {name: value})
                check_split(run, run.split_settings)
    return Grid(dimensions)


# ---------------------------------------------------------------------------------------------------------------------
# What a plan has come to so far: on disk, and in words when it is interrupted.


@contextmanager
def kept_progress(output: Path | None, identity: Mapping[str, Any], say: Say) -> Iterator[Journal | None]:
    """Where the rows of a plan are kept: in ``output``, or in a folder of the user's that goes when the plan is whole.

    None where there is no ``output`` and that folder cannot be written: then nothing is kept. Raises ConfigError if
    another process is at the same plan, or ``output`` holds something else.
    """
    if output is not None:
        with Journal(output, identity) as journal:
            yield journal
        return
    folder = _folder_of(identity, say)
    if folder is None:
        yield None
        return
    with Journal(folder, identity) as journal:
        if journal.rows:
            say(f"{len(journal.rows):,} variants were finished by an earlier call of this plan: it goes on from there")
        try:
            yield journal
        except BaseException:
            if not journal.rows:
                journal.remove()
            raise
        journal.remove()


def _folder_of(identity: Mapping[str, Any], say: Say) -> Path | None:
    """The same for the same plan; None, and a warning, where it cannot be made."""
    digest = blake2s(msgspec.json.encode(identity, order="sorted"), digest_size=12).hexdigest()
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is no home
    cache = given if given.is_absolute() else home / ".cache"
    folder = cache / "tokenyard" / "plans" / digest
    try:
        if not folder.is_absolute():
            raise OSError("there is no home")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(f"the progress of this plan is not kept: {folder} cannot be written ({error.strerror or error})")
        return None
    return folder


def say_so_far(trying: Trying, goal: Goal, tries: int, say: Say, *, is_kept: bool) -> None:
    """The best variant so far, and how to go on."""
    say(f"{len(trying.rows):,} of at most {tries:,} variants were tried")
    best = trying.best
    if best is None:
        say("none of them is within every bound")
    else:
        value = value_of(best, goal)
        reaches = "" if value is None else f", with {value:,.4g} {goal.unit}"
        say(f"the best so far: {words_of(best.settings)}{reaches}; another may be better")
    if is_kept:
        say("the same command goes on with the others")


# ---------------------------------------------------------------------------------------------------------------------
# How far a plan may be off, and what it cannot know, in words.

_SAID = ("KV blocks",)
"""Assumptions of a deployment that are estimates."""


def uncertainty_of(source: WorkloadVariants | RecordedVariants, row: Row, slos: Sequence[SLO]) -> Iterator[str]:
    """Sentences on how far the recommended variant's figures may be off."""
    if isinstance(source, RecordedVariants):
        yield from _of_a_trace(source)
        return
    setup = source.setup(row.settings)
    deployment = setup.deployment
    yield f"step times ({deployment.step_time}): {deployment.step_time_error}"
    if isinstance(setup.latency, CalibratedLatency):
        known = setup.latency.known_error(load_of(setup.workload))
        for slo in slos:
            spread = {"ttft": known.ttft, "tpot": known.tpot, "itl": known.tpot}.get(slo.figure)
            value = row.figures.get(slo.key)
            if spread is not None and value is not None:
                yield _range(slo, value, *spread.around(value))
    yield from (str(each) for each in deployment.assumed if each.name in _SAID)


def _range(slo: SLO, value: float, low: float, high: float) -> str:
    if high <= slo.bound_ms:
        verdict = "the bound holds all over it"
    else:
        verdict = "the bound may be missed" if value <= slo.bound_ms else "the bound may hold all the same"
        verdict = "the bound is missed all over it" if low > slo.bound_ms else verdict
    return f"{slo.name} {value:,.0f} ms reads as {low:,.0f} to {high:,.0f} ms, in nine cases of ten: {verdict}"


def _of_a_trace(source: RecordedVariants) -> Iterator[str]:
    run = source.run
    if run.fit.median_error is not None and run.fit.total_error is not None:
        yield (
            f"step times are fitted to the trace: of steps that the fit has not seen half are within"
            f" {run.fit.median_error:.1%}, all together {run.fit.total_error:+.1%}"
        )
    try:
        check = replay_as_it_was(run).check
    except TokenyardError as error:
        yield f"the run as it was could not be replayed: {error}"
        return
    off = ", ".join(
        f"{name} {share:+.1%}"
        for name in ("ttft_ms.p90", "tpot_ms.p90", "e2e_ms.p90")
        if (share := check.error_of(name)) is not None
    )
    doubt = "" if check.holds else ": a poor fit, and the plan rests on it"
    yield f"the run as it was, replayed, is off by {off}{doubt}"


def unknown_of(source: WorkloadVariants | RecordedVariants, row: Row, *, has_load: bool) -> Iterator[str]:
    """What neither a workload nor a trace can know, and what the recommended variant takes for granted."""
    arrivals = source.run.arrivals if isinstance(source, WorkloadVariants) else None
    if arrivals is not None and arrivals.client_timeout is not None:
        yield "answers keep their lengths; clients that would send more do not; a bound is on attempts, not on requests"
    else:
        yield "answers keep their lengths, and clients that would send more, or give up, do neither"
    if arrivals is not None and arrivals.front_end_delay is not None:
        yield "the way back of an answer (detokenisation, network) is not in it"
    elif isinstance(source, WorkloadVariants):
        yield "the time of front end, network and tokenisation is not in it (--front-end-delay)"
    else:
        yield "the way back of an answer (detokenisation, network) is not in it"
    if isinstance(source, WorkloadVariants) and row.settings.get("split") is not None:
        speed = changed(source.run, row.settings).split_settings.kv_link_gb_per_s
        yield f"KV goes at {speed:g} GB/s from GPU to GPU (--kv-link-gb-per-s), and the proxy takes no time"
    if has_load:
        yield "a larger load is the same requests, closer together: no other prompts, no other users"
    if isinstance(source, RecordedVariants):
        yield "another GPU, another parallelism and their prices: a trace is planned on the GPU that it ran on"
    elif source.run.launch.asked.given == () and "gpu" not in source.run.launch.asked.named:
        yield f"no GPU or model was named: {source.run.hardware.gpu} and {source.run.hardware.model} are assumed"
