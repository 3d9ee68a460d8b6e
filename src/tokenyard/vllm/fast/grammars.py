"""vLLM's grammars as ours: its ``StructuredOutputManager`` is asked, with vLLM's own requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenyard.vllm import versions
from tokenyard.vllm.fast.requests import FastRequest, sync_tokens

__all__ = ["FastGrammar", "bitmask"]


class FastGrammar:
    """The grammar of one request: a :class:`~tokenyard.structured.StructuredOutput`."""

    def __init__(self, manager: Any, theirs: Any, compile_errors: dict[str, Exception]) -> None:
        """``compile_errors`` is told of a grammar that cannot be compiled, by request id."""
        self._manager = manager
        self._theirs = theirs
        self._compile_errors = compile_errors
        self.ours: FastRequest | None = None

    @property
    def is_ready(self) -> bool:
        """The grammar has been compiled."""
        grammar = self._theirs.structured_output_request.grammar
        if isinstance(grammar, Exception):
            self._compile_errors[self._theirs.request_id] = grammar
            return False
        return bool(grammar)

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if the grammar does not allow them."""
        self._refresh()
        return versions.accept_tokens(self._manager, self._theirs, list(tokens))

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading draft tokens that the grammar allows, without advancing."""
        self._refresh()
        return versions.validate_tokens(self._manager, self._theirs, list(tokens))

    def _refresh(self) -> None:
        """vLLM looks for the end of a reasoning part in the request's own tokens."""
        ours, theirs = self.ours, self._theirs
        assert ours is not None, "the request that it was made for"
        sync_tokens(ours, ours.num_tokens)
        theirs.num_computed_tokens = ours.num_computed_tokens
        theirs.num_output_placeholders = ours.num_output_placeholders


def bitmask(manager: Any, requests: Sequence[FastRequest], drafts: dict[str, list[int]]) -> Any:
    """vLLM's ``GrammarOutput`` for the requests that sample by a grammar, in scheduling order; None if nobody does."""
    if not requests:
        return None
    for request in requests:
        sync_tokens(request, request.num_tokens)
    ids = [request.request_id for request in requests]
    theirs = {request.request_id: request.theirs for request in requests}
    return versions.grammar_output(ids, manager.grammar_bitmask(theirs, ids, drafts), drafts)
