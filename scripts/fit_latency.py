"""Fit the constants of the calibrated step times and write ``constants.json``.

    python scripts/fit_latency.py POINTS.csv.gz --profiles FOLDER ... [--write]

POINTS is a table of measured points (docs/accuracy.md), a profile is a folder of LLMServingSim kernel timings, named
``lss_<GPU>_<model>``. Prints what it fits, what came out, and the errors when a fifth of the points, one model or one
GPU at a time is left out; those errors are shipped with the constants, and are what a report says of a prediction.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from step_time_fit import Fit, Priors, Sheet, Target
from tokenyard.kv.sizing.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.sim.accuracy.points import Point, read_points
from tokenyard.sim.latency.estimates import LATENCY as ALL_REDUCE_FLOOR
from tokenyard.sim.latency.lss import load_lss
from tokenyard.sim.latency.model import StepShape, StepWork
from tokenyard.sim.latency.steptime.amounts import Parallelism
from tokenyard.sim.latency.steptime.constants import model_key

__all__ = ["main"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.str_]

TARGET = Path(__file__).resolve().parent.parent / "src/tokenyard/sim/latency/steptime/constants.json"
FOLDS = 5
FEWEST = 10
"""Points of a model from which its own error is told, not that of all."""
PROVENANCE = (
    "{points} measured points of vLLM 0.11 to 0.19 on {gpus} (ai-dynamo/aiconfigurator, Apache-2.0; InferenceX's runs"
    " among them) and kernel timings of {profiled} (LLMServingSim, MIT); fitted by scripts/fit_latency.py"
)
PRIORS = Priors(
    common={
        "gemm_bfloat16": (0.7, 0.2),
        "gemm_float8": (0.6, 0.25),
        "gemm_float4": (0.5, 0.3),
        "memory_16": (0.85, 0.1),
        "memory_8": (0.8, 0.12),
        "memory_4": (0.7, 0.2),
        "experts_bfloat16": (0.35, 0.5),
        "experts_float8": (0.35, 0.5),
        "experts_float4": (0.3, 0.5),
        "expert_memory_16": (0.65, 0.25),
        "expert_memory_8": (0.65, 0.25),
        "expert_memory_4": (0.6, 0.25),
        "spread": (0.8, 0.1),
        "imbalance": (0.3, 0.7),
        "tile": (8.0, 0.7),
        "kv_memory": (0.75, 0.15),
        "mixed_rows": (20.0, 1.0),
        "latent": (0.4, 0.5),
        "attention": (0.5, 0.3),
        "state_memory": (0.6, 0.01),
        "elementwise": (0.7, 0.3),
        "link": (0.5, 0.4),
        "all_reduce": (8e-6, 0.5),
        "all_to_all": (3e-5, 0.8),
        "layer": (5e-6, 0.7),
        "expert_layer": (1e-5, 0.7),
        "step": (1e-3, 0.7),
        "sequence": (5e-6, 0.8),
        "mixed_layer": (2e-5, 1.0),
        "launch_step": (2e-3, 1.0),
        "launch_layer": (5e-5, 1.0),
        "launch_expert_layer": (1e-4, 1.0),
        "eager_layer": (1e-4, 1.0),
        "eager_expert_layer": (2e-4, 1.0),
        "request": (1e-2, 1.0),
        "request_token": (1e-6, 1.0),
    },
    gpu={
        "gemm": 0.15,
        "memory": 0.1,
        "expert_memory": 0.15,
        "kv_memory": 0.15,
        "experts": 0.2,
        "attention": 0.2,
        "all_reduce": 0.3,
        "layer": 0.3,
        "expert_layer": 0.3,
        "launch": 0.3,
        "mixed_layer": 0.3,
        "step": 0.3,
        "link": 0.3,
    },
    profiled_gpu={
        "mixed_rows": 1.0,
        "gemm": 0.4,
        "memory": 0.2,
        "expert_memory": 0.4,
        "kv_memory": 0.4,
        "experts": 0.7,
        "attention": 0.7,
        "elementwise": 0.5,
        "layer": 1.0,
        "expert_layer": 1.0,
        "mixed_layer": 1.0,
        "step": 1.0,
        "sequence": 1.0,
    },
    model={
        "gemm": 0.2,
        "memory": 0.1,
        "experts": 0.45,
        "expert_memory": 0.35,
        "attention": 0.3,
        "kv_memory": 0.2,
        "layer": 0.3,
        "expert_layer": 0.4,
        "step": 0.4,
        "mixed_layer": 0.8,
        "launch": 0.5,
        "request": 0.5,
        "request_token": 0.5,
        "all_reduce": 0.3,
        "sequence": 0.4,
    },
    version={
        "experts": 0.15,
        "expert_memory": 0.1,
        "expert_layer": 0.2,
        "step": 0.2,
        "launch": 0.2,
        "gemm": 0.1,
        "mixed_layer": 0.3,
        "attention": 0.15,
        "request": 0.3,
    },
)
"""Shares of the data sheet that kernels usually reach, costs in seconds, and how much they vary."""
PCIE = {"link": 0.26, "all_reduce": 3.8e-5, "all_to_all": 7.6e-5}
"""Not fitted, for there are no measured points to fit them to: what NCCL is known to reach between two GPUs without
NVLink, some 17 of PCIe 5's 64 GB/s and 40 us for the smallest message."""
PROFILED_STEP = 1.2e-3
"""Seconds of a step beside the kernels that were profiled: meets the measured runs of Llama-3.1-8B on both GPUs."""
_PROFILES = {
    "Llama-3.1-8B": ("llama-3.1-8b", 1),
    "Qwen3-30B-A3B-Instruct-2507": ("qwen3-30b-a3b", 1),
    "Qwen3-32B": ("qwen3-32b", 2),
}
"""Profiled model -> our name, tensor-parallel size. The profiles hold no all-reduce."""


