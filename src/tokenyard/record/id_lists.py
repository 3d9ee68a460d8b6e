"""The lists of request ids that make up most of a trace: what a step keeps of them, and the JSON that they become.

A step has to pay for taking the ids only. The thread that writes makes the lists, once for all steps that have the
same: in steady decode the running list stays for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.record.recordable import RecordableRequest
from tokenyard.record.templates import more_fields
from tokenyard.record.writer import Piece
from tokenyard.redaction import valid_text
from tokenyard.trace.facts import running_consumed

_NO_FIELDS = more_fields()


def names_json(names: Sequence[str | None]) -> bytes:
    """A JSON list of ids."""
    try:
        return msgspec.json.encode(names)
    except UnicodeEncodeError:
        return msgspec.json.encode([name if name is None else valid_text(name) for name in names])


def counts_json(names: Sequence[str], counts: Sequence[int]) -> bytes:
    """A JSON object: each id with its number."""
    try:
        return msgspec.json.encode(dict(zip(names, counts, strict=True)))
    except UnicodeEncodeError:
        items = [
            b"%b:%d" % (msgspec.json.encode(valid_text(name)), count) for name, count in zip(names, counts, strict=True)
        ]
        return b"{" + b",".join(items) + b"}"


def _interleave(lists: Sequence[bytes], between: Sequence[bytes]) -> bytes:
    """Lists with what stands between them: one more than that."""
    parts = [b""] * (2 * len(lists) - 1)
    parts[::2], parts[1::2] = lists, between
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# The queues in a snapshot.


class QueueIds(NamedTuple):
    """The ids and jobs of one queue, or of its first requests."""

    total: int
    """Requests in the queue."""
    ids: Sequence[str]
    jobs: Sequence[str | None]
    """Parallel to ``ids``; empty where none belongs to a job."""


EMPTY_QUEUE = QueueIds(0, (), ())
_id_of, _job_of = attrgetter("request_id"), attrgetter("job_id")


def queue_ids(total: int, requests: Iterable[RecordableRequest], limit: int | None) -> QueueIds:
    """The ids of a queue of ``total`` requests, at most ``limit`` of them."""
    kept = list(islice(requests, limit))
    jobs = list(map(_job_of, kept))
    return QueueIds(total, list(map(_id_of, kept)), jobs if any(jobs) else ())


def omitted_fields(running: QueueIds, waiting: QueueIds) -> bytes:
    """The end of a snapshot: how many its lists leave out."""
    left_out, waiting_left_out = running.total - len(running.ids), waiting.total - len(waiting.ids)
    if not (left_out or waiting_left_out):
        return _NO_FIELDS
    return more_fields(running_req_ids_omitted=left_out or None, waiting_req_ids_omitted=waiting_left_out or None)


class QueueLists(Piece):
    """The four lists of a snapshot."""

    running: QueueIds
    waiting: QueueIds
    between: Sequence[bytes]
    """What stands between the lists."""

    def make(self) -> bytes:
        running, waiting = self.running, self.waiting
        return _interleave(
            [names_json(each) for each in (running.ids, waiting.ids, running.jobs, waiting.jobs)], self.between
        )


# ---------------------------------------------------------------------------------------------------------------------
# Who got how many tokens in a decision.


class DecisionForm(NamedTuple):
    """What never changes in a decision, from its first list on."""

    between: Sequence[bytes]
    """What stands between the lists."""
    end: bytes
    """What stands behind them: ``%b`` stands for the tokens of the step."""
    limit: int | None
    """Most requests that a list names."""


class DecisionLists(Piece):
    """A decision from its first list to its end."""

    form: DecisionForm
    req_ids: Sequence[str]
    """All that are scheduled: first those that were running."""
    num_new_tokens: IntArray
    num_running: int
    running_ids: Sequence[str] | None
    """Ids of all running ones, as many as are named; None: some got no tokens."""
    new: Sequence[int]
    """Rows."""
    resumed: Sequence[int]
    """Rows."""
    preempted: Sequence[str]
    recomputed: int
    total: int
    """Tokens of the step."""
    block_size: int

    def make(self) -> bytes:
        limit, tokens, req_ids = self.form.limit, self.num_new_tokens, self.req_ids
        running, counts = self._named_running()
        # All of the resumed, as of the preempted: without them the trace would not show when a wait ended.
        named_new = self.new[:limit]
        new, resumed = [[req_ids[i] for i in rows] for rows in (named_new, self.resumed)]
        if new or resumed:
            counts += tokens[[*named_new, *self.resumed]].tolist()
        lists = [names_json(each) for each in (new, resumed, running, self.preempted)]
        lists.append(counts_json([*running, *new, *resumed], counts))
        num_omitted = self.num_running - len(running)
        more = more_fields(
            recomputed_tokens=self.recomputed if resumed else None,
            running_consumed_blocks=running_consumed(tokens[: self.num_running], self.block_size)
            if num_omitted
            else None,
            scheduled_running_req_ids_omitted=num_omitted or None,
            scheduled_new_req_ids_omitted=len(self.new) - len(new) or None,
        )
        return _interleave(lists, self.form.between) + self.form.end % (b"%d" % self.total) + more

    def _named_running(self) -> tuple[Sequence[str], list[int]]:
        """The running requests that are named, and their tokens."""
        limit, tokens, count = self.form.limit, self.num_new_tokens, self.num_running
        if limit and count > limit and tokens[limit:count].max() > tokens[:limit].min():
            # Who is in prefill took the step's tokens, and stands last among many: those are named that got most.
            chosen = np.sort(np.argsort(-tokens[:count], kind="stable")[:limit])
            return [self.req_ids[i] for i in chosen.tolist()], tokens[chosen].tolist()
        named = self.req_ids[:count][:limit] if self.running_ids is None else self.running_ids
        return named, tokens[: len(named)].tolist()
