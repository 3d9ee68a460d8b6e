"""Fit the constants of the calibrated step times and write ``constants.json``.

    python lab/fit_latency.py POINTS.csv.gz --profiles FOLDER ... [--write]

POINTS is a table of measured points (docs/accuracy.md), a profile is a folder of LLMServingSim kernel timings, named
``lss_<GPU>_<model>``. Prints what it fits, what came out, the errors when a part of the points is left out
(``left_out.py``), and how often the ranges that would have been stated hold what was left out (``known_ranges.py``);
they are shipped with the constants, and are what a report says of a prediction. Then the front end is fitted to
replays, and what is printed is judged (``front_end.py``). Takes about half an hour; with ``--kept FILE`` a second call
takes the fits from there.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from front_end import EVERY, replayed, with_front_end
from known_ranges import (
    Held,
    calibrated,
    deployments_of,
    errors_of,
    errors_of_models,
    held,
    measured_of,
    predicted_of,
    stated,
    summary,
)
from left_out import LeftOut, left_out
from step_time_fit import Fit, Priors, Sheet, Target
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.questions.accuracy.points import read_points
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.known_error import QUANTITIES
from tokenyard.steptime.model import StepShape, StepWork
from tokenyard.steptime.table_sources import load_lss
from tokenyard.steptime.tables import LATENCY as ALL_REDUCE_FLOOR

__all__ = ["PRIORS", "main", "sheet_of"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

TARGET = Path(__file__).resolve().parent.parent / "src/tokenyard/steptime/constants.json"
PROVENANCE = (
    "{points} measured points of vLLM 0.11 to 0.19 on {gpus} (ai-dynamo/aiconfigurator, Apache-2.0; InferenceX's runs"
    " among them) and kernel timings of {profiled} (LLMServingSim, MIT); fitted by lab/fit_latency.py"
)
PRIORS = Priors(**tomllib.loads(Path(__file__).with_name("priors.toml").read_text(encoding="utf-8")))
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


TABULATED = ("gemm_bfloat16", "gemm_float8", "experts_bfloat16", "experts_float8")
"""Their priors are no estimates: timings of vLLM 0.24's kernels on H100 and H200 (aiconfigurator, Apache-2.0)."""
UNFITTED = "state_memory"
"""Nothing that was measured has recurrent states: its prior is all there is."""


