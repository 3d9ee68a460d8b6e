"""The models and flags behind measured points."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.models.formats import BFLOAT16, WeightFormat
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import Attends, LatentAttention, SoftmaxAttention
from tokenyard.models.named import named_model
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.constants import minor_version
from tokenyard.steptime.formula import DEFAULT_CAPTURE_SIZE

# ---------------------------------------------------------------------------------------------------------------------
# The models of the measured points, by name and precision, as the checkpoints that were served are made.

FP8 = WeightFormat(name="fp8", bits=8, compute="float8")
NVFP4 = WeightFormat(name="nvfp4", bits=4, group_size=16, group_bits=8, compute="float4")
MXFP4 = WeightFormat(name="mxfp4", bits=4, group_size=32, group_bits=8)
INT4 = WeightFormat(name="int4", bits=4, group_size=32, group_bits=16)
_CONTEXT = 131_072


def measured_model(path: str, precision: str) -> ModelSpec:
    """The model of a point. ``path`` as on the hub, ``precision`` fp8, fp4, int4 or nothing for bfloat16.

    Raises ConfigError for a model that is not known.
    """
    name = path.rsplit("/", 1)[-1].lower()
    plain = {"fp8": FP8, "fp4": NVFP4, "int4": INT4}.get(precision, BFLOAT16)
    for start, make in _MAKERS.items():
        if name.startswith(start):
            return make(name, plain)
    try:
        spec = named_model(name)
    except TokenyardError:
        fix = "is not a model that is known by name: give §model, a name or a config.json"
        raise ConfigError("model_path", path, fix) from None
    bits = {"fp8": 8, "fp4": 4, "int4": 4}.get(precision, 16)
    if precision and spec.weight_format.bits != bits:
        raise ConfigError("precision", precision, f"{spec.name} is known with weights of {spec.weight_format.name}")
    return spec


def _dense(
    name: str,
    layers: int,
    hidden: int,
    heads: tuple[int, int],
    width: int,
    vocab: int,
    weights: WeightFormat,
    *,
    head_norms: bool = False,
) -> ModelSpec:
    attention = SoftmaxAttention(
        hidden_size=hidden,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_size=128,
        head_norms=head_norms,
        weights=weights,
    )
    mlp = DenseMLP(hidden_size=hidden, width=width, weights=weights)
    layer = LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden)
    return ModelSpec(name=name, layers=(layer,) * layers, hidden_size=hidden, vocab_size=vocab, max_model_len=_CONTEXT)


def _experts(
    name: str,
    layers: int,
    hidden: int,
    heads: tuple[int, int],
    experts: tuple[int, int, int],
    *,
    vocab: int,
    weights: WeightFormat,
    attention_weights: WeightFormat | None = None,
    head_size: int = 128,
    window: int = 0,
    head_norms: bool = False,
    full_norms: bool = False,
) -> ModelSpec:
    """``experts``: all, per token, width of one; ``weights`` are theirs and, unless given, attention's.

    With ``window`` every other layer has it, the first one too.
    """

    def layer(window: int) -> LayerSpec:
        attention = SoftmaxAttention(
            hidden_size=hidden,
            num_heads=heads[0],
            num_kv_heads=heads[1],
            head_size=head_size,
            attends=Attends.SLIDING_WINDOW if window else Attends.FULL,
            window=window,
            head_norms=head_norms,
            full_norms=full_norms,
            weights=attention_weights or weights,
        )
        mlp = MoE(
            hidden_size=hidden,
            num_experts=experts[0],
            num_experts_per_tok=experts[1],
            width=experts[2],
            extra_parameters=hidden * experts[0],
            weights=weights,
        )
        return LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden)

    made = (layer(window), layer(0)) * (layers // 2) if window else (layer(0),) * layers
    return ModelSpec(name=name, layers=made, hidden_size=hidden, vocab_size=vocab, max_model_len=_CONTEXT)


def _kimi(name: str, weights: WeightFormat) -> ModelSpec:
    """Kimi-K2: DeepSeek-V3's layers; the NVFP4 checkpoint leaves attention in bfloat16 and keeps an fp8 KV cache."""
    others = weights if weights is NVFP4 else BFLOAT16
    attention = LatentAttention(
        hidden_size=7168,
        num_heads=64,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        q_lora_rank=1536,
    )
    experts = MoE(
        hidden_size=7168,
        num_experts=384,
        num_experts_per_tok=8,
        width=2048,
        shared_width=2048,
        extra_parameters=7168 * 384,
        weights=weights,
        shared_weights=others,
    )
    first = LayerSpec(mixers=(attention,), mlp=DenseMLP(hidden_size=7168, width=18_432, weights=others))
    rest = LayerSpec(mixers=(attention,), mlp=experts)
    return ModelSpec(
        name=name,
        layers=(first, *(rest,) * 60),
        hidden_size=7168,
        vocab_size=163_840,
        max_model_len=_CONTEXT,
        kv_cache_dtype="fp8" if weights is NVFP4 else None,
    )


