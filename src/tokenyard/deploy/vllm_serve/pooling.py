"""Models that pool: embeddings, scores and labels (``--runner pooling``), and what vLLM then does otherwise.

Their requests end with their prompts. To a scheduler such a request is one whose first token is its last, so a replay
counts its result as one token; ``tests/unit/deploy/test_pooling.py`` compares the two step by step.
"""

from __future__ import annotations

from dataclasses import replace

from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.errors import ConfigError
from tokenyard.models.mixers import Attends, LatentAttention, ShortConvolution, SoftmaxAttention
from tokenyard.models.reading.table import only_pools, pools_whole_prompts
from tokenyard.models.spec import ModelSpec

RUNNERS = ("auto", "generate", "pooling")
_CONVERTED = ("embed", "classify")
_WHOLE = ("MEAN", "CLS", "STEP")
"""Ways of pooling for which vLLM computes a prompt in one step, and keeps none of it."""


def pools(model: ModelSpec, runner: str, convert: str) -> bool:
    """Whether a model is served for its hidden states. ConfigError for a name that is none, NoStartError as vLLM."""
    if runner not in RUNNERS:
        raise ConfigError("runner", runner, f"use one of: {', '.join(RUNNERS)}")
    if runner == "generate" and only_pools(model.architecture):
        raise refused("only_pools", runner, model=model.name, architecture=model.architecture)
    asked = runner == "pooling" or (runner == "auto" and convert in _CONVERTED)
    return asked or (runner == "auto" and only_pools(model.architecture))


def pooled(model: ModelSpec) -> ModelSpec:
    """A decoder as vLLM loads it to pool: without its output head. What only pools has what its row says."""
    if only_pools(model.architecture):
        return model
    return replace(model, tie_word_embeddings=True, head_weights=None)


def cuts_prompts(model: ModelSpec, pooler_config: object = None) -> bool:
    """Whether vLLM computes prompts in parts and keeps prefixes: where tokens see those before them alone, and the last
    one's state, or every one's, is requested. ConfigError if ``--pooler-config`` is no object.
    """
    if any(_both_ways(mixer) for layer in model.layers for mixer in layer.mixers):
        return False
    given = _pooler_fields(pooler_config)
    kinds = [given.get(name) for name in ("pooling_type", "seq_pooling_type", "tok_pooling_type")]
    if any(kinds):
        return not any(kind in _WHOLE for kind in kinds)
    return not pools_whole_prompts(model.architecture)


def _both_ways(mixer: object) -> bool:
    if isinstance(mixer, SoftmaxAttention):
        return mixer.attends is Attends.BOTH_WAYS
    return isinstance(mixer, LatentAttention | ShortConvolution) and mixer.both_ways


def _pooler_fields(value: object) -> dict[str, object]:
    if value is None or isinstance(value, dict):
        return value or {}
    raise ConfigError("pooler_config", value, 'give a JSON object: {"pooling_type": "MEAN"}')
