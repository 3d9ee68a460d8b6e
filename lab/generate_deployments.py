"""Print the tables of the page `deployments.md` of the site: KV caches beside vLLM's own planner and beside logs.

python lab/generate_deployments.py --questions FILE   what to ask the planner (lab/record_kv_plans.py)
python lab/generate_deployments.py                    the tables, from the planner's recorded answers
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

from machines import section
from tokenyard.deploy.kv_memory import measured_encoder
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.vllm_serve.defaults import BatchLimits
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import KVCachePlan, plan_kv_cache
from tokenyard.memory.room import MOST_CAPTURED, EncodedAtOnce, sizes_up_to, step_memory
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS
from tokenyard.models.spec import ModelSpec

REPO = Path(__file__).resolve().parent.parent
SOURCE = REPO / "lab" / "deployments.toml"
ANSWERS = REPO / "tests" / "unit" / "models" / "deployment_plans.json.gz"
GIB = 1 << 30
UTILIZATION = 0.92
MAX_NUM_BATCHED_TOKENS = 8192
MAX_NUM_SEQS = 256
_NOT_COUNTED = ("communication", "graphs")
"""Parts of a step's memory that the planner's table leaves out."""


def main() -> int:
    """Print the tables, or write the questions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=Path)
    flags = parser.parse_args()
    if flags.questions is not None:
        rows = [_Row(*row) for row in _source_file()["deployments"]]
        flags.questions.write_text(json.dumps([row.question() for row in rows], indent=1))
        return 0
    print(document())
    return 0


def _source_file() -> dict[str, Any]:
    return tomllib.loads(SOURCE.read_text())


def document() -> str:
    """The tables."""
    source = _source_file()
    return _page([_Row(*row) for row in source["deployments"]], source["logged"], source["memory"])


class _Row:
    """One deployment."""

    def __init__(self, model: str, gpu: str, tp: int, options: dict[str, Any]) -> None:
        self.model, self.gpu, self.tp, self.options = model, gpu, tp, options
        self.weights = MODELS[model].weight_bytes(tp)
        length = options.get("max_model_len", MODELS[model].max_model_len)
        memory = step_memory(
            MODELS[model],
            named_gpu(gpu),
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            max_num_seqs=MAX_NUM_SEQS,
            tensor_parallel_size=tp,
            encoded=_encoded(MODELS[model], MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, length),
        )
        needed = sum(part.likely for part in memory.parts if part.name not in _NOT_COUNTED)
        self.available_bytes = int(named_gpu(gpu).memory_bytes * UTILIZATION) - self.weights - needed

    def question(self) -> dict[str, Any]:
        """What to ask vLLM's planner: everything but the model comes from its own classes."""
        return {
            "model": self.model,
            "tensor_parallel_size": self.tp,
            "options": self.options,
            "available_bytes": self.available_bytes,
        }

    def plan(self) -> KVCachePlan:
        """Ours, for vLLM 0.33."""
        settings = {"enable_prefix_caching": not MODELS[self.model].max_encoder_tokens, **self.options}
        return plan_kv_cache(
            MODELS[self.model],
            available_bytes=self.available_bytes,
            tensor_parallel_size=self.tp,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            planner="0.33",
            must_start=False,
            **settings,
        )


