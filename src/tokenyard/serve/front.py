"""Settings of what stands between clients and an engine: address, keys, tokenizer, template, defaults, limits."""

from __future__ import annotations

import json
from typing import Annotated, Any

from tokenyard.deploy.settings import Help, Settings, Switch
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass

MAX_GRAMMAR_BYTES = 64 * 2**10
"""Longest text of a grammar, by default: it is compiled within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings(Settings):
    """Access."""

    host: str = "127.0.0.1"
    """Address to listen on; the default can be reached from this machine alone."""
    port: int = 8000
    """Port to listen on; 0 takes any that is free."""
    api_key: tuple[str, ...] = ()
    """API keys, of which a request must give one; also VLLM_API_KEY. Without any, no key is needed."""
    served_model_name: tuple[str, ...] = ()
    """Names that clients may give as `model`; answers use the first."""
    shutdown_timeout: int = 30
    """Seconds that running requests may take to finish after SIGTERM or Ctrl-C; a second signal ends them at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings(Settings):
    """Prompts, answers and limits."""

    tokenizer: Annotated[str | None, Help(metavar="DIR", otherwise="the model's")] = None
    """Directory of another tokenizer.json."""
    chat_template: Annotated[str | None, Help(metavar="FILE", otherwise="the model's")] = None
    """Jinja template that turns chat messages into a prompt."""
    generation_config: Annotated[str, Help(metavar="auto|vllm|DIR")] = "auto"
    """Source of default sampling parameters: auto (the model's generation_config.json), vllm (none), a folder."""
    override_generation_config: Annotated[str | None, Help(metavar="JSON", otherwise="nothing")] = None
    """Overrides of these defaults: {"temperature": 0.2}."""
    enable_auto_tool_choice: Switch = False
    """Return tool calls found in answers, as --tool-call-parser reads them."""
    tool_call_parser: Annotated[str | None, Help(metavar="NAME", otherwise="calls stay in the text")] = None
    """Format of the model's tool calls: hermes (also Qwen) or llama3_json."""
    max_logprobs: int = 20
    """Largest number of log-probabilities per token; -1: no limit."""
    gather_ms: float = 0.0
    """Milliseconds that an idle engine waits for further requests before the first step."""
    max_queued_requests: int = 1000
    """Unfinished requests allowed beyond --max-num-seqs; further ones get status 503."""
    max_body_bytes: int = 8 * 2**20
    """Largest size of a request's body."""
    max_grammar_bytes: int = MAX_GRAMMAR_BYTES
    """Largest size of a JSON schema, regular expression or grammar for structured output."""
    request_timeout_s: float = 3600.0
    """Largest time from a request to the end of its answer."""

    @property
    def generation_overrides(self) -> dict[str, Any]:
        """Fields put over those of the generation configuration. Raises ConfigError."""
        text = self.override_generation_config
        return {} if text is None else json_object("override_generation_config", text)


def json_object(name: str, text: str) -> dict[str, Any]:
    """The JSON object that the setting ``name`` holds as text. Raises ConfigError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(name, text, f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(name, text, "give an object")
    return found
