"""``--speculative-config``: which of our methods drafts like which of vLLM's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from tokenyard.core.config import SpeculativeConfig, SpeculativeMethod
from tokenyard.core.profiles import DecisionProfile
from tokenyard.deploy.vllm_serve.flags import KNOWN
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.errors import ConfigError, NotModelledError, TokenyardError
from tokenyard.models.named import MODELS, model_called
from tokenyard.models.reading.predicting import may_predict
from tokenyard.models.spec import ModelSpec

_IN_ONE_PASS = ("dflash", "dspark")
"""A draft model makes all drafts at once, from the target's hidden states; to the scheduler it is as a head."""
_LIKE_EAGLE = ("eagle", "eagle3", "mtp", *_IN_ONE_PASS)
"""Drafts come from the target's hidden states, and the last matched block is computed again."""
_PLAIN = {
    "ngram": SpeculativeMethod.NGRAM,
    "[ngram]": SpeculativeMethod.NGRAM,
    "ngram_gpu": SpeculativeMethod.NGRAM_GPU,
    "draft_model": SpeculativeMethod.DRAFT_MODEL,
}
_WITH_WEIGHTS = (SpeculativeMethod.EAGLE, SpeculativeMethod.DRAFT_MODEL)
_KNOWN = ("method", "model", "num_speculative_tokens")
_DECIDES: Mapping[str, str] = KNOWN["decides"]
"""Fields that change more than which drafts are right."""


class AskedSpeculation(msgspec.Struct, frozen=True):
    """Speculative decoding as vLLM's configuration has it."""

    config: SpeculativeConfig
    method: str | None
    """The method as the flag named it; None without a flag."""
    draft_model: str | None
    """The draft model as the flag named it; None without a flag."""
    ignored: tuple[str, ...]
    """Fields that change time or which drafts are right, and are not modelled."""

    @property
    def predicts_itself(self) -> bool:
        """Whether the model's own layers for multi-token prediction draft."""
        return self._predicts and self.draft_model is None

    @property
    def shares_kv(self) -> bool:
        """Whether what drafts is a model of its own that reads the KV of the other (Gemma 4's assistants)."""
        return self._predicts and self.draft_model is not None

    @property
    def _predicts(self) -> bool:
        return isinstance(self.method, str) and self.method.endswith("mtp")

    def drafter(self) -> ModelSpec | None:
        """The model of its own that drafts, where its name or path says what it is made of."""
        if self.draft_model is None or not (self.shares_kv or self.config.method is SpeculativeMethod.DRAFT_MODEL):
            return None
        try:
            return model_called(self.draft_model)
        except TokenyardError:
            return None

    def uncounted(self, drafter: ModelSpec | None) -> list[str]:
        """What is not counted of a draft model that is not known: a sentence, or nothing."""
        own = self.shares_kv or self.config.method is SpeculativeMethod.DRAFT_MODEL
        if not own or drafter is not None or self.draft_model is None:
            return []
        field = _field_in_words("model", self.draft_model)
        return [f"{field}: its weights, KV and time count as nothing, for it is not known; name its config.json"]