def main() -> None:
    """Fit, cross-validate, print; write with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("--profiles", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=14, help="rounds of the fit to everything")
    parser.add_argument("--kept", type=Path, help="file (.npz) of the fits without a fold, read and added to")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    args = parser.parse_args()
    began = time.monotonic()
    points, unread = read_points(args.points)
    sheets = [sheet for folder in args.profiles if (sheet := sheet_of(folder)) is not None]
    print(f"{len(points)} points, {len(unread)} not compared, {len(sheets)} profiles")
    fit = Fit(points, sheets, PRIORS)
    everything = np.ones(len(points), bool)
    logs = fit.solve(everything, rounds=args.rounds)
    print(f"{len(logs)} logarithms fitted in {time.monotonic() - began:.0f} s\n")
    _print_constants(fit, logs)
    for name, errors in fit.sheet_errors(logs):
        print(f"steps of {name}: median {np.median(abs(errors)):.1%}, p90 {np.quantile(abs(errors), 0.9):.1%}")
    left = _left_out(fit, logs, args.kept)
    print(f"nothing left out: {_line(fit, fit.predict(logs), everything)}")
    data = _with_held(fit, left, _data(fit, logs, left))
    data = with_front_end(fit, logs, left, data, replayed(points[::EVERY], data), PRIORS)
    print(f"\nprinted: {json.dumps(data['printed'])}")
    if args.write:
        before = json.loads(TARGET.read_text())
        TARGET.write_text(written(data | {name: before.get(name, {}) for name in ("published", "kernels")}))
        print(f"\nwrote {TARGET}")


def written(data: Mapping[str, Any]) -> str:
    """As JSON; what holds nothing but values stands on one line."""
    text = json.dumps(data, indent=1)
    return re.sub(r"[\[{][^{}\[\]]*[\]}]", lambda found: " ".join(found.group().split()), text) + "\n"


def sheet_of(folder: Path) -> Sheet | None:
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


def _left_out(fit: Fit, logs: Floats, kept: Path | None) -> list[LeftOut]:
    """Every fold, with what the fit without it says."""
    found = []
    for each in left_out(fit, logs, kept):
        fold = each.fold
        print(f"left out {fold.kind} {fold.group}: {_line(fit, each.target, fold.judged)}", flush=True)
        found.append(each)
    return found


def _ratios(fit: Fit, quantity: str, target: Target) -> Floats:
    """Measured over predicted, of every point."""
    ratios: Floats = measured_of(fit.points, quantity) / predicted_of(fit.points, target, quantity)
    return ratios


def _line(fit: Fit, target: Target, where: Mask) -> str:
    found = [summary(_ratios(fit, quantity, target)[where]) for quantity in ("tpot", "ttft")]
    parts = [
        f"{name} median {each['median']:.1%} p90 {each['p90']:.1%}"
        for name, each in zip(("TPOT", "TTFT"), found, strict=True)
    ]
    return f"{found[0]['n']:4} points, {', '.join(parts)}"


def _estimates(fitted: Mapping[str, float]) -> dict[str, float]:
    """How far fitted constants lie from what was estimated of them: what an estimate is worth that cannot be fitted."""
    not_estimated = (UNFITTED, *TABULATED)
    ratios = np.array([fitted[name] / value for name, (value, _) in PRIORS.common.items() if name not in not_estimated])
    low, high = np.quantile(ratios, (0.05, 0.95))
    median = float(np.median(abs(ratios - 1)))
    return {"median": round(median, 4), "low": round(min(1.0, float(low)), 4), "high": round(max(1.0, float(high)), 4)}


def _with_held(fit: Fit, left: list[LeftOut], data: dict[str, Any]) -> dict[str, Any]:
    """The same with widths that are scaled, and how often the ranges that would have been stated hold what was left
    out.
    """
    said = list(stated(fit.points, left, data))
    found: dict[tuple[str, str, str], Held] = {}
    for quantity in QUANTITIES:
        own = [each for each in said if each.quantity == quantity]
        scales = calibrated(own)
        for kind, scale in scales.items():
            data["errors"][quantity][kind]["scale"] = scale
        found |= {(each.kind, each.group, quantity): each for each in held(own, scales)}
    shares: dict[str, dict[str, dict[str, float]]] = {}
    print("\nkind         points folds" + "".join(f"  {each.upper():>5} in range  width" for each in QUANTITIES))
    for kind in dict.fromkeys(each.kind for each in said):
        cells, folds = "", list[Held]()
        for quantity in QUANTITIES:
            folds = [each for key, each in found.items() if key[::2] == (kind, quantity)]
            inside = np.concatenate([each.inside for each in folds])
            width = float(np.median([each.width for each in folds]))
            shares.setdefault(kind, {})[quantity] = {
                "n": len(inside),
                "held": round(float(inside.mean()), 4),
                "width": round(width, 3),
            }
            cells += f" {inside.mean():15.1%} {width:6.2f}"
        print(f"{kind:12} {shares[kind]['tpot']['n']:6.0f} {len(folds):5}{cells}")
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for fold, target, _ in left:
        groups.setdefault(fold.kind, {})[fold.group] = {
            quantity: summary(_ratios(fit, quantity, target)[fold.judged])
            | {"held": round(float(found[fold.kind, fold.group, quantity].inside.mean()), 4)}
            | _as_a_whole(_ratios(fit, quantity, target)[fold.judged])
            for quantity in QUANTITIES
        }
    return {**data, "held": shares, "left_out": groups, "left_out_by_load": _by_load(fit, left, found)}


def _as_a_whole(ratios: Floats) -> dict[str, float]:
    """How far a fold is off as a whole, and the median error that is left beside that; from measured over predicted."""
    middle = float(np.median(1 / ratios))
    return {"scale": round(middle - 1, 4), "shape": round(float(np.median(abs(1 / ratios / middle - 1))), 4)}


LOADS = {"128 users and more": (128, math.inf), "16 to 127 users": (16, 127), "below 16 users": (0, 15)}


def _by_load(
    fit: Fit, left: list[LeftOut], found: Mapping[tuple[str, str, str], Held]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Kind -> how many users -> quantity: errors of what was left out, and the share within the range stated for it."""
    users = np.array([point.users for point in fit.points])
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for kind in dict.fromkeys(each.fold.kind for each in left):
        folds = [each for each in left if each.fold.kind == kind]
        for name, (low, high) in LOADS.items():
            some = [each.fold.judged & (users >= low) & (users <= high) for each in folds]
            for quantity in QUANTITIES:
                ratios = [_ratios(fit, quantity, each.target)[mask] for each, mask in zip(folds, some, strict=True)]
                inside = [
                    found[kind, each.fold.group, quantity].inside[mask[each.fold.judged]]
                    for each, mask in zip(folds, some, strict=True)
                ]
                both = np.concatenate(ratios), np.concatenate(inside)
                if len(both[0]):
                    own = summary(both[0]) | {"held": round(float(both[1].mean()), 4)}
                    tables.setdefault(kind, {}).setdefault(name, {})[quantity] = own
    return tables


def _data(fit: Fit, logs: Floats, left: list[LeftOut]) -> dict[str, Any]:
    factors = fit.factors(logs)
    gpus = sorted({point.gpu.name for point in fit.points})
    profiled = sorted({owner.split()[1] for owner in factors if owner.startswith("gpu ")} - set(gpus))
    versions: dict[str, dict[str, dict[str, float]]] = {}
    for owner, own in factors.items():
        if owner.startswith("version "):
            model, version = owner.removeprefix("version ").rsplit("/", 1)
            versions.setdefault(model, {})[version] = own
    errors = errors_of(fit.points, left)
    print(json.dumps(errors, indent=1))
    return {
        "provenance": PROVENANCE.format(points=len(fit.points), gpus=", ".join(gpus), profiled=", ".join(profiled)),
        "errors": errors,
        "errors_of_models": errors_of_models(fit.points, left),
        "estimates": _estimates(factors[""]),
        "deployments": deployments_of(fit.points),
        "common": factors[""],
        "gpus": {owner.removeprefix("gpu "): own for owner, own in factors.items() if owner.startswith("gpu ")},
        "models": {owner.removeprefix("model "): own for owner, own in factors.items() if owner.startswith("model ")},
        "versions": versions,
        "links": {"pcie": PCIE},
    }


if __name__ == "__main__":
    main()
