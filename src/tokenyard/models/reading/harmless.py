"""Fields that were not asked for: which of them might change memory or time.

A field that neither a family nor a rule knows, and whose name says that it may matter, is an error that names it, or a
note where ``--ignore-unmodelled`` asks for that. A wrong answer that looks right is worse.
"""

from __future__ import annotations

from typing import Any

from tokenyard.models.fields import Fields, field_names
from tokenyard.models.reading.params import KNOWN, PARAMS
from tokenyard.models.reading.parts import ConfigReader
from tokenyard.models.recorded import recorded
from tokenyard.patterns import lazy_pattern

_MATTERS = lazy_pattern(
    r"window|layer|expert|head|dim$|_dim|_size$|rank|interval|period|pattern|mamba|ssm|conv|linear|kv_|^num_|quant|share"
    r"|lora|state|chunk|moe|mlp|attn|attention|sparse|block|index|adapter|depth|hidden"
)
"""What a name has in it if the field may matter."""

_HARMLESS_RULES = lazy_pattern(
    r"_tokens?_(id|ids|index|indices)$"  # of the vocabulary
    r"|dropout|_pdrop$|layerdrop|jitter|_loss|_coeff?$|_penalty$"  # training
    r"|^(initializer|gradient|mask_feature|mask_time)_"
    r"|_init(ializer)?(_\w+)?$"
    r"|_eps$|epsilon$|_multipliers?$|(?<!rope)_scal(e|ing)(_factor)?$|_softcap(ping)?$"  # activations are scaled by it
    r"|(^|_)act(ivation)?(_function|_func|_fn)?$|renorm"
    r"|^(output|classifier|summary|pad)_|^use_cache|_implementation(_autoset)?$"  # of the library that wrote the file
    r"|flash_att(n|ention)|memory_efficient_attention"  # kernels of that library
    r"|^(torch|moe_router|router|head)_dtype$|_fp32$|^scale_|^vision_feature_|rope_theta$|rope_interleaved?$|^no_rope_layers$"
    r"|(^|_)(mtp|nextn)_|^dspark_|router_bias$"  # draft heads, which are no part of the model
)
"""Names of fields that change neither memory nor time, whatever the model."""

_HARMLESS = frozenset(field_names()["harmless"])
"""Further names that look as if they mattered and do not."""

_OF_EVERY_FILE = frozenset(field_names()["of_every_file"])
"""What the base class of ``transformers`` 4 wrote into files, whatever the model: ways to generate, and training."""


def harmless_by_rule(name: str) -> bool:
    """Whether a field of this name changes neither memory nor time, whatever the model."""
    return bool(_HARMLESS_RULES.search(name))


def may_matter(name: str) -> bool:
    """Whether a field of this name may change memory or time, as far as rules say."""
    return bool(_MATTERS.search(name)) and name not in _HARMLESS | _OF_EVERY_FILE and not harmless_by_rule(name)


def _may_be_read(name: str, architecture: str) -> bool:
    """Whether vLLM's code for an architecture names the field; every field where its code was not looked at."""
    named = recorded("field_names")  # module -> words in it, architecture -> modules of its code
    words, modules = named["modules"], named["architectures"]
    return architecture not in modules or any(name in words[module] for module in modules[architecture])


def check_unread(reading: ConfigReader, architecture: str) -> None:
    """Raise the error for the first field of the file that may matter and that was not read, or note them all.

    ``architecture`` is the one whose row has read it.

    Of a ``params.json`` any may matter: it holds what its format names, in words of its own that no code reads.
    """
    is_params = bool(reading.outer.get(PARAMS))
    proved = recorded("unread").get(architecture, ())  # lab/record_registry.py looked on while vLLM built it
    sections = [reading.fields] if reading.outer is reading.fields else [reading.fields, reading.outer]
    for section in sections:
        for name, value in section.unread().items():
            if is_params:
                matters = name not in KNOWN and not harmless_by_rule(name)
            else:
                matters = may_matter(name) and name not in proved and _may_be_read(name, architecture)
            if matters and _says_something(value):
                _report(reading, section, name)


def _says_something(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {}, 0.0)


def _report(reading: ConfigReader, section: Fields, name: str) -> None:
    if not reading.ignore:
        raise section.error(
            name, "is not modelled and may change memory or time: --ignore-unmodelled goes on without it"
        )
    reading.ignored.append(f"{name} = {section.get(name)!r}")
