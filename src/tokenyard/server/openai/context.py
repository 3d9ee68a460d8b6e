"""What all endpoints share: the engine, the names of its model, limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenyard.engine.async_llm import AsyncLLM
from tokenyard.engine.generation import check_num_samples
from tokenyard.engine.generation_config import GenerationDefaults
from tokenyard.engine.grammars import MAX_GRAMMAR_BYTES, GrammarCompiler
from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.errors import ConfigError
from tokenyard.server.openai.errors import ApiError, bad_field, going_down
from tokenyard.server.openai.tool_calls.parser import ToolCallParser

__all__ = ["Limits", "ServerContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may ask."""

    max_body_bytes: int = 8 * 2**20
    """Largest body of a request."""
    max_grammar_bytes: int = MAX_GRAMMAR_BYTES
    """Longest schema, regular expression or grammar that an answer is to keep to."""
    request_timeout_s: float = 3600.0
    """Longest time from a request to the end of its answer."""

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_grammar_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "give a whole number from 1 on")
        if not 0 < self.request_timeout_s < float("inf"):
            raise ConfigError("request_timeout_s", self.request_timeout_s, "give a number of seconds above 0")


@dataclass(slots=True, kw_only=True)
class ServerContext:
    """One server."""

    llm: AsyncLLM
    names: Sequence[str]
    """By which clients call the model; the first is what answers say."""
    limits: Limits = field(default_factory=Limits)
    grammars: GrammarCompiler | None = None
    """For answers that must look like something; None: there are none."""
    defaults: GenerationDefaults = field(default_factory=lambda: GenerationDefaults({}))
    """Of requests that do not say it themselves."""
    tool_parser: Callable[[], ToolCallParser] | None = None
    """Makes what reads calls of tools out of an answer; None: answers are left as they are."""
    metrics: Callable[[], tuple[bytes, str]] | None = None
    """The text of ``/metrics``, and its content type."""
    is_draining: bool = False
    """The server goes down: whoever is being answered is answered, nobody else."""
    created: int = field(default_factory=lambda: int(time.time()))
    """When the model was loaded, in Unix seconds."""

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's. Raises ApiError where it has none."""
        if self.llm.tokenizer is None:
            raise ApiError(400, "the model has no tokenizer: only token ids can be prompts, and answers have no text")
        return self.llm.tokenizer

    def check_model(self, name: str | None) -> None:
        """ApiError for a model that is not served."""
        if name is not None and name not in (*self.names, *self.llm.model.adapters):
            error = bad_field("model", name, f"is not served here: leave it out, or give {self.names[0]}")
            error.status, error.code = 404, "model_not_found"
            raise error

    def adapter_of(self, name: str | None) -> str | None:
        """The adapter that is asked for as the model ``name``; None: the model itself."""
        return name if name in self.llm.model.adapters else None

    def answering(self, name: str | None) -> str:
        """What answers call the model that was asked for as ``name``."""
        return self.adapter_of(name) or self.names[0]

    def check_length(self, field: str, text: object, size: int) -> None:
        """ApiError for a prompt of so many characters, or bytes, that the model cannot take however it is tokenized."""
        tokens, longest = self.llm.model.max_model_len, self.tokenizer.most_bytes_per_token
        if size > tokens * longest:
            fix = f"its length is {size}: the model takes {tokens} tokens, which have at most {longest} bytes each"
            raise bad_field(field, text, fix, code="context_length_exceeded")

    def check_room(self, num_prompts: int, n: int | None) -> None:
        """Raise what the engine would for ``n`` answers to each of so many prompts, before any work on them."""
        answers = 1 if n is None else n
        check_num_samples("", answers)
        self.llm.check_room(num_prompts * answers)

    def check_open(self) -> None:
        """ApiError while the server goes down, or after its engine has."""
        if self.is_draining:
            raise going_down()
        if self.llm.death is not None:
            raise ApiError(500, str(self.llm.death), code="engine_dead")