def read_speculation(
    text: str | None,
    *,
    method: str | None,
    num_tokens: int | None,
    draft_model: str | None = None,
    target: str | None = None,
    ignore_unmodelled: bool = False,
) -> AskedSpeculation | None:
    """What the JSON ``text`` asks for; ``--spec-method``, ``-tokens`` and ``-model`` stand in the place of its fields.
    A draft model called as the ``target`` is the target itself.

    None if nothing is requested. Raises ConfigError for what is no JSON object, for a method that is not
    modelled, and without a number of drafts; NotModelledError for fields that decide more than which drafts are right,
    unless they are to be ignored.
    """
    if text is None and method is None and num_tokens is None:
        return None
    fields = _fields(text)
    if method is not None and fields.get("method") is not None:
        raise refused("two_methods", method)
    if num_tokens is not None and fields.get("num_speculative_tokens") is not None:
        raise refused("two_numbers_of_drafts", num_tokens)
    count = num_tokens if num_tokens is not None else fields.get("num_speculative_tokens")
    if count is None:
        fix = "give §num_speculative_tokens: how many drafts the draft model was made for is not known here"
        raise ConfigError("speculative_config", text, fix)
    weights = draft_model or fields.get("model")
    weights = None if weights == target else weights
    chosen = _method(method or fields.get("method"), weights)
    unused = {name: value for name, value in fields.items() if name not in _KNOWN}
    deciding = [(_field_in_words(name, unused[name]), why) for name, why in _DECIDES.items() if unused.get(name)]
    if deciding and not ignore_unmodelled:
        raise NotModelledError(deciding)
    ignored = tuple(
        f"{_field_in_words(name, value)}: {_DECIDES.get(name, 'which drafts are right is --acceptance-rates')}"
        for name, value in unused.items()
    )
    name = method or fields.get("method")
    if name in _IN_ONE_PASS:
        counted = "its layers are not known here: memory and time are those of a head of one layer per draft"
        ignored = (*ignored, f"speculative_config.method {name}: {counted}")
    return AskedSpeculation(SpeculativeConfig(num_speculative_tokens=count, method=chosen), name, weights, ignored)


def _field_in_words(name: str, value: Any) -> str:
    return f"speculative_config.{name} {json.dumps(value)}"


def _fields(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        fields = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError("speculative_config", text, f"is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(
            "speculative_config", text, 'give a JSON object: {"method": ..., "num_speculative_tokens": ...}'
        )
    return fields


def _method(method: Any, model: Any) -> SpeculativeMethod:
    """The method that vLLM takes: the one that is named, else what the draft model's name says, else a draft model."""
    if method is None:
        named = str(model or "").lower()
        if named in _PLAIN:
            return _PLAIN[named]
        return SpeculativeMethod.EAGLE if "eagle" in named or named.endswith("mtp") else SpeculativeMethod.DRAFT_MODEL
    if method in _LIKE_EAGLE or (isinstance(method, str) and method.endswith("_mtp")):
        return SpeculativeMethod.EAGLE
    if method not in _PLAIN:
        known = ", ".join((*_LIKE_EAGLE, *(name for name in _PLAIN if name[0] != "[")))
        raise ConfigError("speculative_config.method", method, f"is not modelled: use one of {known}")
    return _PLAIN[method]


def check_drafts(asked: AskedSpeculation, model: ModelSpec) -> None:
    """Raise NoStartError for drafts that nothing makes: a draft model without a name, layers that are not there.

    ConfigError where only what is known here of a model by its name may lack them.
    """
    if asked.predicts_itself and not model.predicting_layers:
        if model.name in MODELS and may_predict(model.architecture, model.model_type):
            fix = (
                f"what is known of {model.name} by name says of no layers that predict: give its config.json by §model"
            )
            raise ConfigError("speculative_config.method", asked.method, fix)
        raise refused("no_predicting_layers", asked.method, model=model.name)
    if asked.draft_model is None and not asked.predicts_itself and asked.config.method in _WITH_WEIGHTS:
        raise refused("no_draft_model", None, drafts=asked.config.num_speculative_tokens)


def token_budget(
    speculative: SpeculativeConfig | None, profile: DecisionProfile, max_num_batched_tokens: int, max_num_seqs: int
) -> int:
    """Tokens that the scheduler may give out in a step.

    Drafters that add slots to a batch leave it fewer: in earlier versions once and for all as many as there may be
    requests, in later ones as many as there are. Raises NoStartError if none is left.
    """
    if speculative is None or profile.drafts_take_input_slots:
        return max_num_batched_tokens
    budget = max_num_batched_tokens - speculative.num_draft_slots * max_num_seqs
    if budget < 1:
        least = max_num_batched_tokens + 1 - budget
        raise refused("no_room_for_draft_slots", max_num_batched_tokens, seqs=max_num_seqs, least=least)
    return budget
