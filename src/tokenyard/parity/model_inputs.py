"""Checks of what a record says a model returned, before it is fed to a scheduler.

A worker that breaks its contract is a mistake of the program and a scheduler may say so in its own way; a record that
breaks it is a damaged file. Each function returns the problem in words, or None.
"""

from __future__ import annotations

from tokenyard.parity.vector import Tokens
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["drafts_problem", "sampled_problem"]


def sampled_problem(output: SchedulerOutput, sampled: Tokens) -> str | None:
    """Tokens belong to the requests of the step, in its order, and follow at most one per draft and one more."""
    if [request_id for request_id, _ in sampled] != list(output.num_scheduled_tokens):
        return "sampled tokens are not those of the requests of the step, in its order"
    drafts = output.scheduled_spec_decode_tokens
    for request_id, tokens in sampled:
        most = 1 + len(drafts.get(request_id, ()))
        if len(tokens) > most:
            return f"{len(tokens)} tokens are sampled for {request_id!r}, where there can be {most}"
    return None


def drafts_problem(output: SchedulerOutput, drafts: Tokens, most: int) -> str | None:
    """Drafts belong to requests of the step, each once, ``most`` of them at most."""
    if not most:
        return "holds drafts, but the header has no num_speculative_tokens"
    ids = [request_id for request_id, _ in drafts]
    if len(set(ids)) < len(ids) or not output.num_scheduled_tokens.keys() >= set(ids):
        return "drafts are not those of requests of the step, each once"
    for request_id, tokens in drafts:
        if len(tokens) > most:
            return f"{len(tokens)} drafts for {request_id!r}, more than num_speculative_tokens = {most}"
    return None
