"""Text to token ids and back without the model's tokenizer: about as many tokens, and every text comes back."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tokenyard.serve.text import ChatTemplate, TextTokenizer

_PIECES = re.compile(r" ?[^\W\d_]{1,7}| ?\d{1,3}| ?[^\w\s]{1,3}| {1,16}|[^\w\s]|\s|[\w]")
"""Words up to seven letters are a token each, longer ones several; numbers go by threes, signs together."""
_BYTES = 256
"""The first ids are single bytes: of characters, and of pieces whose id another piece has."""
_SPECIAL = 8
_MOST_KNOWN = 1 << 20


class RolesTemplate(ChatTemplate):
    """Messages as most models see them: a role, then the content. It needs no template engine."""

    def __init__(self) -> None:
        """Nothing is configured."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt."""
        said = [
            f"<|im_start|>{each['role']}\n{each.get('content') or ''}{_calls(each)}<|im_end|>\n" for each in messages
        ]
        if tools:
            said.insert(0, f"<|im_start|>system\nTools: {list(tools)}<|im_end|>\n")
        return "".join(said) + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def _calls(message: Mapping[str, Any]) -> str:
    return "".join(f"\n{call.get('function')}" for call in message.get("tool_calls") or ())


class _Texts(dict[int, str]):
    """Texts by token id; an id that has none yet is a word of its number."""

    def __missing__(self, token: int) -> str:
        return f" t{token}"


class ApproximateTokenizer(TextTokenizer):
    """A stand-in. A piece of text has the same id in every process, and ids of pieces that were seen become text again.

    The last id of the vocabulary is the end of an answer.
    """

    def __init__(self, vocab_size: int, chat_template: ChatTemplate | None = None) -> None:
        """``vocab_size`` is the model's."""
        self.vocab_size = max(vocab_size, _BYTES + 2 * _SPECIAL)
        self.chat_template = chat_template or RolesTemplate()
        self.eos_token_id = vocab_size - 1
        self._ids: dict[str, tuple[int, ...]] = {}
        self._texts = _Texts()

    most_bytes_per_token = 64

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """About as many ids as the model's own tokenizer would give."""
        known, ids = self._ids, list[int]()
        for piece in _PIECES.findall(text):
            found = known.get(piece)
            if found is None:
                found = self._learn(piece)
            ids += found
        return ids

    def _learn(self, piece: str) -> tuple[int, ...]:
        if len(self._texts) >= _MOST_KNOWN:
            return tuple(piece.encode())
        token = _BYTES + zlib.crc32(piece.encode()) % (self.vocab_size - _BYTES - _SPECIAL)
        ids = (token,) if self._texts.setdefault(token, piece) == piece else tuple(piece.encode())
        self._ids[piece] = ids
        return ids

    def certain_text(self, token_id: int) -> str | None:
        """The text of all tokens but single bytes and special tokens."""
        return self._texts[token_id] if _BYTES <= token_id < self.vocab_size - _SPECIAL else None

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text; an id that has none yet is a word of its number."""
        texts, special = self._texts, self.vocab_size - _SPECIAL
        if token_ids and min(token_ids) >= _BYTES and not (skip_special_tokens and max(token_ids) >= special):
            return "".join(map(texts.__getitem__, token_ids))
        said, held = list[str](), bytearray()
        for token in token_ids:
            if token < _BYTES:
                held.append(token)
                continue
            if held:
                said.append(held.decode(errors="replace"))
                held.clear()
            said.append("" if token >= special and skip_special_tokens and token not in texts else texts[token])
        if held:
            said.append(held.decode(errors="replace"))
        return "".join(said)
