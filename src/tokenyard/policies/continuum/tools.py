"""The tool a finished turn calls: what the client says it is, else what its text says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from tokenyard.policies.continuum.parsers import Parser, named_parser
from tokenyard.request import Request
from tokenyard.tokenizer import Decode, load_tokenizer

__all__ = ["ToolReader"]

_A = TypeVar("_A")
_B = TypeVar("_B")

_log = logging.getLogger("tokenyard.continuum")


class ToolReader:
    """Names the tool of a turn.

    ``this_func_call`` of the request counts if it is set; else, with a ``tokenizer``, the ``parser`` reads the output:
    ``bash``, ``openai``, ``json``, or a function from a turn's text to the name of its tool, None if it calls none.
    A tokenizer that cannot be loaded, or fails, costs one warning and makes the reader ``broken``: a policy then pins
    nothing, because what it would learn about tools would be wrong.
    """

    def __init__(
        self,
        tokenizer: str | None = None,
        parser: str | Parser = "bash",
        load: Callable[[str], Decode] = load_tokenizer,
    ) -> None:
        self.broken = False
        self._parse = named_parser(parser) if isinstance(parser, str) else parser
        self._tokenizer = tokenizer
        self._decode = self._trying(load, tokenizer) if tokenizer is not None else None

    def tool_of(self, request: Request) -> str | None:
        """Name of the tool, or None if the turn calls none as far as is known."""
        if request.this_func_call or self._decode is None or self.broken:
            return request.this_func_call or None
        text = self._trying(self._decode, request.output_token_ids)
        return None if text is None else self._parse(text)

    def _trying(self, call: Callable[[_A], _B], argument: _A) -> _B | None:
        try:
            return call(argument)
        except Exception as error:  # noqa: BLE001 - a foreign library's: whatever it is, the scheduler goes on
            _log.warning("continuum: tokenizer %s cannot be used, nothing is pinned: %s", self._tokenizer, error)
            self.broken = True
            return None
