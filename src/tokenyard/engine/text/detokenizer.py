"""Output tokens to text, piece by piece: a character whose bytes are not all there is held back.

    ids     .. prefix | read ..        text of prefix..read has been given out
    decode  (prefix..read)  and  (prefix..end):  what the second has beyond the first is new

Tokens are decoded together with those before them, because decoders treat the beginning of a text differently.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.engine.text.tokenizer import TextTokenizer

__all__ = ["Detokenizer"]

_CONTEXT = 5
"""Prompt tokens that the first output token is decoded with."""
_MOST_HELD = 16
"""Tokens held back. Four bytes make any character: more of them are no beginning of one, but bytes that make none."""
_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Of one sample. The pieces that it gives out are, one after the other, the text of all tokens."""

    def __init__(
        self, tokenizer: TextTokenizer, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool = True
    ) -> None:
        """The prompt is needed as context alone: none of it is given out."""
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids = list(prompt_token_ids[-_CONTEXT:])
        """From the first token that may still be needed on."""
        self._read = len(self._ids)
        self._prefix_text = self._decode(self._ids)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def add(self, token_id: int) -> str:
        """One more token: the text that is certain now, which may be none."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if text == self._prefix_text:
            self._ids.pop()  # no text of its own, a special token for one; what gave text stays as context
            return ""
        held = len(self._ids) - self._read
        if text.endswith(_INCOMPLETE) and held < _MOST_HELD:
            return ""
        return self._give_out(text)

    def flush(self) -> str:
        """The end: what was held back, complete or not."""
        return self._give_out(self._decode(self._ids)) if len(self._ids) > self._read else ""

    def _give_out(self, text: str) -> str:
        new = text[len(self._prefix_text) :]
        self._ids = self._ids[self._read :]
        self._read = len(self._ids)
        self._prefix_text = self._decode(self._ids)
        return new
