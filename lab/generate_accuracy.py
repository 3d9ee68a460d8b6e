"""Write docs/accuracy.md: what the calibrated step times were compared with, and how far off they are.

With run folders also what ``tokenyard accuracy`` says of them where it is given no file.

    python lab/generate_accuracy.py POINTS.csv.gz RUN_FOLDER ...

Errors with everything known come from ``tokenyard accuracy``, those of predictions from fits that left something out
from ``constants.json``, where ``fit_latency.py`` has put them. Words and order are those of ``pages/accuracy.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import bursts
import unfitted
from tokenyard import accuracy
from tokenyard.deploy.vllm_serve.defaults import KNOWN_VERSIONS
from tokenyard.models.additions import draft_head
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.ask import RECORDED_RUNS, record_runs
from tokenyard.questions.accuracy.comparison import AccuracyReport, AccuracyRow, Errors, Quantity
from tokenyard.questions.accuracy.deployments import measured_model
from tokenyard.questions.accuracy.points import HOW_TO_GET, read_points
from tokenyard.steptime.calibrated import CalibratedLatency, Drafting
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.known_error import LEFT_OUT, SentLoad, Spread, known_error
from where_off import pairs

__all__ = ["main"]

TARGET = Path(__file__).resolve().parent.parent / "docs/accuracy.md"

TEMPLATE = Path(__file__).with_name("pages") / "accuracy.md"
MEDIAN, P90 = 0.06, 0.15
"""What is aimed at in TPOT, for models and GPUs that were measured."""
CAUSES: dict[str, str] = {}
"""Model outside of what is aimed at -> why."""
UNLIKE = ("Qwen3-235B-A22B-FP8",)
"""Models whose kernels are unlike those of all others."""
RUNS = """
Milliseconds, measured and predicted, of runs whose requests arrived by the clock on one GPU (300 requests, 10/s). The
servers were vLLM 0.19: the decisions of 0.22 are the ones to compare with. Those of 0.33, which `run` takes unless set
otherwise, free blocks in another order, so that other blocks are found again where memory is short, as on the RTX 4090.
"""


def main() -> None:
    """Compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("runs", type=Path, nargs="*")
    args = parser.parse_args()
    points = accuracy((args.points,))
    data = shipped_constants().data
    assert points.tpot is not None
    assert points.ttft is not None
    by_kind = (["\n", *_table(name, points.by[name])] for name in ("model", "gpu", "dtype", "load"))
    blocks = {
        "short": _short(data),
        "overall": _overall(points),
        "by_kind": chain.from_iterable(by_kind),
        "outside": _outside(points),
        "left_out": _left_out(data),
        "aims": _aims(data),
        "scales": _scales(data),
        "unfitted": unfitted.table(),
        "bursts": bursts.table([*bursts.bursts()]),
        "held": _held(data),
        "terms": _terms(),
        "runs": ["\n## Whole runs\n\n", *_runs(tuple(args.runs))] if args.runs else [],
    }
    page = TEMPLATE.read_text(encoding="utf-8").format(
        **{name: "".join(lines) for name, lines in blocks.items()},
        tpot=points.tpot.median,
        ttft=points.ttft.median,
        provenance=data["provenance"],
        how="\n".join(f"$ {line}" for line in HOW_TO_GET),
        not_compared=len(points.not_compared),
        folds=sum(len(groups) for groups in data["left_out"].values()),
        floor=_floor(args.points),
        apart=data["errors"]["tpot"]["version"]["apart"],
        **data["estimates"],
    )
    if args.runs:
        record_runs(accuracy(args.runs).rows)
    TARGET.write_text(page)
    print(f"wrote {TARGET}" + f" and {RECORDED_RUNS}" * bool(args.runs))


def _overall(report: AccuracyReport) -> Iterator[str]:
    assert report.tpot is not None
    assert report.ttft is not None
    yield from _table("everything known", {"all": {"tpot": report.tpot, "ttft": report.ttft}})


def _table(name: str, groups: Mapping[str, Mapping[str, Errors]]) -> Iterator[str]:
    yield f"| {name} | points | TPOT p50 | p90 | p99 | in range | TTFT p50 | p90 | p99 | in range |\n"
    yield "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n"
    for group, both in groups.items():
        cells = [
            f"{each.median:.1%} | {each.p90:.1%} | {each.p99:.1%} | {each.covered:.0%}"
            for each in (both["tpot"], both["ttft"])
        ]
        yield f"| {group} | {both['tpot'].n} | {' | '.join(cells)} |\n"


