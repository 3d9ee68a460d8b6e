"""Tokenyard's scheduler as a side of `run.py`: the same as `tokenyard parity`, asked step by step from outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from tokenyard.parity.replay import VectorReplay
from tokenyard.parity.vector import RequestSpec, VectorHeader, make_request, unsupported_features


class Side:
    """One scenario."""

    def begin(self, config: dict[str, Any], vllm: str, **_: Any) -> dict[str, Any]:
        """Make the scheduler, or say what is not modelled."""
        header = msgspec.convert(
            {"name": "side", "config": config, "requests": [], "stats": {"ticks": 0}, "vllm": vllm}, VectorHeader
        )
        lacking = [*unsupported_features(header), *(["drafts_in_output"] if config.get("drafts_in_output") else [])]
        if lacking:
            return {"unsupported": lacking[0]}
        vector: Any = SimpleNamespace(path=Path("side"), header=header)
        self.replay = VectorReplay(vector)
        return {}

    def arrive(self, events: list[Any], requests: list[dict[str, Any]]) -> dict[str, Any]:
        """What happens before a step."""
        replay = self.replay
        replay.now += 1
        replay.events(events)
        for given in requests:
            spec = replay.specs[given["id"]] = msgspec.convert(given, RequestSpec)
            replay.scheduler.add_request(make_request(spec, encoder_decoder=replay.encoder_decoder))
        return {}

    def schedule(self) -> dict[str, Any]:
        """A step."""
        replay = self.replay
        replay.core.fill()
        output = replay.executor.plan
        assert output is not None
        return {
            "scheduled": list(output.num_scheduled_tokens.items()),
            "preempted": sorted(output.preempted_req_ids),
            "free_blocks": replay.scheduler.num_free_blocks,
        }

    def update(self, events: list[Any], sampled: Any, drafts: Any, pooled: Any, **_: Any) -> dict[str, Any]:
        """The oldest step has run."""
        self.replay.events(events)
        self.replay.executor.record(dict(sampled), frozenset(pooled or ()), None if drafts is None else dict(drafts))
        self.replay.core.take_in()
        return {}


def main() -> None:
    """Answer until the runner ends it."""
    side = Side()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(side, asked.pop("op"))(**asked)), flush=True)


if __name__ == "__main__":
    main()