def _page(rows: list[_Row], logged: list[dict[str, Any]], memory: list[dict[str, Any]]) -> str:
    answers = json.loads(gzip.decompress(ANSWERS.read_bytes()))["plans"]
    lines = [
        "## Against vLLM's planner",
        "",
        f"vLLM 0.33, {UTILIZATION:.0%} of the memory, {MAX_NUM_BATCHED_TOKENS:,} tokens and {MAX_NUM_SEQS} sequences.",
        "Sizes are per GPU; both were asked about the same KV memory: what weights, a step and the work of an encoder",
        "leave; neither NVLink's buffers nor CUDA graphs are counted.",
        "",
        "| model | weights | GPUs | KV dtype | weights GiB | KV GiB | block | groups | KV tokens | vLLM's planner |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_line(row, answer) for row, answer in zip(rows, answers, strict=True)),
        "",
        *section(),
        "## Against logs",
        "",
        "What people saw, with the memory that their log names. A log rounds that memory to 0.01 GiB.",
        "",
        "| model | GPUs | KV GiB | logged | here | weights GiB logged | here | |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
        *(_logged_line(each) for each in logged),
        "",
        "## Memory against logs",
        "",
        "What is left for KV on each GPU, in GiB: as logged, by our estimate, and if a step takes all that it may.",
        "The difference is sampling: logs of vLLM 0.9 to 0.11 come to 38.6 bytes per sequence and entry of the",
        "vocabulary (PyTorch sorts it), where kernels of FlashInfer or Triton need about 18; that is inferred from",
        "these lines, not documented. Graphs are counted since vLLM 0.21. It is why a large vocabulary and the 1,024",
        "sequences of an H100 leave so little: lower `--max-num-seqs`, and the cache grows.",
        "",
        "A log is taken if it says what is left, if it or its repository names the GPU, and if it is of a model that",
        "is known here, without drafts and LoRA. Memory of",
        "the GPU, tokens and sequences that it does not name are the GPU's and that version's.",
        "",
        "| model | GPUs | vLLM | of the memory | tokens, sequences | logged | estimate | at least | |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
        *(_memory_line(each) for each in memory),
        "",
        _memory_summary(memory),
        "",
        *_long_ones(),
    ]
    return "\n".join(lines) + "\n"


def _line(row: _Row, answer: dict[str, Any]) -> str:
    plan, model = row.plan(), MODELS[row.model]
    ours = f"{plan.num_tokens:,}" if plan.longest == plan.max_model_len else f"no start; at most {plan.longest:,}"
    said = answer["plans"][0]
    refused = "refused" in said
    theirs = f"no start; at most {said['estimated_max_model_len']:,}" if refused else f"{said['tokens']:,}"
    options = "".join(f", {name} {value}" for name, value in row.options.items() if name != "kv_cache_dtype")
    return (
        f"| {row.model} | {model.weight_format.name} | {row.tp} x {row.gpu}{options} | {plan.kv_cache_dtype} "
        f"| {row.weights / GIB:.1f} | {row.available_bytes / GIB:.1f} | {plan.block_size} | {len(plan.groups)} "
        f"| {ours} | {'equal' if ours == theirs else theirs} |"
    )


def _logged_line(row: dict[str, Any]) -> str:
    model = MODELS[row["model"]]
    weights = row.get("weights_gib")
    ours = f"{model.weight_bytes(row['tp']) / GIB:.2f}" if weights else ""
    said, here = "", ""
    if "kv_gib" in row:
        said, here = _logged_capacity(row)
    return (
        f"| {row['model']} | {row['gpu']} | {row.get('kv_gib', '')} | {said} | {here} | {weights or ''} | {ours} "
        f"| {_source(row)} |"
    )


def _source(row: dict[str, Any]) -> str:
    parts = [f"[log]({row['url']})"] if "url" in row else []
    return ": ".join(parts + [row["note"]] * ("note" in row))


_SORTED_BEFORE = (0, 15)
"""Logs of earlier versions have what PyTorch takes to sort the vocabulary."""


def memory_left(row: dict[str, Any]) -> tuple[float, float]:
    """What is left for KV in GiB, by the estimate and at least."""
    model, tp, gpu = MODELS[row["model"]], row["tp"], named_gpu(row["gpu"])
    total = row["total_gib"] * GIB if "total_gib" in row else gpu.memory_bytes
    counts_graphs = _release(row) >= (0, 21) and not row.get("eager")
    needed = step_memory(
        model,
        gpu,
        max_num_batched_tokens=row["tokens"],
        max_num_seqs=row["seqs"],
        tensor_parallel_size=tp,
        cudagraph_capture_sizes=sizes_up_to(min(MOST_CAPTURED, 2 * row["seqs"])) if counts_graphs else (),
        encoded=_encoded(model, row["tokens"], row["seqs"], row.get("max_model_len", model.max_model_len)),
        sorts=_release(row) < _SORTED_BEFORE,
    )
    left = total * row["utilization"] - model.weight_bytes(tp, expert_parallel_size=row.get("ep", 1))
    return (left - needed.likely) / GIB, (left - needed.most) / GIB


def _encoded(model: ModelSpec, tokens: int, seqs: int, length: int) -> EncodedAtOnce | None:
    """What vLLM has an encoder compute."""
    limits = BatchLimits(max_num_batched_tokens=tokens, max_num_seqs=seqs)
    return measured_encoder(DeploymentSettings(), model, limits, length)