_MAKERS: dict[str, Callable[[str, WeightFormat], ModelSpec]] = {
    "llama-3.1-70b": lambda name, plain: _dense(name, 80, 8192, (64, 8), 28_672, 128_256, plain),
    "llama-3.1-8b": lambda name, plain: _dense(name, 32, 4096, (32, 8), 14_336, 128_256, plain),
    "qwen3-32b": lambda name, plain: _dense(name, 64, 5120, (64, 8), 25_600, 151_936, plain, head_norms=True),
    "qwen3-235b": lambda name, plain: _experts(
        name, 94, 4096, (64, 4), (128, 8, 1536), vocab=151_936, weights=plain, head_norms=True
    ),
    "qwen3-30b": lambda name, plain: _experts(
        name, 48, 2048, (32, 4), (128, 8, 768), vocab=151_936, weights=plain, head_norms=True
    ),
    "minimax-m2": lambda name, plain: _experts(
        name,
        62,
        3072,
        (48, 8),
        (256, 8, 1536),
        vocab=200_064,
        weights=plain,
        attention_weights=BFLOAT16 if plain is NVFP4 else plain,
        full_norms=True,
    ),
    "gpt-oss-120b": lambda name, _: _experts(
        name,
        36,
        2880,
        (64, 8),
        (128, 4, 2880),
        vocab=201_088,
        weights=MXFP4,
        attention_weights=BFLOAT16,
        head_size=64,
        window=128,
    ),
    "kimi-k2": lambda name, plain: _kimi(name, NVFP4 if plain is NVFP4 else INT4),
}
"""Beginning of the name on the hub, in lower case -> model."""


# ---------------------------------------------------------------------------------------------------------------------
# The engine's flags behind published points, which the table of points does not hold.
#
# The points of MiniMax-M2.5, Kimi-K2.5, gpt-oss-120b and Llama-3.1-70B are InferenceX's (SemiAnalysis): its benchmark
# scripts say how the server was started, and that the load is vLLM's random data set with lengths drawn from 80 to
# 100 % of the nominal ones, ten requests per user, all sent at the start, and the mean of TTFT and TPOT. Scripts
# changed with time, so a recipe is chosen by the date of the measurement. For all other points: vLLM's defaults,
# lengths that vary by 10 %.

_BIG_GRAPHS = 2048
_FIRST_ASYNC = 14
"""From 0.14 on a step is prepared while the one before it runs; before that InferenceX asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the server was started, and what was sent."""

    max_num_batched_tokens: int = 8192
    kv_cache_dtype: str | None = None
    gpu_memory_utilization: float = 0.9
    always_expert_parallel: bool = False
    """The script turned expert parallelism on whatever the record says."""
    knows_data_parallel: bool = True
    """False: the script ignored data-parallel attention, and ran tensor with expert parallelism instead."""
    capture_size: int = DEFAULT_CAPTURE_SIZE
    piecewise: bool = False
    """Graphs are of pieces between attention, also of steps without prompts (cudagraph_mode PIECEWISE)."""
    async_scheduling: bool = True
    """False: one step in flight, as vLLM had it by default before 0.14."""
    shortest: float = 0.8
    """Share of the nominal lengths from which lengths are drawn."""
    distinct_prompts: int = 0
    """Number of prompts that were sent again and again, and found in the prefix cache; 0: every prompt was new."""


