"""A model's tokenizer, both ways, and its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from tokenyard.errors import ConfigError, MissingExtraError, text_of
from tokenyard.tokenizer import open_tokenizer

# ---------------------------------------------------------------------------------------------------------------------
# From messages to a prompt, by the template that the model brings: Jinja, in a sandbox.


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

    class GenerationTag(Extension):
        """``{% generation %}`` marks what a model said, for training; here its content is all that counts."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
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


# ---------------------------------------------------------------------------------------------------------------------
# A model's tokenizer, both ways, and the chat template beside it.

_LEAST_BYTES = 64
"""What a token may stand for where the text is changed before: white space that is dropped."""
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


class TextTokenizer:
    """Text to token ids and back. Encoding and decoding may be called from any thread."""

    def __init__(self, backend: Any, chat_template: ChatTemplate | None = None) -> None:
        """``backend`` is a ``tokenizers.Tokenizer``."""
        self._backend = backend
        self.chat_template = chat_template
        """How messages become a prompt; None where the model has none."""
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        """Token ids that it knows, special ones included."""

    @classmethod
    def load(cls, path: Path | str, chat_template: Path | str | None = None) -> TextTokenizer:
        """From a model's directory, which holds ``tokenizer.json`` and perhaps ``tokenizer_config.json``.

        ``chat_template`` is a file with a template, in the place of the model's own. Raises ConfigError, and
        MissingExtraError without the library.
        """
        try:
            backend = open_tokenizer(path)
        except ImportError:
            raise MissingExtraError("tokenizers", "torch") from None
        except Exception as error:  # noqa: BLE001 - the library raises Exception itself
            fix = f"needs a directory with a tokenizer.json that can be read ({text_of(error)})"
            raise ConfigError("tokenizer", str(path), fix) from None
        template, special = _configured(Path(path))
        if chat_template is not None:
            template = _template_file(Path(chat_template))
        return cls(backend, None if template is None else ChatTemplate(template, special))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of ``text``; with those that the model wants around every prompt."""
        # A batch of one: other threads run meanwhile, which they do not while `encode` is at work.
        (made,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = made.ids
        return ids

    @cached_property
    def most_bytes_per_token(self) -> int:
        """In UTF-8, of the longest token; 64 at least."""
        return max(_LEAST_BYTES, *(len(each.encode()) for each in self._backend.get_vocab()))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ``token_ids``; an id that the tokenizer does not know has none."""
        text: str = self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text

    def certain_text(self, token_id: int) -> str | None:
        """A token's text where it is the same after any others and before any others; None: that is not known."""
        return None

    def token_text(self, token_id: int) -> str:
        """One token as text, special ones too; a piece of a character is U+FFFD."""
        return self.decode([token_id], skip_special_tokens=False)


def _configured(path: Path) -> tuple[str | None, dict[str, str]]:
    """The chat template and the special tokens that it may name, of a model's directory."""
    folder = path if path.is_dir() else path.parent
    file = folder / "tokenizer_config.json"
    config: Any = {}
    if file.is_file():
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError("tokenizer", str(file), f"is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError("tokenizer", str(file), "must hold an object")
    special = {name: text for name in _SPECIAL if (text := _token_text(config.get(name))) is not None}
    beside = folder / "chat_template.jinja"
    template = _template_file(beside) if beside.is_file() else _chosen(config.get("chat_template"))
    return template, special


def _template_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("chat_template", str(path), f"cannot be read: {text_of(error)}") from None


def _chosen(template: Any) -> str | None:
    """The default one of several templates with names."""
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _token_text(token: Any) -> str | None:
    """A special token, written as text or as a record."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
