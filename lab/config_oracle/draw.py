"""Numbered cases: the same number is the same case, whichever vLLM it is tried with."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenyard.models.named import MODELS, named_model

__all__ = ["CONFIGS", "DRAFTS", "Case", "as_text", "draw", "each_method", "recorded"]

CONFIGS = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "models" / "configs"
RECORDED = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "deploy" / "vllm_serve" / "recorded"
DRAFTS = "/drafts/"
"""What stands in front of the name of a drawn draft model, for `theirs` to put a folder in its place."""

_GPUS: tuple[str, ...] = (
    "h100",
    "h200",
    "b200",
    "b300",
    "gb200",
    "a100-80gb",
    "a100-40gb",
    "a10",
    "l4",
    "l40s",
    "rtx4090",
)
_GPUS += ("rtx5090", "rtxpro6000")
_ENOUGH = str(1 << 40)
"""Bytes of KV cache: whatever is asked for fits."""
_LENGTHS = ("512", "4096", "8192", "16k", "32K", "40960", "131072", "262144", "1000000", "auto", "-1")
_TOKENS = ("64", "256", "512", "1024", "2000", "2k", "4096", "8192", "16384", "32K")
_SEQS = ("1", "4", "8", "13", "16", "64", "100", "128", "200", "256", "300", "512", "1024", "2048")
_BLOCKS = ("8", "16", "32", "64", "128", "24")
_KV_DTYPES: tuple[str, ...] = (
    "auto",
    "bfloat16",
    "float16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "nvfp4",
    "fp8_inc",
    "fp8_ds_mla",
)
_KV_DTYPES += ("int8_per_token_head", "fp8_per_token_head", "turboquant_k8v4", "int4_per_token_head", "ultraquant_4bit")
_ALL2ALL: tuple[str, ...] = (
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "flashinfer_nvlink_two_sided",
)
_ALL2ALL += ("naive", "pplx", "mori_low_latency", "nixl_ep", "flashinfer_all2allv")
_COMPILE: tuple[dict[str, Any], ...] = (
    {},
    {"cudagraph_mode": "FULL_AND_PIECEWISE"},
    {"cudagraph_mode": "PIECEWISE"},
    {"cudagraph_mode": "NONE"},
    {"cudagraph_mode": "FULL_DECODE_ONLY"},
    {"cudagraph_capture_sizes": [1, 2, 4, 8, 64]},
    {"cudagraph_capture_sizes": [512, 1, 256]},
    {"max_cudagraph_capture_size": 128},
    {"max_cudagraph_capture_size": 2048},
    {"mode": 3},
    {"mode": 0},
    {"level": 3},
    {"pass_config": {"fuse_norm_quant": True}},
)
_SPECULATION: tuple[dict[str, Any], ...] = (
    {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
    {"method": "ngram", "num_speculative_tokens": 1, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
    {"method": "ngram_gpu", "num_speculative_tokens": 2, "prompt_lookup_max": 4},
    {"method": "mtp", "num_speculative_tokens": 1},
    {"method": "mtp", "num_speculative_tokens": 3},
    {"method": "eagle3", "model": DRAFTS + "eagle3", "num_speculative_tokens": 3},
    {"method": "eagle", "model": DRAFTS + "eagle", "num_speculative_tokens": 5},
    {"method": "draft_model", "model": DRAFTS + "small", "num_speculative_tokens": 4},
    {"method": "suffix", "num_speculative_tokens": 4},
)
_OVERRIDES: tuple[dict[str, Any], ...] = (
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32768}},
    {"rope_theta": 1000000.0},
    {"max_position_embeddings": 65536},
    {"num_hidden_layers": 8},
)
_LIMITS_MM: tuple[dict[str, Any], ...] = ({"image": 0}, {"image": 2}, {"image": 1, "video": 0})
_TRANSFERS: tuple[dict[str, Any], ...] = (
    {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"num_cpu_blocks": 100}},
    {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
)
_VARIABLES: tuple[tuple[str, str], ...] = (
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"),
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0"),
    ("VLLM_USE_V2_MODEL_RUNNER", "0"),
    ("VLLM_USE_V2_MODEL_RUNNER", "1"),
    ("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "0"),
    ("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE", "1"),
    ("VLLM_LOGGING_LEVEL", "INFO"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One line, and where it is run."""

    number: int
    gpu: str
    model: str
    """One of those that are known by name; its config.json is the one we carry."""
    words: tuple[str, ...]
    """Behind the model."""
    variables: tuple[tuple[str, str], ...] = ()
    has_any_flags: bool = False
    """Flags of every kind are among them, some of which vLLM keeps for what it reads next."""
    ignores: bool = False
    """Whether we are told to pass over what we do not model."""

    @property
    def line(self) -> str:
        """As a user would paste it."""
        assigned = [f"{name}={value}" for name, value in self.variables]
        return shlex.join([*assigned, "vllm", "serve", self.model, *self.words])