class LeftOut(NamedTuple):
    """Predictions of points by fits that did not see them."""

    groups: Groups
    """With what each point was left out."""
    target: Target


COVERED = 0.9
"""Share of the points of groups that had no say in it which a range has to hold."""


def main() -> None:
    """Fit, cross-validate, print; write with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("--profiles", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=14, help="rounds of the fit to everything")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    args = parser.parse_args()
    began = time.monotonic()
    points, unread = read_points(args.points)
    sheets = [sheet for folder in args.profiles if (sheet := _sheet(folder)) is not None]
    print(f"{len(points)} points, {len(unread)} not compared, {len(sheets)} profiles")
    fit = Fit(points, sheets, PRIORS)
    everything = np.ones(len(points), bool)
    logs = fit.solve(everything, rounds=args.rounds)
    print(f"{len(logs)} logarithms fitted in {time.monotonic() - began:.0f} s\n")
    _print_constants(fit, logs)
    for name, errors in fit.sheet_errors(logs):
        print(f"steps of {name}: median {np.median(abs(errors)):.1%}, p90 {np.quantile(abs(errors), 0.9):.1%}")
    left_out = _cross_validate(fit, logs)
    print(f"nothing left out: {_line(fit, fit.predict(logs), everything)}")
    if args.write:
        TARGET.write_text(json.dumps(_data(fit, logs, left_out), indent=1) + "\n")
        print(f"\nwrote {TARGET}")


def _sheet(folder: Path) -> Sheet | None:
    """Steps of all sizes, as the profile's tables say they last."""
    _, gpu_name, model_name = folder.name.split("_", 2)
    if model_name not in _PROFILES:
        return None
    name, tensor = _PROFILES[model_name]
    spec, gpu = MODELS[name], named_gpu(gpu_name)
    no_link = replace(gpu, link_bandwidth=math.inf)
    floor = 2 * spec.num_layers * ALL_REDUCE_FLOOR if tensor > 1 else 0.0
    table = load_lss(folder, spec, gpu=no_link, tensor_parallel_size=tensor, step_overhead=PROFILED_STEP - floor)
    rng = np.random.default_rng(1)
    work, seconds = [], []
    for decodes in (0, 1, 2, 4, 8, 16, 32, 64, 128, 200, 256):
        for chunk in (0, 0, 64, 256, 512, 1024, 1500, 2000):
            if not decodes + chunk:
                continue
            context = rng.integers(64, 2048, decodes)
            prompts = np.full(min(1, chunk), chunk)
            before = np.zeros(len(prompts), np.int64)
            new = np.concatenate((np.ones(decodes, np.int64), prompts))
            shape = StepShape(new, np.concatenate((context, before)), len(new), int(new.sum()))
            work.append([StepWork.of(shape)])
            seconds.append(table.step_seconds(shape))
    parallel = Parallelism(tensor=tensor)
    return Sheet(spec=spec, gpu=gpu, parallel=parallel, work=np.array(work, np.float64), seconds=np.array(seconds))


