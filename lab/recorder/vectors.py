"""The file format: gzip, one JSON object per line; first the header, then every tick."""

from __future__ import annotations

import dataclasses
import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from recorder.drive import Tick
    from recorder.plan import Engine, Event, Plan, Planned, Scenario

__all__ = ["FORMAT", "MANIFEST", "drop_if_known", "header", "statistics", "write", "write_manifest"]

FORMAT = "vllm-golden-1"
MANIFEST = "manifest.json"
"""Lies beside the vectors: how many calls of ``schedule()`` each of them holds, by name, and where those lie that are
not here."""


def header(scenario: Scenario, plan: Plan, ticks: list[Tick], facts: dict[str, Any]) -> dict[str, Any]:
    """Everything a replayer needs to begin; ``facts`` is what vLLM says of itself."""
    return {
        "format": FORMAT,
        **facts,
        "name": scenario.name,
        "seed": scenario.seed,
        "config": _config(scenario.engine),
        "vocab": scenario.vocab,
        "requests": [_request(request) for request in plan.requests],
        "events": [_event(event) for event in plan.events],
        "stats": statistics(ticks),
    }


def _config(engine: Engine) -> dict[str, Any]:
    config = _given(dataclasses.asdict(engine))
    if "groups" in config:
        config["groups"] = [_given(group) for group in config["groups"]]
    return config


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _request(request: Planned) -> dict[str, Any]:
    """``eos`` is always there (null: ignore it); of the rest, what differs from its default."""
    always = {"id", "prompt", "max_tokens", "arrival_step", "arrival_time", "eos"}
    plain = {field.name: field.default for field in dataclasses.fields(request)}
    values = dataclasses.asdict(request)
    return {name: value for name, value in values.items() if name in always or value != plain[name]}


def _event(event: Event) -> dict[str, Any]:
    of_kind: dict[str, tuple[str, ...]] = {
        "abort": ("id",) if event.status == "FINISHED_ABORTED" else ("id", "status"),
        "grammar": ("id",),
        "reset": ("running",),
        "pause": ("state",),
        "reset_encoder": (),
        "feed": ("id", "prompt", "last"),
    }
    shown = {name: getattr(event, name) for name in of_kind[event.op]}
    return {"step": event.step, "when": event.when, "op": event.op, **shown}


def statistics(ticks: list[Tick]) -> dict[str, int]:
    """What a recording exercised: counts over all its ticks."""
    steps = [tick["s"] for tick in ticks if "s" in tick]
    updates = [tick["u"] for tick in ticks if "u" in tick]
    events = [event for tick in ticks for when in ("ev_pre", "ev_mid") for event in tick.get(when, ())]
    out = [news for update in updates for news in update["out"]]
    return {
        **_common_statistics(ticks, steps, updates, events, out),
        **_feature_statistics(steps, updates, events, out),
    }


def _common_statistics(
    ticks: list[Tick], steps: list[Tick], updates: list[Tick], events: list[Tick], out: list[list[Any]]
) -> dict[str, int]:
    return {
        "ticks": len(ticks),
        "steps": len(steps),
        "empty_steps": sum(not step["nst"] for step in steps),
        "requests": sum(len(tick.get("add", ())) for tick in ticks),
        "output_tokens": sum(len(tokens) for _, tokens, _, _ in out),
        "prefill_chunks": sum(not tokens for update in updates for _, tokens in update["sampled"]),
        "preemptions": sum(len(step["preempted"]) for step in steps),
        "rollbacks": sum(len(step.get("rolled_back", ())) for step in steps),
        "resumed": sum(cached[4] for step in steps for cached in step["cached"]),
        "hit_tokens": sum(update["pcs"][2] for update in updates if "pcs" in update),
        "skipped_steps": sum(bool(step["skipped"]) for step in steps),
        "queued_steps": sum(bool(step["waiting"]) for step in steps),
        "aborts": sum(event["op"] == "abort" and event["hit"] for event in events),
        "late_aborts": sum(event["op"] == "abort" and not event["hit"] for event in events),
        "resets": sum(event["op"] == "reset" and event["ok"] for event in events),
        "refused_resets": sum(event["op"] == "reset" and not event["ok"] for event in events),
        "stops": sum(reason == "stop" for _, _, reason, _ in out),
        "stop_tokens": sum(stop_reason is not None for _, _, _, stop_reason in out),
        "lengths": sum(reason == "length" for _, _, reason, _ in out),
    }


def _feature_statistics(
    steps: list[Tick], updates: list[Tick], events: list[Tick], out: list[list[Any]]
) -> dict[str, int]:
    """Numbers of optional features: only what is not zero."""
    counts = {
        "drafts": sum(update["sds"][1] for update in updates if "sds" in update),
        "accepted_drafts": sum(update["sds"][2] for update in updates if "sds" in update),
        "left_out": sum(len(step["running"]) > len(step["nst"]) for step in steps),
        "null_blocks": sum(
            not all(map(all, blocks)) for step in steps for _, _, blocks in step["new"] if len(blocks) > 1
        ),
        "encoder_inputs": sum(len(items) for step in steps for items in step.get("enc", {}).values()),
        "evicted_images": sum(len(step.get("enc_free", ())) for step in steps),
        "grammars": sum(event["op"] == "grammar" for event in events),
        "zeroed_blocks": sum(len(step.get("zero", ())) for step in steps),
        "errors": sum(reason == "error" for _, _, reason, _ in out),
        "repetitions": sum(reason == "repetition" for _, _, reason, _ in out),
        "pooled": sum(len(update.get("pooled", ())) for update in updates),
        "known_drafts": sum(len(step.get("known", ())) for step in steps),
        "invalid_drafts": sum(count for step in steps for _, count in step.get("invalid", ())),
        "events": sum(len(told) for update in updates for _, told in update.get("events", ())),
        "fed": sum(event["op"] == "feed" for event in events),
        "other_ends": sum("status" in event for event in events),
    }
    return {name: count for name, count in counts.items() if count}


def write(path: Path, lines: list[dict[str, Any]]) -> int:
    """Write ``lines``, the same bytes for the same content; returns the file's size."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    path.write_bytes(packed)
    return len(packed)


def write_manifest(folder: Path, release: str, before: str | None, steps: dict[str, int], *, whole: bool) -> None:
    """Enter what was just recorded: ``steps`` by name. Other entries stay, unless the ``whole`` folder was recorded.

    ``before`` is the folder beside it that may hold files which are not here.
    """
    path = folder / MANIFEST
    if not whole and path.exists():
        steps = json.loads(path.read_text(encoding="utf-8"))["steps"] | steps
    content = {"vllm": release, "before": before, "steps": steps}
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def drop_if_known(folder: Path, name: str, before: str) -> bool:
    """Whether the recording is that of the version before but for the version's name; its file is not kept then."""
    path, at = folder / f"{name}.jsonl.gz", folder.parent / before
    while not (other := at / path.name).exists():
        manifest = json.loads((at / MANIFEST).read_text(encoding="utf-8"))
        if name not in manifest["steps"] or manifest["before"] is None:
            return False
        at = at.parent / manifest["before"]
    if _without_version(path) != _without_version(other):
        return False
    path.unlink()
    return True


def _without_version(path: Path) -> tuple[dict[str, Any], bytes]:
    head, _, ticks = gzip.decompress(path.read_bytes()).partition(b"\n")
    header = json.loads(head)
    del header["vllm"]
    return header, ticks
