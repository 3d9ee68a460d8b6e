"""The fake model: what a worker would sample and draft, without computing anything.

A token depends on the request and its position alone, so the text is the same however it was scheduled. A draft is
right with a given probability, which depends on nothing else either.
"""

from __future__ import annotations

import zlib

__all__ = ["Worker", "fake_token"]

UNKNOWN_DRAFT = -1
"""Stands for a draft that only the worker knows (async scheduling)."""


def _mix(value: int) -> int:
    mixed = value & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


def fake_token(request_id: str, position: int, vocab: int) -> int:
    """The token that the fake model puts at ``position``: the same however the request was scheduled."""
    return _mix(zlib.crc32(request_id.encode()) + position * 0x9E3779B1) % vocab


class Worker:
    """Knows the sequence lengths and the latest drafts of its requests, as a model runner does."""

    def __init__(self, *, vocab: int, num_drafts: int, acceptance: int, always_full: bool) -> None:
        self._vocab = vocab
        self._num_drafts = num_drafts
        self._acceptance = acceptance
        """Per cent of the drafts that are right."""
        self._always_full = always_full
        """Every proposal has ``num_drafts`` drafts; else any number up to it, as a text look-up gives."""
        self._known: dict[str, int] = {}
        self._drafts: dict[str, list[int]] = {}

    def set_length(self, request_id: str, num_tokens: int) -> None:
        """The scheduler has sent the whole request: ``num_tokens`` of it are known, and drafts are forgotten."""
        self._known[request_id] = num_tokens
        self._drafts[request_id] = []

    def drafts(self, request_id: str) -> list[int]:
        """Proposed after the request's latest token."""
        return list(self._drafts[request_id])

    def sample(self, request_id: str, scheduled: list[int], *, known: bool = False) -> list[int]:
        """Verify the scheduled drafts: the right ones up to the first wrong one, and a token of the model's own.

        Where drafts are ``known`` to the scheduler, -1 is a draft that may not be.
        """
        if scheduled and scheduled[0] == UNKNOWN_DRAFT and not known:
            scheduled = self._drafts[request_id][: len(scheduled)]
        sampled: list[int] = []
        for draft in scheduled:
            sampled.append(self._token(request_id, len(sampled)))
            if draft != sampled[-1]:
                break
        else:
            sampled.append(self._token(request_id, len(sampled)))
        self._known[request_id] += len(sampled)
        self._drafts[request_id] = self._propose(request_id)
        return sampled

    def _token(self, request_id: str, ahead: int) -> int:
        return fake_token(request_id, self._known[request_id] + ahead, self._vocab)

    def _propose(self, request_id: str) -> list[int]:
        if not self._num_drafts:
            return []
        dice = _mix(zlib.crc32(f"drafts of {request_id}".encode()) + self._known[request_id] * 0x9E3779B1)
        count = self._num_drafts if self._always_full else dice % (self._num_drafts + 1)
        drafts = []
        for ahead in range(count):
            wrong = _mix(dice + ahead * 0x61C88647) % 100 >= self._acceptance
            drafts.append((self._token(request_id, ahead) + wrong) % self._vocab)
        return drafts