def _print_constants(fit: Fit, logs: Floats) -> None:
    factors = fit.factors(logs)
    print("constant               fitted      prior")
    for name, value in factors[""].items():
        print(f"{name:20} {value:10.4g} {PRIORS.common[name][0]:10.4g}")
    print("\nfactors that differ from 1 by more than a fifth")
    for owner, own in factors.items():
        far = {name: value for name, value in own.items() if owner and not 1 / 1.2 < value < 1.2}
        if far:
            print(f"  {owner}: " + ", ".join(f"{name} {value:.2f}" for name, value in far.items()))
    print()


def _cross_validate(fit: Fit, logs: Floats) -> dict[str, LeftOut]:
    """Kind of familiarity -> predictions by fits that left the point out."""
    rng = np.random.default_rng(0)
    fold_of: dict[object, int] = {}
    folds = [fold_of.setdefault(_load(point), int(rng.integers(FOLDS))) for point in fit.points]
    kinds: dict[str, Callable[[int], object]] = {
        "measured": lambda i: f"fold {folds[i]}",
        "other_model": lambda i: fit.points[i].model,
        "other_gpu": lambda i: fit.points[i].gpu.name,
    }
    found = {}
    for kind, group_of in kinds.items():
        groups = np.array([str(group_of(i)) for i in range(len(fit.points))])
        ttft, tpot = np.ones(len(groups)), np.ones(len(groups))
        for group in sorted(set(groups.tolist())):
            out = groups == group
            target = fit.predict(fit.solve(~out, start=logs, rounds=3))
            ttft[out], tpot[out] = target.ttft[out], target.tpot[out]
            print(f"left out {group}: {_line(fit, Target(ttft, tpot), out)}", flush=True)
        found[kind] = LeftOut(groups, Target(ttft, tpot))
    return found


def _load(point: Point) -> object:
    """Points of one load on one deployment, whoever measured them and with which version."""
    key = model_key(point.spec), point.gpu.name, point.parallel
    return (*key, point.input_tokens, point.output_tokens, point.users)


def _ratios(fit: Fit, quantity: str, target: Target) -> Floats:
    """Measured over predicted, of every point."""
    measured = np.array([getattr(point, quantity) for point in fit.points])
    ratios: Floats = measured / getattr(target, quantity)
    return ratios


def _summary(ratios: Floats) -> dict[str, float]:
    errors = abs(1 / ratios - 1)
    median, p90 = np.quantile(errors, (0.5, 0.9))
    return {"median": round(float(median), 4), "p90": round(float(p90), 4), "n": len(ratios)}


def _range(ratios: Floats, groups: Groups) -> dict[str, float]:
    """Between what nine points of ten lie, also of a group that had no say in it: it is widened until they do.

    ``covered`` is their share, each group judged by the range that the others make, widened alike.
    """
    low, high = _ends(ratios, groups)
    if len(set(groups.tolist())) == 1:
        return {"low": round(low, 4), "high": round(high, 4)}
    inside, wider = _inside(ratios, groups)
    covered = round(float(inside.mean()), 4)
    return {"low": round(low**wider, 4), "high": round(high**wider, 4), "covered": covered}


