"""Traces in the bare format (snapshots and decisions, no reasons), by an engine of its own that knows what it planted.

It shares nothing with the recorder, the scheduler or the report: what it says of a trace is counted while it runs.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 16
BEGIN = 1_745_078_400.0
"""Unix time at which every trace begins."""
_FIRST_TOKENS = 5
"""Tokens that a request has room for beyond its prompt when it is let in."""


@dataclass
class Turn:
    """A request."""

    at: float
    """Seconds after the beginning."""
    job: str
    prompt: int
    output: int
    name: str = ""
    computed: int = 0
    sampled: int = 0
    blocks: int = 0
    admitted: float | None = None
    lost_blocks: bool = False

    @property
    def known(self) -> int:
        return self.prompt + self.sampled


@dataclass(kw_only=True)
class Engine:
    """What runs, and what goes wrong in it."""

    blocks: int = 10_000
    seats: int = 256
    budget: int = 2048
    halved_at: float | None = None
    """When half of the pool is gone."""
    leaks_from: float | None = None
    """When blocks of ended requests begin to stay."""
    stuck_from: float | None = None
    """When steps begin to schedule nothing."""
    hits: float = 0.0
    """Share of each prompt that is found in the prefix cache."""
    cold_from: float | None = None
    """When nothing is found in it any more."""
    snapshots_alone: bool = False
    step_s: float = 0.04
    token_s: float = 2e-5


@dataclass
class Planted:
    """What truly happened."""

    waited: float = 0.0
    """Seconds that requests were left waiting by a step, added up."""
    present: float = 0.0
    """Seconds that requests were in either queue at the beginning of a step, added up."""
    arrived: int = 0
    ended: int = 0
    queue: list[float] = field(default_factory=list)
    """Seconds from the first step that could see a request to the one that let it in, of those that ended."""
    last_token: float = 0.0
    """When the last step began that scheduled a token."""
    end: float = 0.0
    pinned: int = 0
    """Blocks that were pinned in the last step."""
    pinned_since: float | None = None


class _Run:
    def __init__(self, engine: Engine, turns: Iterable[Turn]) -> None:
        self.engine = engine
        self.coming = deque(sorted(turns, key=lambda turn: turn.at))
        self.waiting: deque[Turn] = deque()
        self.running: list[Turn] = []
        self.pinned: list[tuple[str, int]] = []
        self.pool, self.now, self.number = engine.blocks, 0.0, 0
        self.planted = Planted()
        self.seen: dict[str, float] = {}
        self.last = (0.0, 0.0)
        """Seconds of requests in the last step, and of those it left waiting: a trace does not show its length."""
        self.lines: list[str] = []

    def step(self) -> None:
        engine, planted = self.engine, self.planted
        while self.coming and self.coming[0].at <= self.now:
            turn = self.coming.popleft()
            turn.name = f"{turn.job}_t{planted.arrived}"
            planted.arrived += 1
            self.waiting.append(turn)
            self.seen[turn.name] = self.now
        if engine.halved_at is not None and self.now >= engine.halved_at:
            self.pool = engine.blocks // 2
        self.say("step_snapshot", 0.0, **self.queues())
        present = len(self.running) + len(self.waiting)
        is_stuck = engine.stuck_from is not None and self.now >= engine.stuck_from
        tokens, new, resumed, preempted = ({}, [], [], []) if is_stuck else self.decide()
        for turn in self.running if engine.hits and not engine.snapshots_alone else ():
            if turn.name in new:
                self.say(
                    "prefix_cache_lookup",
                    5e-4,
                    req_id=turn.name,
                    job_id=turn.job,
                    local_hit_tokens=turn.computed,
                    external_hit_tokens=0,
                    total_hit_tokens=turn.computed,
                    total_prompt_tokens=turn.prompt,
                )
        if not engine.snapshots_alone:
            went_on = [name for name in tokens if name not in new and name not in resumed]
            self.say(
                "step_decision",
                1e-3,
                scheduled_new_req_ids=new,
                scheduled_resumed_req_ids=resumed,
                scheduled_running_req_ids=went_on,
                preempted_req_ids=preempted,
                num_scheduled_tokens=tokens,
            )
        took = engine.step_s + engine.token_s * sum(tokens.values())
        planted.present, planted.waited = planted.present + self.last[0], planted.waited + self.last[1]
        self.last = present * took, (len(self.waiting) - len(preempted)) * took
        planted.last_token = self.now if tokens else planted.last_token
        self.compute(tokens)
        self.now += took
        self.number += 1

    def queues(self) -> dict[str, Any]:
        engine = self.engine
        return {
            "free_blocks": self.free,
            "total_blocks": self.pool,
            "num_running": len(self.running),
            "num_waiting": len(self.waiting),
            "num_pinned": len(self.pinned),
            "running_req_ids": [turn.name for turn in self.running],
            "waiting_req_ids": [turn.name for turn in self.waiting],
            "running_job_ids": [turn.job for turn in self.running],
            "waiting_job_ids": [turn.job for turn in self.waiting],
            "pinned_blocks": sum(blocks for _, blocks in self.pinned),
            "pinned_job_ids": [job for job, _ in self.pinned],
            "max_num_scheduled_tokens": engine.budget,
            "max_num_running_reqs": engine.seats,
        }

    @property
    def free(self) -> int:
        used = sum(turn.blocks for turn in self.running) + sum(blocks for _, blocks in self.pinned)
        return max(self.pool - used, 0)

    def decide(self) -> tuple[dict[str, int], list[str], list[str], list[str]]:
        """First come, first served; the last to come gives way."""
        left, tokens = self.engine.budget, dict[str, int]()
        new, resumed, preempted = list[str](), list[str](), list[str]()
        for turn in list(self.running):
            if turn not in self.running or not left:
                continue
            want = min(max(turn.known - turn.computed, 1), left)
            while turn in self.running and self.lacks(turn, want) > self.free:
                victim = self.running.pop()
                left += tokens.pop(victim.name, 0)
                victim.computed = victim.blocks = 0
                victim.lost_blocks = True
                self.waiting.appendleft(victim)
                preempted.append(victim.name)
            if turn in self.running:
                turn.blocks += self.lacks(turn, want)
                tokens[turn.name] = want
                left -= want
        while self.waiting and left and len(self.running) < self.engine.seats and not preempted:
            turn = self.waiting[0]
            if -(-(turn.known + _FIRST_TOKENS) // BLOCK) > self.free:
                break
            is_cold = self.engine.cold_from is not None and self.now >= self.engine.cold_from
            if not turn.lost_blocks and not is_cold:
                turn.computed = int(self.engine.hits * turn.prompt)
            want = min(turn.known - turn.computed, left)
            turn.blocks = self.lacks(turn, want)
            tokens[turn.name] = want
            left -= want
            self.running.append(self.waiting.popleft())
            (resumed if turn.lost_blocks else new).append(turn.name)
            turn.admitted = self.now if turn.admitted is None else turn.admitted
        return tokens, new, resumed, preempted

    @staticmethod
    def lacks(turn: Turn, want: int) -> int:
        return max(-(-(turn.computed + want) // BLOCK) - turn.blocks, 0)

    def compute(self, tokens: dict[str, int]) -> None:
        leaks = self.engine.leaks_from is not None and self.now >= self.engine.leaks_from
        for turn in list(self.running):
            turn.computed += tokens.get(turn.name, 0)
            if turn.name in tokens and turn.computed >= turn.known:
                turn.sampled += 1
            if turn.sampled == turn.output:
                self.running.remove(turn)
                self.planted.ended += 1
                self.planted.queue.append((turn.admitted or 0.0) - self.seen[turn.name])
                if leaks:
                    self.pinned.append((turn.job, turn.blocks))

    def say(self, event: str, after: float, **fields: Any) -> None:
        head = {"event": event, "step": self.number, "ts": round(BEGIN + self.now + after, 6), "policy": "theirs"}
        self.lines.append(json.dumps({**head, **fields}))


def write_bare(folder: Path, engine: Engine, turns: Iterable[Turn], seconds: float) -> Planted:
    """Write the steps of so many seconds into the folder; returns what happened in them."""
    run, last = _Run(engine, turns), 0.0
    while run.now < seconds:
        pinned = sum(blocks for _, blocks in run.pinned)
        if pinned and run.planted.pinned_since is None:
            run.planted.pinned_since = run.now
        run.planted.pinned, last = pinned, run.now
        run.step()
    run.planted.end = last
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sched_trace.theirs.steps.jsonl").write_text("\n".join(run.lines) + "\n", "utf-8")
    return run.planted