def as_text(cases: Iterable[Case]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(asdict(case)) + "\n" for case in cases)


def recorded(text: str) -> list[Case]:
    """What :func:`as_text` wrote."""
    found = [json.loads(line) for line in text.splitlines()]
    pairs = [tuple((name, value) for name, value in each.pop("variables")) for each in found]
    return [
        Case(**{**each, "words": tuple(each["words"]), "variables": variables})
        for each, variables in zip(found, pairs, strict=True)
    ]


def each_method(methods: Iterable[str]) -> list[Case]:
    """Every one of these methods of ``--quantization`` asked for with weights of every kind that is known by name."""
    weights: dict[object, str] = {}
    for name in sorted(MODELS):
        model = named_model(name)
        kind = (model.quantization, model.has_experts, model.weight_format, model.kv_cache_dtype)
        weights.setdefault(kind, name)
    asked = [(model, method) for model in weights.values() for method in sorted(methods)]
    return [
        Case(number, "b200", model, ("--quantization", method, "--kv-cache-memory-bytes", _ENOUGH))
        for number, (model, method) in enumerate(asked)
    ]


class _Drawing:
    """The words of one case."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.words: list[str] = []

    def maybe(self, chance: float, *words: str) -> None:
        if self.source.random() < chance:
            self.words += words

    def value(self, chance: float, flag: str, values: Sequence[str]) -> None:
        if self.source.random() < chance:
            self.words += (flag, self.source.choice(values))

    def json(self, chance: float, flag: str, values: Sequence[dict[str, Any]]) -> None:
        if self.source.random() < chance:
            self.words += (flag, json.dumps(self.source.choice(values)))


def draw(number: int, version: str) -> Case:
    """The case of this number. ``version`` says which other flags there are to draw from: 0.22 or 0.33."""
    source = random.Random(number)
    gpu, model = source.choice(_GPUS), source.choice(sorted(path.stem for path in CONFIGS.glob("*.json")))
    drawing = _Drawing(source)
    # Of few flags each: what differs is then seen alone, and both sides seldom refuse.
    parts: list[Callable[[_Drawing], None]] = [_limits, _memory, _parallel, _steps, _speculation, _rare]
    for part in source.sample(parts, source.randint(1, 3)):
        part(drawing)
    _leave_out_what_seldom_goes(drawing, json.loads((CONFIGS / f"{model}.json").read_text()))
    has_any = source.random() < 0.3
    drawing.words += _any_flags(source, version) if has_any else ()
    drawing.maybe(0.85, "--kv-cache-memory-bytes", _ENOUGH)  # else most GPUs are too small for most models
    variables = [source.choice(_VARIABLES)] if source.random() < 0.12 else []
    return Case(number, gpu, model, tuple(drawing.words), tuple(variables), has_any, ignores=source.random() < 0.3)


def _leave_out_what_seldom_goes(drawing: _Drawing, config: dict[str, Any]) -> None:
    """Most lines that vLLM would refuse for the model are drawn without what it refuses."""
    if drawing.source.random() < 0.1:
        return
    text = json.dumps(config)
    words = drawing.words
    if "expert" not in text:
        words = [word for word in words if word != "--enable-expert-parallel"]
    if "nextn" not in text and "qwen3_next" not in text:
        words = [word.replace('"method": "mtp"', '"method": "ngram", "prompt_lookup_max": 3') for word in words]
    drawing.words = [word.replace('"method": "suffix"', '"method": "ngram_gpu"') for word in words]


def _limits(drawing: _Drawing) -> None:
    drawing.value(0.4, "--max-model-len", _LENGTHS)
    drawing.value(0.4, "--max-num-batched-tokens", _TOKENS)
    drawing.value(0.4, "--max-num-seqs", _SEQS)
    drawing.value(0.1, "--long-prefill-token-threshold", ("0", "256", "2048", "50000"))
    drawing.value(0.15, "--performance-mode", ("balanced", "interactivity", "throughput"))
    drawing.value(0.1, "--scheduling-policy", ("fcfs", "priority"))
    drawing.value(0.2, "--enable-chunked-prefill", ("",))
    drawing.words = [word for word in drawing.words if word]
    drawing.maybe(0.1, "--no-enable-chunked-prefill")


def _memory(drawing: _Drawing) -> None:
    drawing.value(0.4, "--kv-cache-dtype", _KV_DTYPES)
    drawing.value(0.2, "--block-size", _BLOCKS)
    drawing.maybe(0.15, "--no-enable-prefix-caching")
    drawing.maybe(0.1, "--enable-prefix-caching")
    drawing.value(0.2, "--gpu-memory-utilization", ("0.5", "0.9", "0.95", "1.0"))
    drawing.value(0.1, "--num-gpu-blocks-override", ("512", "20000"))
    drawing.value(0.1, "--kv-offloading-size", ("8", "64"))
    drawing.json(0.1, "--kv-transfer-config", _TRANSFERS)
    drawing.value(0.1, "--dtype", ("auto", "bfloat16", "float16", "half", "float32"))
    drawing.value(0.1, "--quantization", ("fp8", "bitsandbytes", "awq", "awq_marlin", "gptq_marlin"))


def _parallel(drawing: _Drawing) -> None:
    drawing.value(0.6, "-tp", ("1", "2", "4", "8"))
    drawing.value(0.25, "-pp", ("1", "2", "4"))
    drawing.value(0.3, "-dp", ("1", "2", "4", "8"))
    drawing.maybe(0.3, "--enable-expert-parallel")
    drawing.value(0.2, "--all2all-backend", _ALL2ALL)
    drawing.value(0.15, "-dcp", ("1", "2", "4"))
    drawing.value(0.25, "--distributed-executor-backend", ("ray", "mp", "uni", "external_launcher"))
    drawing.value(0.1, "-dpl", ("1", "2", "4"))


def _steps(drawing: _Drawing) -> None:
    drawing.maybe(0.1, "--enforce-eager")
    drawing.json(0.25, "--compilation-config", _COMPILE)
    drawing.value(0.15, "-cc.cudagraph_mode", ("FULL_AND_PIECEWISE", "PIECEWISE", "NONE", "FULL"))
    drawing.value(0.15, "--max-cudagraph-capture-size", ("1", "64", "100", "512", "1024", "3000"))
    drawing.maybe(0.1, "--cudagraph-capture-sizes", "1", "8", "32", "1024")
    drawing.maybe(0.2, drawing.source.choice(("-O0", "-O1", "-O2", "-O3", "-O=3", "--optimization-level=3")))
    drawing.maybe(0.15, "--async-scheduling")
    drawing.maybe(0.15, "--no-async-scheduling")


def _speculation(drawing: _Drawing) -> None:
    drawing.json(0.9, "--speculative-config", _SPECULATION)
    drawing.value(0.3, "--max-num-seqs", _SEQS)
    drawing.maybe(0.15, "--async-scheduling")


def _rare(drawing: _Drawing) -> None:
    drawing.maybe(0.3, "--enable-lora")
    drawing.value(0.15, "--max-loras", ("1", "4", "8"))
    drawing.value(0.15, "--max-lora-rank", ("16", "64", "256"))
    drawing.value(0.15, "--max-cpu-loras", ("1", "8", "64"))
    drawing.json(0.2, "--limit-mm-per-prompt", _LIMITS_MM)
    drawing.maybe(0.1, "--language-model-only")
    drawing.maybe(0.1, "--disable-chunked-mm-input")
    drawing.json(0.2, "--hf-overrides", _OVERRIDES)
    drawing.maybe(0.1, "--no-scheduler-reserve-full-isl")
    drawing.value(0.1, "--watermark", ("0.0", "0.05"))
    drawing.maybe(0.1, "--disable-hybrid-kv-cache-manager")
    drawing.value(0.1, "--mamba-cache-mode", ("none", "align", "all"))


def _any_flags(source: random.Random, version: str) -> Iterator[str]:
    """A few flags of whatever kind, with one of their values."""
    flags = json.loads((RECORDED / f"{version}.json").read_text())["flags"]
    for flag in source.sample(flags, source.randint(1, 3)):
        words = list(_one(flag, source))
        yield from words


_LEFT_OUT: tuple[str, ...] = (
    "config",
    "model",
    "grpc",
    "headless",
    "data-parallel-supervisor-port",
    "api-server-count",
    "uds",
)
_LEFT_OUT += ("enable-sleep-mode", "sleep-mode-backend")  # they look for a driver
"""Flags that make of the command something else than a server, or that read a file."""
_LEFT_OUT += ("chat-template", "tool-parser-plugin", "reasoning-parser-plugin", "log-config-file", "hf-config-path")


def _one(flag: dict[str, Any], source: random.Random) -> Iterator[str]:
    name, kind = "--" + flag["name"], flag["kind"]
    if flag["name"] in _LEFT_OUT or flag.get("values"):
        return
    if kind in ("switch", "pair"):
        yield source.choice([name, *[off for off in flag.get("off_names", ()) if off.startswith("--no-")]])
    elif flag.get("choices"):
        yield name
        yield source.choice(flag["choices"])
    elif kind in ("int", "readable_int", "readable_int_or_auto"):
        yield name
        yield str(source.choice([1, 2, 16, flag.get("default", 4)]))
    elif kind == "float":
        yield name
        yield str(flag.get("default", 0.5))