def _memory_summary(rows: list[dict[str, Any]]) -> str:
    """How far the estimate is off, and how often the lower figure held: of all logs, and of the versions replayed."""
    linked = sum("url" in row for row in rows)
    return (
        f"Of these {len(rows)} logs ({linked} with a link) {_off(rows)}. Of those of vLLM 0.21 and later"
        f" {_off([row for row in rows if _release(row) >= (0, 21)])}."
    )


def _off(rows: list[dict[str, Any]]) -> str:
    off = sorted(abs(memory_left(row)[0] - row["kv_gib"]) for row in rows)
    held = sum(memory_left(row)[1] <= row["kv_gib"] for row in rows)
    return (
        f"half are within {median(off):.1f} GiB of the estimate, the worst is {off[-1]:.1f} GiB off;"
        f' "at least" held in {held} of {len(rows)}'
    )


def _release(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(map(int, row["version"].split(".")))


def _memory_line(row: dict[str, Any]) -> str:
    tp, (likely, least) = row["tp"], memory_left(row)
    spread = ", experts whole" * ("ep" in row) + ", eager" * row.get("eager", False)
    source = f"[log]({row['url']})" if "url" in row else "a log without a public thread"
    note = f": {row['note']}" if "note" in row else ""
    return (
        f"| {row['model']} | {tp} x {row['gpu']}{spread} | {row['version']} | {row['utilization']:.4g} "
        f"| {row['tokens']:,}, {row['seqs']:,} | {row['kv_gib']:.2f} | {likely:.2f} | {least:.2f} "
        f"| {source}{note} |"
    )


def _long_ones() -> list[str]:
    """Two capacities that are quoted without what they depend on."""
    next_model, hybrid = MODELS["qwen3-next-80b-a3b"], MODELS["nemotron-h-8b"]
    gpus = named_gpu("h200"), named_gpu("h100")
    memories = [
        int(gpu.memory_bytes * UTILIZATION)
        - model.weight_bytes(tp)
        - step_memory(
            model,
            gpu,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            max_num_seqs=MAX_NUM_SEQS,
            tensor_parallel_size=tp,
        ).likely
        for model, gpu, tp in ((next_model, gpus[0], 8), (hybrid, gpus[1], 1))
    ]
    settings: dict[str, Any] = {"planner": "0.22", "enable_prefix_caching": False, "must_start": False}
    large = plan_kv_cache(next_model, available_bytes=memories[0], tensor_parallel_size=8, **settings)
    lengths = (8192, 131_072, 1_000_000)
    plans = [plan_kv_cache(hybrid, available_bytes=memories[1], max_model_len=each, **settings) for each in lengths]
    return [
        "## Two figures that need their length",
        "",
        "Tokens are requests of `max_model_len` that fit, times `max_model_len`. States weigh less the longer a",
        "request is, so that such a figure holds for that length alone: shorter requests fit in larger numbers.",
        "",
        (
            "* **Qwen3-Next-80B, 9.3 M tokens**: 8 x H200, tensor parallel 8, bfloat16 KV, "
            f"{memories[0] / GIB:.1f} GiB for KV, 262,144 tokens per request, no prefix caching (as 0.22 has it): "
            f"{large.num_tokens:,} in blocks of {large.block_size}."
        ),
        (
            f"* **Nemotron-H-8B, 3.6 M tokens**: 1 x H100, bfloat16 KV, {memories[1] / GIB:.1f} GiB for KV, requests "
            f"of {lengths[2]:,} tokens: {plans[2].num_tokens:,}. With {lengths[1]:,} it is {plans[1].num_tokens:,}, "
            f"and with the {lengths[0]:,} that the model was made for {plans[0].num_tokens:,}."
        ),
    ]


def _logged_capacity(row: dict[str, Any]) -> tuple[str, str]:
    plan = plan_kv_cache(
        MODELS[row["model"]],
        available_bytes=int(row["kv_gib"] * GIB),
        tensor_parallel_size=row["tp"],
        max_model_len=row.get("max_model_len"),
        planner="0.22",
        must_start=False,
        **row.get("options", {}),
    )
    if "longest" in row:
        return f"no start; at most {row['longest']:,}", f"no start; at most {plan.longest:,}"
    difference = plan.num_tokens / row["tokens"] - 1
    return f"{row['tokens']:,}", f"{plan.num_tokens:,} ({difference:+.1%})"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigError as error:
        sys.exit(str(error))