def _inside(ratios: Floats, groups: Groups) -> tuple[Mask, float]:
    """Which points lie within the range that the other groups make, widened by an exponent until enough do."""
    ends = {group: _ends(ratios[groups != group], groups[groups != group]) for group in set(groups.tolist())}
    low = np.array([min(ends[group][0], 1.0) for group in groups.tolist()])
    high = np.array([max(ends[group][1], 1.0) for group in groups.tolist()])
    wider = 1.0
    while True:
        inside: Mask = (ratios >= low**wider) & (ratios <= high**wider)
        if inside.mean() >= COVERED:
            return inside, wider
        wider += 0.01


def _ends(ratios: Floats, groups: Groups) -> tuple[float, float]:
    """What 5 % lie below and 5 % above; a group counts by the square root of its points, lest one decide."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(ratios)
    weights = np.cumsum((counts**-0.5)[group][order])
    ends = np.interp((0.05, 0.95), (weights - weights[0]) / (weights[-1] - weights[0]), ratios[order])
    return float(ends[0]), float(ends[1])


def _line(fit: Fit, target: Target, where: Mask) -> str:
    found = [_summary(_ratios(fit, quantity, target)[where]) for quantity in ("tpot", "ttft")]
    parts = [
        f"{name} median {each['median']:.1%} p90 {each['p90']:.1%}"
        for name, each in zip(("TPOT", "TTFT"), found, strict=True)
    ]
    return f"{found[0]['n']:4} points, {', '.join(parts)}"


def _data(fit: Fit, logs: Floats, left_out: dict[str, LeftOut]) -> dict[str, object]:
    factors = fit.factors(logs)
    gpus = sorted({point.gpu.name for point in fit.points})
    profiled = sorted({owner.split()[1] for owner in factors if owner.startswith("gpu ")} - set(gpus))
    versions: dict[str, dict[str, dict[str, float]]] = {}
    for owner, own in factors.items():
        if owner.startswith("version "):
            model, version = owner.removeprefix("version ").rsplit("/", 1)
            versions.setdefault(model, {})[version] = own
    errors: dict[str, dict[str, object]] = {}
    by_group: dict[str, dict[str, dict[str, object]]] = {}
    by_model: dict[str, dict[str, object]] = {}
    models = np.array([model_key(point.spec) for point in fit.points])
    for quantity in ("tpot", "ttft"):
        for kind, out in left_out.items():
            ratios = _ratios(fit, quantity, out.target)
            errors.setdefault(quantity, {})[kind] = _summary(ratios) | _range(ratios, out.groups)
            inside, _ = _inside(ratios, out.groups)
            for group in sorted(set(out.groups.tolist())):
                own = out.groups == group
                found = _summary(ratios[own]) | {"covered": round(float(inside[own].mean()), 4)}
                by_group.setdefault(kind, {}).setdefault(group, {})[quantity] = found
        ratios = _ratios(fit, quantity, left_out["measured"].target)
        for model in sorted(set(models.tolist())):
            own = ratios[models == model]
            if len(own) >= FEWEST:
                found = _summary(own) | _range(own, models[models == model])
                by_model.setdefault(model, {})[quantity] = found
    print(json.dumps(errors, indent=1))
    return {
        "provenance": PROVENANCE.format(points=len(fit.points), gpus=", ".join(gpus), profiled=", ".join(profiled)),
        "errors": errors,
        "errors_of_models": by_model,
        "left_out": by_group,
        "pairs": sorted({f"{model_key(point.spec)}/{point.gpu.name}" for point in fit.points}),
        "names": {model_key(point.spec): point.model for point in fit.points},
        "common": factors[""],
        "gpus": {owner.removeprefix("gpu "): own for owner, own in factors.items() if owner.startswith("gpu ")},
        "models": {owner.removeprefix("model "): own for owner, own in factors.items() if owner.startswith("model ")},
        "versions": versions,
        "links": {"pcie": PCIE},
    }


if __name__ == "__main__":
    main()