def recipe_of(model_path: str, precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    """The recipe of a point; ``measured`` is the date, as 2026-04-03, or nothing where it is not known."""
    name = model_path.rsplit("/", 1)[-1].lower()
    for start, rule in _RULES.items():
        if name.startswith(start):
            return rule(precision, gpu, measured, version, input_tokens)
    return _default_recipe(version)


def _default_recipe(version: str) -> Recipe:
    return Recipe(shortest=0.9, async_scheduling=prepares_ahead(version))


def prepares_ahead(version: str) -> bool:
    """Whether that version of vLLM has two steps in flight by default; one that is not known is new."""
    number = minor_version(version)
    return number is None or number >= _FIRST_ASYNC


def _minimax(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    if gpu == "h100":
        return Recipe(knows_data_parallel=False, piecewise=True)
    if gpu == "h200":
        return Recipe(
            gpu_memory_utilization=0.95, always_expert_parallel=measured >= "2026-03-13", knows_data_parallel=False
        )
    if precision == "fp8" and measured < "2026-04-03":
        return Recipe(gpu_memory_utilization=0.95, always_expert_parallel=True, knows_data_parallel=False)
    if version.startswith("nightly"):
        return Recipe(kv_cache_dtype="fp8", knows_data_parallel=precision == "fp4")
    return Recipe(
        max_num_batched_tokens=2 * input_tokens,
        kv_cache_dtype="fp8",
        capture_size=_BIG_GRAPHS,
        knows_data_parallel=precision == "fp4",
    )


def _recipes_kimi(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    if precision == "int4":
        return Recipe(gpu_memory_utilization=0.95, knows_data_parallel=False)
    if gpu == "b200" and measured >= "2026-04-20":
        return Recipe(
            max_num_batched_tokens=2 * input_tokens,
            kv_cache_dtype="fp8",
            capture_size=_BIG_GRAPHS,
            knows_data_parallel=False,
        )
    return Recipe(kv_cache_dtype="fp8", knows_data_parallel=False)


def _gpt_oss(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    late = measured >= "2025-12"
    return Recipe(
        kv_cache_dtype="fp8" if gpu == "b200" and late else None,
        capture_size=_BIG_GRAPHS,
        piecewise=gpu == "h200" and not late,
        knows_data_parallel=False,
    )


def _llama_70b(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    """On Blackwell graphs were captured for decodes alone."""
    capture_size = 0 if gpu.startswith("b") else DEFAULT_CAPTURE_SIZE
    return Recipe(kv_cache_dtype="fp8", capture_size=capture_size, knows_data_parallel=False)


def _again(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    """One campaign of vLLM 0.12 on H200, whose prompts repeat: 128 users and 4,000 tokens on one GPU would else compute
    more than the data sheet allows. Its client (genai-perf, aiperf) makes a hundred prompts by default, all
    of one length, and every user warms up with one.
    """
    if (gpu, version) != ("h200", "0.12.0"):
        return _default_recipe(version)
    return Recipe(shortest=1.0, distinct_prompts=100, async_scheduling=False)


_RULES: dict[str, Callable[[str, str, str, str, int], Recipe]] = {
    "minimax-m2": _minimax,
    "kimi-k2": _recipes_kimi,
    "gpt-oss": _gpt_oss,
    "llama-3.1-70b": _llama_70b,
    "llama-3.1-8b-instruct-fp8": _again,
    "qwen3-235b-a22b-fp8": _again,
}