def _outside(report: AccuracyReport) -> Iterator[str]:
    """Models whose TPOT is not met as well as is aimed at, by layout, each with its cause."""
    assert report.tpot is not None
    yield f"Aimed at where model and GPU were measured: a median of {MEDIAN:.0%} and a 90th percentile of {P90:.0%}\n"
    yield f"for TPOT; over all points it is {report.tpot.median:.1%} and {report.tpot.p90:.1%}.\n"
    for model, both in report.by["model"].items():
        if both["tpot"].median <= MEDIAN and both["tpot"].p90 <= P90:
            continue
        yield f"\n**{model}** is outside of that. TPOT in ms, lowest to highest:\n\n"
        yield from _layouts([row for row in report.rows if row.model == model])
        yield f"\n{CAUSES[model]}"


def _layouts(rows: Sequence[AccuracyRow]) -> Iterator[str]:
    yield "| GPUs | points | users | measured | predicted | error, median |\n| --- | --: | --: | --: | --: | --: |\n"
    layouts = sorted({(row.tensor_parallel_size, row.data_parallel_size) for row in rows})
    for tensor, data in layouts:
        some = [row for row in rows if (row.tensor_parallel_size, row.data_parallel_size) == (tensor, data)]
        cells = [
            f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"
            for values, digits in (
                ([row.users or 0 for row in some], 0),
                ([row.tpot.measured for row in some], 1),
                ([row.tpot.predicted for row in some], 1),
            )
        ]
        middle = float(np.median([row.tpot.error for row in some]))
        yield f"| TP {tensor}, DP {data} | {len(some)} | {' | '.join(cells)} | {middle:+.0%} |\n"


def _terms() -> Iterator[str]:
    """Deployments with a term that nothing measured, beside the same without it."""
    dense, small = measured_model("Qwen/Qwen3-32B", ""), MODELS["llama-3.1-8b"]
    drafting = Drafting(spec=draft_head(dense), num_speculative_tokens=3)
    two = Parallelism(tensor=2)
    asked: tuple[tuple[str, ModelSpec, str, dict[str, Any]], ...] = (
        ("EAGLE, 3 drafts", dense, "h100", {"parallel": two, "drafting": drafting}),
        ("LoRA adapters", dense, "h100", {"parallel": two, "lora": True}),
        ("no CUDA graphs", dense, "h100", {"parallel": two, "eager": True}),
        ("two stages", dense, "h100", {"parallel": Parallelism(tensor=2, pipeline=2)}),
        ("Mamba 2", MODELS["nemotron-nano-9b-v2"], "h100", {}),
        ("gated delta net", MODELS["qwen3.5-35b-a3b"], "h200", {}),
        ("Mamba 1", MODELS["mamba-2.8b"], "h100", {}),
        ("tensor parallel by PCIe", small, "l40s", {"parallel": two}),
        ("FP8 KV", dense, "h100", {"parallel": two, "kv_cache_dtype": "fp8"}),
        ("FP8 KV", small, "l40s", {"kv_cache_dtype": "fp8"}),
    )
    yield "| term | model, GPU | not measured, as the header says | TPOT: share | wider | TTFT: share | wider |\n"
    yield "| --- | --- | --- | --: | --: | --: | --: |\n"
    for name, spec, gpu, more in asked:
        latency = CalibratedLatency(spec, named_gpu(gpu), version="0.12.0", **more)
        question = latency.question(SentLoad())
        plain = replace(question, terms=(), kv_cache_dtype=None)
        with_it, without = (known_error(each, shipped_constants()) for each in (question, plain))
        shares = [max((getattr(term, f"{q}_share") for term in question.terms), default=0.0) for q in ("tpot", "ttft")]
        wider = [_width(getattr(with_it, q)) / _width(getattr(without, q)) for q in ("tpot", "ttft")]
        cells = " | ".join(f"{share:.0%} | {width:.2f}" for share, width in zip(shares, wider, strict=True))
        said = ", ".join(gap.what for gap in with_it.gaps)
        yield f"| {name} | {spec.name.rsplit('/', 1)[-1]}, {gpu} | {said} | {cells} |\n"


def _width(spread: Spread) -> float:
    return spread.high / spread.low


