"""A model's tokenizer, both ways, its chat template, and output as text: piece by piece, up to what ends it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

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
        """``{% generation %}`` marks a model's text, for training; here its content is all that counts."""

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
    """JSON as ``transformers`` writes it, with the options of ``json.dumps``: Jinja's own escapes for HTML."""
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
        """Bytes of the longest token in UTF-8; 64 at least."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Output tokens to text, piece by piece: a character whose bytes are not all there is held back.
#
#     ids     .. prefix | read ..        text of prefix..read has been given out
#     decode  (prefix..read)  and  (prefix..end):  what the second has beyond the first is new
#
# Tokens are decoded together with those before them, because decoders treat the beginning of a text differently.

CONTEXT_TOKENS = 5
"""Prompt tokens that the first output token is decoded with."""
_MOST_HELD = 16
"""Tokens held back. Four bytes make any character: more of them are no beginning of one, but bytes that make none."""
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Turns one sample's tokens into text. The pieces that it gives out are, one after the other, the text of all."""

    __slots__ = ("_ids", "_prefix_text", "_read", "_skip", "_tokenizer")

    def __init__(
        self, tokenizer: TextTokenizer, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool = True
    ) -> None:
        """The prompt is needed as context alone: none of it is given out."""
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids = list(prompt_token_ids[-CONTEXT_TOKENS:])
        """From the first token that may still be needed on."""
        self._read = len(self._ids)
        self._prefix_text = self._decode(self._ids)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def add(self, token_id: int) -> str:
        """One more token: the text that is certain now, which may be none."""
        if len(self._ids) == self._read:
            piece = self._tokenizer.certain_text(token_id)
            if piece and piece[-1] != _INCOMPLETE:  # as below, with nothing to decode
                self._ids, self._read, self._prefix_text = [token_id], 1, piece
                return piece
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if text == self._prefix_text:
            self._ids.pop()  # no text of its own, a special token for one; what gave text stays as context
            return ""
        held = len(self._ids) - self._read
        if text.endswith(_INCOMPLETE) and held < _MOST_HELD:
            return ""
        return self._give_out(text)

    def last(self, token_ids: Sequence[int]) -> str:
        """Tokens after which none comes: what :meth:`add` and :meth:`flush` would give out one after the other."""
        return self._decode([*self._ids, *token_ids])[len(self._prefix_text) :]

    def flush(self) -> str:
        """The end: what was held back, complete or not."""
        return self._give_out(self._decode(self._ids)) if len(self._ids) > self._read else ""

    def _give_out(self, text: str) -> str:
        new = text[len(self._prefix_text) :]
        del self._ids[: self._read]
        self._read = len(self._ids)
        self._prefix_text = self._decode(self._ids)
        return new


# ---------------------------------------------------------------------------------------------------------------------
# Texts that end an answer, wherever in its tokens they begin and end.


class Stopped(NamedTuple):
    """A stop string was found."""

    text: str
    """The answer, cut where the stop string begins, or where it ends if it belongs to the answer."""
    stop: str
    """The string."""


class StopStrings:
    """Stop strings of one request; checked once for every piece of text."""

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """``include``: the string is part of the answer."""
        self._stops = tuple(stops)
        self._include = include
        self._longest = max(map(len, self._stops), default=0)

    def held_back(self) -> int:
        """Characters at the end of an unfinished answer that may be the beginning of a stop string."""
        return 0 if self._include else max(0, self._longest - 1)

    def find(self, text: str, num_new: int) -> Stopped | None:
        """The stop string that begins first in ``text``, if its last ``num_new`` characters complete any.

        Of those that begin at the same place, the one named first.
        """
        start = max(0, len(text) - num_new - self._longest + 1)
        found = [(at, order) for order, stop in enumerate(self._stops) if (at := text.find(stop, start)) >= 0]
        if not found:
            return None
        at, order = min(found)
        stop = self._stops[order]
        return Stopped(text[: at + len(stop)] if self._include else text[:at], stop)
