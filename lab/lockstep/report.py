"""What the differential found, as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING

from recorder.plan import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lockstep.scenario import Outcome
    from recorder.plan import Event, Plan, Planned, Scenario

__all__ = ["case_lines", "summary"]

_DEFAULT = Engine()


def case_lines(scenario: Scenario, plan: Plan, outcome: Outcome) -> Iterator[str]:
    """A difference with everything that repeats it."""
    difference = outcome.difference
    assert difference is not None
    yield f"{scenario.name}: step {outcome.steps}: {difference.where}"
    yield f"    vLLM  {difference.theirs}"
    yield f"    ours  {difference.ours}"
    settings = ((field.name, getattr(scenario.engine, field.name)) for field in fields(Engine))
    yield "  engine  " + ", ".join(f"{name}={value}" for name, value in settings if value != getattr(_DEFAULT, name))
    yield from (f"  request {_request(request)}" for request in plan.requests)
    yield from (f"  event   {_event(event)}" for event in plan.events)


def _request(request: Planned) -> str:
    when = f"after {request.after}" if request.after else f"tick {request.arrival_step}"
    more = {
        name: getattr(request, name)
        for name in ("priority", "lora", "cache_salt", "min_tokens", "eos", "stop_token_ids", "forbids", "pooling")
        if getattr(request, name)
    }
    images = f", images {[(i.mm_hash, i.offset, i.length) for i in request.mm]}" if request.mm else ""
    rest = "".join(f", {name} {value}" for name, value in more.items())
    session = ", a session" if request.resumable else ""
    return f"{request.id}: {when}, {len(request.prompt)} + {request.max_tokens} tokens{rest}{images}{session}"


def _event(event: Event) -> str:
    what = {"abort": event.id, "grammar": event.id, "feed": f"{event.id} {len(event.prompt)} tokens"}.get(event.op, "")
    return f"tick {event.step} {event.when}: {event.op} {what} {event.state or ''}".rstrip()


def summary(version: str, outcomes: list[Outcome], seconds: float) -> Iterator[str]:
    """Counts: how many agreed, and what became of the others."""
    kinds: Mapping[str, list[Outcome]] = {
        "equal": [o for o in outcomes if not (o.difference or o.refused or o.gave_up)],
        "different": [o for o in outcomes if o.difference],
        "refused by FastScheduler": [o for o in outcomes if o.refused],
        "given up by vLLM itself": [o for o in outcomes if o.gave_up],
    }
    compared = [o for o in outcomes if not (o.refused or o.gave_up)]
    steps = sum(o.steps for o in compared)
    yield f"vLLM {version}: {len(compared)} scenarios compared, {steps:,} steps, {seconds:.0f} s"
    for kind, those in kinds.items():
        yield f"  {len(those):6,}  {kind}"
        whys = Counter((o.refused or o.gave_up or "").split("\n")[0][:100] for o in those if o.refused or o.gave_up)
        yield from (f"          {count:6,}  {why}" for why, count in whys.most_common(8))