def _short(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| what the fit had not seen | points | TPOT p50 | p90 | p99 | TTFT p50 | p90 | p99 |\n"
    yield "| --- | --: | --: | --: | --: | --: | --: | --: |\n"
    for kind in ("load", "layout", "pair", "version", "gpu", "precision", "model"):
        both = [data["errors"][quantity][kind] for quantity in ("tpot", "ttft")]
        cells = [f"{each['median']:.1%} | {each['p90']:.1%} | {each['p99']:.1%}" for each in both]
        yield f"| {LEFT_OUT[kind]} | {both[0]['n']} | {' | '.join(cells)} |\n"


def _aims(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| left out | | aim | today | within |\n| --- | --- | --: | --: | --: |\n"
    for kind, quantile, aim in (("model", "median", 0.09), ("model", "p90", 0.25), ("gpu", "median", 0.06)):
        today, within = data["errors"]["tpot"][kind][quantile], data["held"][kind]["tpot"]["held"]
        yield f"| {LEFT_OUT[kind]} | TPOT, {quantile} | {aim:.0%} | {today:.1%} | {within:.0%} |\n"
    for quantity, found in data["left_out_by_load"]["gpu"]["128 users and more"].items():
        today, within = found["p90"], found["held"]
        yield f"| a GPU, with 128 users and more | {quantity.upper()}, p90 | | {today:.1%} | {within:.0%} |\n"


def _scales(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| left out | points | TPOT: scale | shape | TTFT: scale | shape |\n| --- | --: | --: | --: | --: | --: |\n"
    for model, found in data["left_out"]["model"].items():
        cells = [f"{found[q]['scale']:+.1%} | {found[q]['shape']:.1%}" for q in ("tpot", "ttft")]
        yield f"| {model.rsplit('/', 1)[-1]} | {found['tpot']['n']} | {' | '.join(cells)} |\n"


def _floor(path: Path) -> dict[str, float]:
    """How far two versions of vLLM lie apart, and the share of points that are of models unlike all others."""
    points, _ = read_points(path)
    apart = [tpot for name, tpot, _ in pairs(points) if name == "two versions"]
    middle, most = np.quantile(apart, (0.5, 0.9))
    unlike = sum(any(name in point.model for name in UNLIKE) for point in points) / len(points)
    return {"apart": float(middle), "most": float(most), "unlike": unlike}


def _left_out(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| left out | points | TPOT p50 | p90 | range | TTFT p50 | p90 | range |\n"
    yield "| --- | --: | --: | --: | --: | --: | --: | --: |\n"
    for kind, title in LEFT_OUT.items():
        both = [data["errors"][quantity][kind] for quantity in ("tpot", "ttft")]
        cells = [f"{e['median']:.1%} | {e['p90']:.1%} | {e['low']:.2f} to {e['high']:.2f}" for e in both]
        yield f"| **{title}** | {both[0]['n']} | {' | '.join(cells)} |\n"
        if kind not in ("model", "gpu", "pair"):
            continue
        for group, found in data["left_out"][kind].items():
            cells = [f"{found[q]['median']:.1%} | {found[q]['p90']:.1%} | " for q in ("tpot", "ttft")]
            name = _named(group, data) if kind == "pair" else group.rsplit("/", 1)[-1]
            yield f"| {name} | {found['tpot']['n']} | {' | '.join(cells)} |\n"
        for load, found in data["left_out_by_load"][kind].items() if kind == "gpu" else ():
            held = [found[q] for q in ("tpot", "ttft")]
            cells = [f"{e['median']:.1%} | {e['p90']:.1%} | {e['held']:.0%} within" for e in held]
            yield f"| all, {load} | {held[0]['n']} | {' | '.join(cells)} |\n"


def _named(pair: str, data: Mapping[str, Any]) -> str:
    """A model's key and a GPU, in words."""
    key, gpu = pair.rsplit("/", 1)
    one = next(each for each in data["deployments"] if each["key"] == key)
    return f"{one['model'].rsplit('/', 1)[-1]} {one['precision']} on {gpu}"


def _held(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| forgotten | points | TPOT in range | width | TTFT in range | width |\n"
    yield "| --- | --: | --: | --: | --: | --: |\n"
    counts = {quantity: [0.0, 0.0] for quantity in ("tpot", "ttft")}
    for kind, both in data["held"].items():
        for quantity, each in both.items():
            counts[quantity][0] += each["held"] * each["n"]
            counts[quantity][1] += each["n"]
        cells = [f"{both[q]['held']:.1%} | {both[q]['width']:.2f}" for q in ("tpot", "ttft")]
        yield f"| {LEFT_OUT[kind]} | {both['tpot']['n']} | {' | '.join(cells)} |\n"
    shares = [f"{inside / count:.1%} | " for inside, count in counts.values()]
    yield f"| **all** | {counts['tpot'][1]:.0f} | {' | '.join(shares)} |\n"


def _runs(files: tuple[Path, ...]) -> Iterator[str]:
    yield "| run | decides as | | mean | p50 | p90 | p99 | of each request: p50 | p90 |\n"
    yield "| --- | --- | --- | --- | --- | --- | --- | --: | --: |\n"
    for version in (KNOWN_VERSIONS[0], KNOWN_VERSIONS[-1]):
        for row in accuracy(files, vllm_version=version).rows:
            for name, mean in (("ttft", row.ttft), ("tpot", row.tpot), ("e2e", row.e2e)):
                if mean is not None:
                    figures = [mean, *row.percentiles[name].values()]
                    own = row.of_requests[name]
                    cells = " | ".join(map(_cells, figures))
                    run = f"{row.model} on {row.gpu} | {version} | {name.upper()}"
                    yield f"| {run} | {cells} | {own.median:.1%} | {own.p90:.1%} |\n"
    yield RUNS


def _cells(quantity: Quantity) -> str:
    return f"{quantity.measured:,.1f} {quantity.predicted:,.1f} ({quantity.error:+.1%})"


if __name__ == "__main__":
    main()
