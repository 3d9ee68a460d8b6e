"""Grammars, as a scheduler asks them: what one answers is checked, and one that raises costs its own request alone.

A grammar that raises, or answers what cannot be, has *failed*: it is not asked again, what is sampled for
the request is void, and the next output that is taken in ends it as an error, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.params import StructuredOutput
from tokenyard.core.request import Request
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.errors import GrammarError, shown, text_of

_Answer = TypeVar("_Answer")


class GrammarOutput(msgspec.Struct, frozen=True):
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


_NONE: Mapping[Request, GrammarError] = {}
"""Never written to."""


class GrammarGate:
    """Between a scheduler and the grammars of its requests."""

    def __init__(self) -> None:
        self._failed: dict[Request, GrammarError] = {}

    def has_failed(self, request: Request) -> bool:
        """Whether the request will be ended, because of its grammar."""
        return request in self._failed

    def take_failed(self) -> Mapping[Request, GrammarError]:
        """Requests to end now, and those that have just ended, each with its grammar's error."""
        if not self._failed:
            return _NONE
        failed, self._failed = self._failed, {}
        return failed

    # ---- what is asked

    def is_ready(self, request: Request) -> bool:
        """Whether the grammar has been compiled."""
        return not self.has_failed(request) and bool(
            self._asked(request, "is_ready", lambda grammar: grammar.is_ready, _flag)
        )

    def accepts(self, request: Request, tokens: list[int]) -> bool:
        """Whether sampled tokens are allowed, which advances the grammar."""
        return bool(self._asked(request, "accept_tokens", lambda grammar: grammar.accept_tokens(tokens), _flag))

    def num_valid(self, request: Request, drafts: list[int]) -> int:
        """How many of the leading drafts the grammar allows; none if it fails, or if the request has ended."""
        if request.status.is_finished or self.has_failed(request):
            return 0

        def prefix(answer: Any) -> list[int] | None:
            fits = isinstance(answer, Sequence) and list(answer) == drafts[: len(answer)]
            return list(answer) if fits else None

        allowed = self._asked(request, "validate_tokens", lambda grammar: grammar.validate_tokens(drafts), prefix)
        return len(allowed or ())

    def bitmask(self, step: StepInFlight) -> GrammarOutput | None:
        """Tokens that grammars allow in this step; None if no request samples by one.

        Who has failed, or has ended meanwhile, is left out. A mask that is narrower than another one of the step
        allows nothing beyond its own words.
        """
        ids, masks = [], []
        drafts = step.plan.scheduled_spec_decode_tokens
        for row, _ in grammar_rows(step.requests, step.plan.is_prefill_chunk):
            request = step.requests[row]
            if request.status.is_finished or self.has_failed(request):
                continue
            mask = self._mask(request, drafts.get(request.request_id, []))
            if mask is not None:
                ids.append(request.request_id)
                masks.append(mask)
        return GrammarOutput(ids, np.concatenate(_as_wide(masks))) if ids else None

    def _mask(self, request: Request, drafts: list[int]) -> npt.NDArray[np.int32] | None:
        def rows(answer: Any) -> npt.NDArray[np.int32] | None:
            fits = isinstance(answer, np.ndarray) and answer.dtype == np.int32 and answer.ndim == 2
            return answer if fits and len(answer) == 1 + len(drafts) else None

        return self._asked(request, "bitmask", lambda grammar: grammar.bitmask(drafts), rows)

    def _asked(
        self, request: Request, method: str, ask: Callable[[Any], object], checked: Callable[[Any], _Answer | None]
    ) -> _Answer | None:
        """What the grammar answers; None, and it has failed, if it raises or answers what cannot be."""
        cause = None
        try:
            given = ask(request.structured_output)
            answer = checked(given)
            if answer is not None:
                return answer
            problem = f"returned {shown(given)}: {_FIXES[method]}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is its request's alone
            problem, cause = f"raised {type(error).__name__}: {text_of(error)}", error
        self._failed[request] = failure = GrammarError(request.request_id, method, problem)
        failure.__cause__ = cause
        return None


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
