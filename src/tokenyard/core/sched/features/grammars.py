"""Grammars, as a scheduler asks them: what one answers is checked, and one that raises costs its own request alone.

Whoever's grammar raises, or answers what cannot be, is *condemned*: the grammar is not asked again, what is sampled for
the request is void, and the next output that is taken in ends it as an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tokenyard.core.basics import Failures
from tokenyard.core.params import StructuredOutput
from tokenyard.core.request import Request
from tokenyard.core.sched.scheduler_output import StepInFlight
from tokenyard.errors import GrammarError, shown, text_of

__all__ = ["GrammarGate", "GrammarOutput", "grammar_rows"]

_Answer = TypeVar("_Answer")


class GrammarOutput(NamedTuple):
    """What workers need to sample by the grammars of a step."""

    structured_output_request_ids: list[str]
    """Requests that sample by a grammar, in scheduling order."""
    grammar_bitmask: npt.NDArray[np.int32]
    """One bit per token id. A row per position: each request has one, and one more after each of its drafts."""


def grammar_rows(
    requests: Sequence[Request], chunks: npt.NDArray[np.bool_] | None
) -> list[tuple[int, StructuredOutput]]:
    """Rows of a step that sample by a grammar; ``chunks`` marks those that sample nothing."""
    return [
        (row, request.structured_output)
        for row, request in enumerate(requests)
        if request.structured_output is not None and (chunks is None or not chunks[row])
    ]


class GrammarGate:
    """Between a scheduler and the grammars of its requests."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._condemned: dict[str, Request] = {}

    def is_condemned(self, request: Request) -> bool:
        """Whether the request will be ended, because of its grammar."""
        return self._condemned.get(request.request_id) is request

    def take_condemned(self) -> list[Request]:
        """Those to end now."""
        if not self._condemned:
            return []
        condemned, self._condemned = self._condemned, {}
        return [request for request in condemned.values() if not request.status.is_finished]

    # ---- what is asked

    def is_ready(self, request: Request) -> bool:
        """Whether the grammar has been compiled. Raises GrammarError, and then the request is condemned."""
        return self._asked(request, "is_ready", lambda grammar: grammar.is_ready, _flag)

    def accepts(self, request: Request, tokens: list[int]) -> bool:
        """Whether sampled tokens are allowed, which advances the grammar; a request without one may do anything."""
        if request.structured_output is None:
            return True
        try:
            return self._asked(request, "accept_tokens", lambda grammar: grammar.accept_tokens(tokens), _flag)
        except GrammarError as error:
            self._failures.note(error, "accept_tokens")
            del self._condemned[request.request_id]  # it ends at once
            return False

    def num_valid(self, request: Request, drafts: list[int]) -> int:
        """How many of the leading drafts the grammar allows; none if it fails, or if the request has ended."""
        if request.status.is_finished or self.is_condemned(request):
            return 0

        def prefix(answer: Any) -> list[int] | None:
            fits = isinstance(answer, Sequence) and list(answer) == drafts[: len(answer)]
            return list(answer) if fits else None

        try:
            return len(self._asked(request, "validate_tokens", lambda grammar: grammar.validate_tokens(drafts), prefix))
        except GrammarError as error:
            self._failures.note(error, "validate_tokens")
            return 0

    def bitmask(self, step: StepInFlight) -> GrammarOutput | None:
        """Tokens that grammars allow in this step; None if nobody samples by one.

        Who is condemned, or has ended meanwhile, is left out. A mask that is narrower than another one of the step
        allows nothing beyond its own words.
        """
        ids, masks = [], []
        drafts = step.plan.scheduled_spec_decode_tokens
        for row, _ in grammar_rows(step.requests, step.plan.is_prefill_chunk):
            request = step.requests[row]
            if request.status.is_finished or self.is_condemned(request):
                continue
            try:
                mask = self._mask(request, drafts.get(request.request_id, []))
            except GrammarError as error:
                self._failures.note(error, "bitmask")
                continue
            ids.append(request.request_id)
            masks.append(mask)
        return GrammarOutput(ids, np.concatenate(_as_wide(masks))) if ids else None

    def _mask(self, request: Request, drafts: list[int]) -> npt.NDArray[np.int32]:
        def rows(answer: Any) -> npt.NDArray[np.int32] | None:
            fits = isinstance(answer, np.ndarray) and answer.dtype == np.int32 and answer.ndim == 2
            return answer if fits and len(answer) == 1 + len(drafts) else None

        return self._asked(request, "bitmask", lambda grammar: grammar.bitmask(drafts), rows)

    def _asked(
        self, request: Request, method: str, ask: Callable[[Any], object], checked: Callable[[Any], _Answer | None]
    ) -> _Answer:
        """What the grammar answers. GrammarError if it raises, or if it answers what cannot be."""
        problem, cause = "", None
        try:
            given = ask(request.structured_output)
            answer = checked(given)
            if answer is None:
                problem = f"returned {shown(given)}: {_FIXES[method]}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is its request's alone
            problem, cause, answer = f"raised {type(error).__name__}: {text_of(error)}", error, None
        if answer is None:
            self._condemned[request.request_id] = request
            raise GrammarError(request.request_id, method, problem) from cause
        return answer


_FIXES = {
    "is_ready": "it has to be True or False",
    "accept_tokens": "return True or False",
    "validate_tokens": "return the leading drafts that are allowed",
    "bitmask": "return an int32 array with a row for each position: one, and one more after each draft",
}


def _flag(answer: Any) -> bool | None:
    return bool(answer) if isinstance(answer, bool | np.bool_) else None


def _as_wide(masks: list[npt.NDArray[np.int32]]) -> list[npt.NDArray[np.int32]]:
    """Masks as wide as the widest."""
    width = max(mask.shape[1] for mask in masks)
    return [mask if mask.shape[1] == width else np.pad(mask, ((0, 0), (0, width - mask.shape[1]))) for mask in masks]
