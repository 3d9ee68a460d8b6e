"""Configuration classes for models whose own class is not installed: what a file says is all that they know."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

__all__ = ["is_known", "stand_in", "with_factors"]

_SECTIONS = (
    "text_config", "llm_config", "language_config", "vision_config", "vit_config", "adapter_config", "audio_config",
    "sound_config", "projector_config",
)  # fmt: skip
_TYPED = ("encoder", "decoder")
"""Sections where they say their model_type; elsewhere fields of these names are plain objects."""
_CLASSES = {"new": "NewConfig", "xlm-roberta": "XLMRobertaFlashConfig"}
"""Names of published classes that vLLM asks for."""


def is_known(model_type: str) -> bool:
    """Whether ``transformers`` or vLLM has a configuration class of this name."""
    from transformers import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    return model_type in _CONFIG_REGISTRY or model_type in CONFIG_MAPPING


def stand_in(content: Mapping[str, Any]) -> Any:
    """A class that takes the fields of ``content`` and knows of no others, registered as that of its model_type."""
    from transformers import AutoConfig, PretrainedConfig

    class StandIn(PretrainedConfig):  # type: ignore[misc]
        """A configuration without code of its own."""

        model_type = content["model_type"]
        accepted = tuple(content)
        attribute_map = {"num_hidden_layers": "num_layers"} if "num_layers" in content else {}

        def __init__(self, **fields: Any) -> None:
            given = {"tie_word_embeddings": False, **content, **fields}
            if given.get("use_sliding_window") is False:  # what every class makes of it that has such a field
                given["sliding_window"] = None
            if isinstance(given.get("max_position_embeddings"), int):  # asked for as rotary scaling is read
                self.max_position_embeddings = given["max_position_embeddings"]
            super().__init__(**{name: _section(name, value) for name, value in given.items()})

    StandIn.__name__ = _CLASSES.get(content["model_type"], StandIn.__name__)
    AutoConfig.register(StandIn.model_type, StandIn, exist_ok=True)
    return StandIn


class _Record(dict[str, Any]):
    """An object whose fields are attributes too, as the code of a published model makes them."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return _Record(self[name]) if isinstance(self[name], dict) else self[name]


def _section(name: str, content: Any) -> Any:
    """A section of a configuration, of the class that its model_type has, if there is one."""
    from transformers import CONFIG_MAPPING, PretrainedConfig

    if name == "block_configs":
        return [_Record(each) for each in content]
    if not isinstance(content, dict) or not (name in _SECTIONS or (name in _TYPED and "model_type" in content)):
        return content
    known = content.get("model_type", "")
    if known in CONFIG_MAPPING:
        made_by = CONFIG_MAPPING[known]
        made_by = made_by.sub_configs.get(name, made_by)  # "siglip" and "clip" name the class around it
        with suppress(Exception):  # a published file may hold what the class of its name does not allow
            return made_by(**_renamed(content))
    return type("Section", (PretrainedConfig,), {"model_type": known})(**content)


def _renamed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with LongRoPE by its name of today."""
    scaling = content.get("rope_scaling")
    if not isinstance(scaling, dict) or scaling.get("type") != "su":
        return dict(content)
    return {**content, "rope_scaling": {**scaling, "type": "longrope", "rope_type": "longrope"}}


def with_factors(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with LongRoPE's factors, which models known by name leave out: vLLM wants some, and no size
    depends on them.
    """
    scaling = config.get("rope_scaling")
    if not isinstance(scaling, dict) or scaling.get("type") != "longrope" or "long_factor" in scaling:
        return config
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    ones = [1.0] * (int(size * config.get("partial_rotary_factor", 1.0)) // 2)
    mscale = {"short_mscale": 1.0, "long_mscale": 1.0} if config["model_type"] == "phimoe" else {}
    return {**config, "rope_scaling": {**scaling, "long_factor": ones, "short_factor": ones, **mscale}}
