"""A stream whose pieces differ by their texts alone has the bytes that it would have if each were formed by itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import InTime, emulated

from tokenyard.serve.emulate.forms import FormedAnswer, Forms
from tokenyard.serve.openai.fields import GenerationRequest
from tokenyard.serve.openai.generating import AnswerWriter, PromptNews

_MESSAGES = {"messages": [{"role": "user", "content": 'say "\\u00e9\\n" \\ and so on'}]}
_ASKED: list[tuple[str, dict[str, Any]]] = [
    ("completions", {"prompt": "hello"}),
    ("completions", {"prompt": ["hello", "there"], "n": 2}),
    ("completions", {"prompt": "hello", "logprobs": 2}),
    ("completions", {"prompt": "hello", "return_token_ids": True}),
    ("completions", {"prompt": "hello", "echo": True, "stop": ["never said", "the "]}),
    ("completions", {"prompt": "hello", "stream_options": {"include_usage": True}}),
    ("completions", {"prompt": "hello", "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    ("chat/completions", _MESSAGES),
    ("chat/completions", {**_MESSAGES, "n": 2, "stream_options": {"include_usage": True}}),
    ("chat/completions", {**_MESSAGES, "logprobs": True, "top_logprobs": 1}),
    ("chat/completions", {**_MESSAGES, "return_token_ids": True}),
]


class _Both(FormedAnswer):
    """Tells every piece twice: as always, and by an answer that forms each by itself."""

    told: ClassVar[list[tuple[bytes, bytes]]] = []

    def __init__(self, forms: Forms, kind: str, answer: AnswerWriter, request: GenerationRequest) -> None:
        super().__init__(forms, kind, answer, request)
        context = vars(answer).get("_context")
        self._other = FormedAnswer(forms, kind, copy.deepcopy(answer, {id(context): context}), request)

    def events(self, piece: PromptNews) -> bytes:
        self.told.append((super().events(piece), AnswerWriter.events(self._other, piece)))
        return self.told[-1][0]

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        last = super().last_chunks()
        assert last == self._other.last_chunks()
        return last


@pytest.mark.parametrize(("path", "fields"), _ASKED)
@pytest.mark.parametrize("answers", ["words", "echo"])
def test_pieces_have_the_bytes_that_they_would_have_alone(
    monkeypatch: pytest.MonkeyPatch, answers: Literal["words", "echo"], path: str, fields: dict[str, Any]
) -> None:
    told = list[tuple[bytes, bytes]]()
    monkeypatch.setattr(_Both, "told", told)
    monkeypatch.setattr("tokenyard.serve.emulate.forms.FormedAnswer", _Both)
    with emulated(answers=answers, wall=InTime()) as server:
        text = server.post(f"/v1/{path}", stream=True, max_tokens=40, ignore_eos=True, **fields).text
    assert len(told) >= 4, "some are told by what stands around a text"
    assert [quick for quick, _ in told] == [slow for _, slow in told]
    assert b"".join(quick for quick, _ in told).decode() in text
