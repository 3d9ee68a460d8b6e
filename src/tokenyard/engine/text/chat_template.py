"""From messages to a prompt, by the template that the model brings: Jinja, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from tokenyard.errors import ConfigError, MissingExtraError, text_of

__all__ = ["ChatTemplate", "TemplateError"]


class TemplateError(Exception):
    """A template does not take these messages."""


class ChatTemplate:
    """Renders messages as ``transformers`` does: same variables, same filters, white space of blocks trimmed."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """``special_tokens`` are what the template knows as ``bos_token``, ``eos_token`` ... Raises ConfigError."""
        try:
            import jinja2  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("jinja2", "torch") from None
        self._errors = jinja2.TemplateError
        self._special = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError("chat_template", source, f"is no template: {text_of(error)}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. ``variables`` are further ones that the template knows. Raises TemplateError."""
        known = {
            **self._special,
            **(variables or {}),
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return str(self._template.render(known))
        except (self._errors, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise TemplateError(text_of(error)) from None
        except (RecursionError, MemoryError):
            raise TemplateError("goes too deep, or grows too large") from None


def _environment() -> Any:
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415 - an extra
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class Generation(Extension):
        """``{% generation %}`` marks what a model said, for training; here its content is all that counts."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment


def _tojson(value: Any, **options: Any) -> str:
    """As ``transformers`` does it, with the options of ``json.dumps``: Jinja's own escapes for HTML."""
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _raise(message: str) -> NoReturn:
    """What templates call for messages that they do not take."""
    raise TemplateError(message)
