"""Print the tables of the page `accuracy.md` of the site: how far off step times are that the fit had not seen.

With run folders (``meta.json``, ``requests.jsonl``) ``tokenyard accuracy`` is asked about them first, and its answer is
kept for `tokenyard accuracy` without a file.

    python lab/generate_accuracy.py RUN_FOLDER ...

Errors come from ``constants.json``, where ``fit_latency.py`` has put them. ``tokenyard accuracy POINTS`` prints those
of the points that the constants were fitted to, ``bursts.py`` those of bursts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import unfitted
from tokenyard import accuracy
from tokenyard.models.additions import draft_head
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.ask import record_runs, recorded_runs
from tokenyard.questions.accuracy.comparison import Quantity
from tokenyard.questions.accuracy.deployments import measured_model
from tokenyard.steptime.calibrated import CalibratedLatency, Drafting
from tokenyard.steptime.constants import shipped_constants
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.known_error import LEFT_OUT, QUANTITIES, SentLoad, Spread, known_error

__all__ = ["document"]

UNSEEN = """\
### What was left out, and how far off it is

The constants were fitted again without a part of the points, {folds} times, and then predicted what was left out
(`lab/left_out.py`): nine measured values of ten lie within (low, high) times the predicted one.

"""
STATEMENT = """
### Whether stated ranges hold

For every fold the report's statement is made with the fold's points forgotten, by errors that do not know them: so
often it holds what was measured, and so wide it is (high over low, the median).

"""
WHY_OFF = """
### Models that were left out: scale and shape

How much the model is off as a whole (the median of predicted over measured), and how much remains beside that.

"""
UNFITTED = """
### Models that no point is of

Runs of BLIS, GPUStack and NVIDIA (`lab/unfitted.toml`), as `lab/unfitted.py` prints them.

"""
TERMS = """
### What nothing measured, and what is stated of it

With vLLM 0.12, on deployments that were measured but for the term: what the header names, the share of a step that the
term takes at most, and how much wider the ranges are for it.

"""
RUNS = """
### Whole runs

Milliseconds, measured and predicted, of runs whose requests arrived by the clock on one GPU (vLLM 0.19).

"""


def document() -> str:
    """The tables."""
    data = shipped_constants().data
    folds = sum(len(groups) for groups in data["left_out"].values())
    return "".join(
        [
            UNSEEN.format(folds=folds),
            *_left_out(data),
            WHY_OFF,
            *_scales(data),
            STATEMENT,
            *_held(data),
            UNFITTED,
            *unfitted.table(),
            TERMS,
            *_terms(),
            RUNS,
            *_runs(),
        ]
    )


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


def _scales(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| left out | points | TPOT: scale | shape | TTFT: scale | shape |\n| --- | --: | --: | --: | --: | --: |\n"
    for model, found in data["left_out"]["model"].items():
        cells = [f"{found[q]['scale']:+.1%} | {found[q]['shape']:.1%}" for q in ("tpot", "ttft")]
        yield f"| {model.rsplit('/', 1)[-1]} | {found['tpot']['n']} | {' | '.join(cells)} |\n"


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
    yield "| forgotten | points | TPOT in range | width | TTFT in range | width | E2E in range | width |\n"
    yield "| --- | --: | --: | --: | --: | --: | --: | --: |\n"
    counts = {quantity: [0.0, 0.0] for quantity in QUANTITIES}
    for kind, found in data["held"].items():
        for quantity, each in found.items():
            counts[quantity][0] += each["held"] * each["n"]
            counts[quantity][1] += each["n"]
        cells = [f"{found[q]['held']:.1%} | {found[q]['width']:.2f}" for q in QUANTITIES]
        yield f"| {LEFT_OUT[kind]} | {found['tpot']['n']} | {' | '.join(cells)} |\n"
    shares = [f"{inside / count:.1%} | " for inside, count in counts.values()]
    yield f"| **all** | {counts['tpot'][1]:.0f} | {' | '.join(shares)} |\n"


def _runs() -> Iterator[str]:
    yield "| run | | mean | p50 | p90 | p99 | of each request: p50 | p90 |\n"
    yield "| --- | --- | --- | --- | --- | --- | --: | --: |\n"
    for row in recorded_runs():
        for name, mean in (("ttft", row.ttft), ("tpot", row.tpot), ("e2e", row.e2e)):
            if mean is not None:
                cells = " | ".join(map(_cells, [mean, *row.percentiles[name].values()]))
                own = row.of_requests[name]
                run = f"{row.model} on {row.gpu} | {name.upper()}"
                yield f"| {run} | {cells} | {own.median:.1%} | {own.p90:.1%} |\n"


def _cells(quantity: Quantity) -> str:
    return f"{quantity.measured:,.1f} {quantity.predicted:,.1f} ({quantity.error:+.1%})"


if __name__ == "__main__":
    if sys.argv[1:]:
        record_runs(accuracy(tuple(map(Path, sys.argv[1:]))).rows)
    print(document())
