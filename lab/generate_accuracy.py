"""Write docs/accuracy.md: what the calibrated step times were compared with, and how far off they are.

With run folders also what ``tokenyard accuracy`` says of them where it is given no file.

    python lab/generate_accuracy.py POINTS.csv.gz RUN_FOLDER ...

Errors with everything known come from ``tokenyard accuracy``, those of predictions from fits that left something out
from ``constants.json``, where ``fit_latency.py`` has put them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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

HEAD = """\
# Accuracy: what a prediction is worth

Step times of `run` come from [the calibrated model](latency.md#calibrated) unless `--latency` says otherwise. This
page is written by `lab/generate_accuracy.py`; the comparison itself is a command, and takes measurements of your
own:

```console
$ tokenyard accuracy                                     # the public points, where they are installed (below)
$ tokenyard accuracy points.csv.gz                       # a table of measured points
$ tokenyard accuracy measured-run/                       # a run: meta.json and requests.jsonl
$ tokenyard accuracy result.json --gpu h100 --model llama-3.1-8b --tensor-parallel-size 2    # vllm bench serve
```

A result with a `max_concurrency`, or of all requests at once, is a point: a closed loop of its mean lengths. One that
was sent at a rate (`--request-rate`) is replayed as a run, at the moments that it says or, before vLLM 0.11, at its
rate, drawn with seed 0 (its line says so); that takes single requests (`--save-detailed`). Its times are the
client's: what lies between client and scheduler is added to predicted ones. `tokenyard run result.json` compares the
same beside a whole [report](workloads.md#what-a-log-has-measured), on a deployment of any flags.

Errors of points are of means, |predicted / measured - 1|, and over points half lie below p50. Of a run whose requests
are known one by one, p50, p90 and p99 of their times stand beside the means, and the errors of single requests.
`--json` has the same numbers, and every row. Its replays decide as vLLM 0.22, whose age is nearest to the measured
servers' (0.11 to 0.19), where `run` decides as 0.33; `--vllm-version` chooses another, and the first lines of the
output and `vllm_version` in the JSON name the one that was taken.

## In short

"""
IN_SHORT = """
Those are errors of predictions that the fit had no part in. All measurements are of vLLM 0.11 to 0.19: we have
no measurement of how step times changed since, and every statement about a newer vLLM is widened for it (below). With
nothing left out, over the points that the constants were fitted to, the median error is {tpot:.1%} of TPOT and
{ttft:.1%} of TTFT: that is a residual, and no promise.

## What was measured

"""
WHERE = """
The points are public: the table `silicon_sample.csv` of the package `aiconfigurator-core` (PyPI; repository
ai-dynamo/aiconfigurator, Apache-2.0). `tokenyard accuracy` without a file reads it where that package is installed, and
else prints the figures of this page's first table, and these commands:

```console
{how}
```

The table grows, so that its figures may differ from those of this page, which are of the 836 points that the constants
were fitted to. Every point is replayed by the scheduler: some minutes for the whole table.
"""
POINTS = """
A table of points holds one load per row: `model_path`, `system`, `precision`, `isl`, `osl`, `batch_size`, `tp_size`,
`moe_tp_size`, `moe_ep_size`, `silicon_ttft_ms` and `silicon_tpot_ms` at least (aiconfigurator's columns). Each is
predicted by a closed loop: so many users, each with one request in flight, on a scheduler with the limits that the
server had. Those limits, KV formats and the lengths of prompts are not in the table; for InferenceX's points they are
taken from its public scripts ([`deployments.py`](../src/tokenyard/questions/accuracy/deployments.py)), for others
vLLM's defaults are assumed. What the closed loop decides does not depend on step times, so points of one load share
one schedule.

"""
UNSEEN = """
## Of what it has not seen

The constants were fitted again without a part of the points, {folds} times, and then asked for what was left out
(`lab/left_out.py`). These errors are what a report says of a prediction of its kind, and from them come the ranges:
nine measured values of ten lie within (low, high) times the predicted one. What was left out (a model, a GPU, the
longest prompts ...) is off as a whole, besides the spread of its points; where there were fewer than five such parts,
how far the next will be is hardly known, and the range is wider for it (Student's t, of one sample less). A range is
widened further until it holds nine points of ten of a part that had no say in it. That is a share of points, not of
models: a model with kernels unlike those of the others lies outside as a whole.

"""
AIMS = """
## What was aimed at, and where it stands

`lab/fit_latency.py POINTS --profiles FOLDER ...` prints these figures; *within* is the share of points that the
range of a report holds, asked with those points forgotten.

"""
WHY_OFF = """
Of what a model that was left out is off by, how much is the model as a whole (its *scale*, the median of predicted over
measured) and how much remains beside that (its *shape*):

"""
AFTER_WHY = """
`lab/where_off.py` prints the same by precision, GPU, layout and users. Fixed costs were most of it before: they
were counted per layer and per step, so that a model of many dense layers came out a quarter too fast and one of few
layers with experts two fifths too slow. They are counted per kernel now, as vLLM's model code and timings of kernels
have them (`lab/kernel_shares.py`); norms over all heads cost an all-reduce (MiniMax); an FP8 KV cache is widened on
Hopper, not on Blackwell, and so are weights of 4 bits where the GPU has no units for them; before 0.14 the host's part
of a step is shown, what it does for each request as well; a token's hidden values pass through memory for each of its
experts; and a model unlike all others no longer bends the constants that are common. Each of these was looked for where
what was left out was off, so that the figures for these seven models are kinder than those for an eighth; the next
chapter has some.

Nearer than this the points hardly allow. Where the table has one load on one deployment twice, by two versions of vLLM,
the two lie {apart:.1%} of TPOT apart in the median and {most:.1%} at the 90th percentile, and a fit without the model
knows of no version's kernels. The model that is off by half is the one of which the page tells above why: it has
{unlike:.0%} of the points, all of them beyond the 90th percentile.

TTFT of a model that was left out is too short by a fifth: steps with prompts take longer than products, attention and
what passes through memory add up to, by a share that differs from model to model. Timings of kernels (vLLM 0.24, H100
and H200) say what products and experts reach, and now bound the constants that are common; what lies between the
kernels they do not say.
"""
UNFITTED = """
## Models that no point is of

BLIS (inference-sim) measured vLLM 0.15.1 with other models, most of them in bfloat16 on H100; GPUStack and NVIDIA
measured two with recurrent states. `lab/unfitted.toml` has the runs with their source. Nothing is fitted to them.
One thing was changed after they had been looked at: kernel timings, not an estimate, now say what experts in bfloat16
reach of the memory's bandwidth. With the constants before that they were off by a median of 14.3 % and 53.3 % at the
90th percentile; now `lab/unfitted.py` prints:

"""
BURSTS = """
## Bursts

GPUStack's performance lab sent hundreds of prompts at once to servers of vLLM 0.10 to 0.13 with their defaults, on
A100, H100 and H200 (`lab/bursts.toml`). Nothing is fitted to them, and no point that something is fitted to is like
them: prompts are nearly all of the work, and a GPU is full from the first second. Beside the range that a report states
`lab/bursts.py` prints the errors, lowest to highest:

"""
AFTER_BURSTS = """
Predictions are too quick by a fifth to a quarter as a whole, on A100, which no point is of, as on H100 and H200. Why is
not known: most points are of tuned servers, these are of vLLM's defaults; and the way from a thousand clients to an
engine is not modelled (1,000 prompts of 128 tokens and answers of 4 took 4 to 22 s).
"""
AFTER_UNFITTED = """
Nothing above is of AMD's GPUs: [what AMD publishes](deployments.md#beside-what-amd-publishes) of vLLM on MI300X stands
beside 40 predictions.
"""
STATEMENT = """
## What a report says, and whether it holds

What is known depends on everything that was asked: model, precision, GPU, layout (TP, DP, PP, experts), KV format,
users, lengths, vLLM's version, and what nothing measured at all. A report names the nearest measured deployments, and
what of the question they do not have. Each such gap widens the range by what its line above adds to the first one;
logarithms are joined as those of independent errors, so no gap ever narrows a range. A GPU that was never measured also
adds what a model on one GPU adds, and for TTFT what a generation of GPUs adds: the four that were left out say little
of the next, and one of them was off by more than the others told. For vLLM's version the width grows with the root of
the minor versions between: the folds lie {apart:.1f} apart on average, and 0.33 is 14 from 0.19.

Some terms nothing was fitted to: drafts, LoRA adapters, steps without CUDA graphs, pipelines, networks between
machines, PCIe between GPUs, recurrent states, KV of a sequence on several GPUs, KV formats other than FP8 and the
model's own. Nothing can be left out of the fit to learn their error. Each counts as an unmeasured layout, and the
seconds that it takes may be {low:.2f} to {high:.2f} times what is priced: so far lay nine of ten fitted constants from
what had been estimated of them before anything was fitted.

The check goes all the way. For every fold, the report's statement is asked for with the fold's points forgotten, and
by errors that do not know them: so often it holds what was measured, and so wide it is (high over low, the median):

"""
AFTER_CHECK = """
`lab/fit_latency.py POINTS --profiles FOLDER ...` computes all of this, and prints it. What the check cannot show is
how far ranges hold where several things are missing at once in ways that no fold has, and where nothing was measured:
there the width is a rule, stated above.
"""
MEDIAN, P90 = 0.06, 0.15
"""What is aimed at in TPOT, for models and GPUs that were measured."""
CAUSES: dict[str, str] = {}
"""Model outside of what is aimed at -> why."""
UNLIKE = ("Qwen3-235B-A22B-FP8",)
"""Models whose kernels are unlike those of all others."""
TWO_SERVERS = """
Two servers of one campaign (vLLM 0.12 on H200) are met only since it is known what they did:

**Llama-3.1-8B-Instruct-FP8** computed fewer tokens than the table's load has: 95,000 prompt tokens a second on one GPU
would be 1.5 PFLOP/s, and at 128 users and 4,000 + 1,000 tokens the first 128 prompts alone would make the mean TTFT of
ten rounds 180 ms, where 115 were measured. The client makes a hundred prompts and sends them again and again, after a
round that nobody measures, so that nearly all of each is found in the prefix cache. Replayed so, the constants that are
common, without one of this model, are off by a median of 12 % of TPOT; before it was 132 %.

**Qwen3-235B-A22B-FP8** took 51 to 59 ms a step on two GPUs and 34 to 44 on four, whether 4 users decoded or 20, by
tensor or by data parallelism: a fixed part, and all expert weights that a GPU has, at the memory's usual rate. So this
server went through all experts in every step, chosen or not; why, is not known (timings of vLLM 0.24's kernels on H200
grow with the experts that are chosen). How many experts are read is a factor of a model now, and no other one's is far
from 1. Until then the fit took it for a time per kernel, five times that of other models, and prompts were priced so as
well: bursts on H100 (below) were up to 52 % too slow in duration, and are 12 % at most. TTFT
of 1 to 4 s is of odd numbers of users on data-parallel engines alone: it would be a server that runs at once no more
requests of a rank than its share of the users, so that some wait for a place; the table does not say.
"""
TERMS = """
## What nothing measured, and what is said of it

Asked of the library, with vLLM 0.12, on deployments that were measured but for the term (and, where one is named that
was not, for that as well): what the header names, the share of a step of decodes and of prompts that the term takes at
most, and how much wider the ranges are for it (high over low, with the term over without).

"""
AFTER_TERMS = """
LoRA's and drafts' public tables that were found tell neither acceptance nor both sides of a comparison. States have
three deployments beside predictions in the table of models that no point is of (Qwen3.5's gated delta nets on H200,
Nemotron 3 Nano's Mamba 2 on B200, which is quicker by half than predicted). An FP8 KV cache was measured on Hopper and
Blackwell, and is left out as a format above; on another GPU it counts as a format that was not measured. The time
of an encoder is an estimate that nothing measured, and none where its tower is not known: the header of a replay with
pictures says which, no range covers it, and without it TTFT is a lower bound.
Links by PCIe are what NCCL is known to reach.
"""
RUNS = """
Milliseconds, measured and predicted, of runs whose requests arrived by the clock on one GPU (300 requests, 10/s). The
servers were vLLM 0.19: the decisions of 0.22 are the ones to compare with. Those of 0.33, which `run` takes unless told
otherwise, free blocks in another order, so that other blocks are found again where memory is short, as on the RTX 4090.
"""
CAVEATS = """
## What to make of it

* **Known models on known GPUs** are met within a few percent of TPOT; TTFT is dominated by the burst with which a
  closed loop begins, and by queueing where KV memory runs out: there a small error of capacity becomes a large one of
  waiting.
* **A model that was never measured** is off by its kernels: an untuned expert kernel may be three times as slow as a
  tuned one, and nothing in a `config.json` tells. The report gives a range.
* **A model measured on another GPU of the generation, on a GPU measured with other models** is met nearly as well as
  where both were measured together: what the fit knows of the model and what it knows of the GPU multiply.
* Disaggregated points (prefill and decode on engines of their own) are not compared.
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
    fitted = IN_SHORT.format(tpot=points.tpot.median, ttft=points.ttft.median)
    where = WHERE.format(how="\n".join(f"$ {line}" for line in HOW_TO_GET))
    lines = [HEAD, *_short(data), fitted, f"{data['provenance']}.\n", where, POINTS, *_overall(points)]
    for name in ("model", "gpu", "dtype", "load"):
        lines += ["\n", *_table(name, points.by[name])]
    lines += [f"\n{len(points.not_compared)} rows of vLLM are not compared; `tokenyard accuracy` says why.\n"]
    lines += ["\n## Where it is far off, and why\n\n", *_outside(points), TWO_SERVERS]
    folds = sum(len(groups) for groups in data["left_out"].values())
    lines += [UNSEEN.format(folds=folds), *_left_out(data), AIMS, *_aims(data)]
    lines += [
        WHY_OFF,
        *_scales(data),
        AFTER_WHY.format(**_floor(args.points)),
        UNFITTED,
        *unfitted.table(),
        BURSTS,
        *bursts.table([*bursts.bursts()]),
        AFTER_BURSTS,
        AFTER_UNFITTED,
    ]
    apart, estimates = data["errors"]["tpot"]["version"]["apart"], data["estimates"]
    lines += [STATEMENT.format(apart=apart, low=estimates["low"], high=estimates["high"]), *_held(data), AFTER_CHECK]
    lines += [TERMS, *_terms(), AFTER_TERMS]
    if args.runs:
        lines += ["\n## Whole runs\n\n", *_runs(tuple(args.runs))]
        record_runs(accuracy(args.runs).rows)
    lines += [CAVEATS]
    TARGET.write_text("".join(lines))
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
