#!/usr/bin/env python3
"""How far a simulator of vLLM decides as vLLM did: needs Python and this folder, nothing else.

    python run.py vectors/0.33 [NAME ...] [--json] -- COMMAND [WORDS ...]

COMMAND is the simulator's side: it reads one JSON object a line and answers each with one (README.md says which). It
is fed what came from outside, and asked for every step what it schedules. A scenario ends with the first step that
differs, since what the record says of later ones no longer fits.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
KINDS = ("scheduled", "preempted", "free_blocks")


def vectors(folder: Path, names: list[str]) -> Iterator[tuple[str, Json, list[Json]]]:
    """Name, header and ticks of each scenario; what a version decided as the one before lies in that one's folder."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for name in names or sorted(manifest["steps"]):
        if name not in manifest["steps"]:
            raise SystemExit(f"{folder}: no scenario {name}: it has {', '.join(sorted(manifest['steps']))}")
        at, known = folder, manifest
        while not (at / f"{name}.jsonl.gz").exists():
            at = at.parent / known["before"]
            known = json.loads((at / "manifest.json").read_text(encoding="utf-8"))
        with gzip.open(at / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            header, *ticks = map(json.loads, file)
        yield name, {**header, "vllm": manifest["vllm"]}, ticks


class Side:
    """The simulator, in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **what: Any) -> Json:
        """Its answer. RuntimeError if it ends without one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the simulator ended (code {self._process.wait()}) at {what['op']}")
        answer: Json = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def decided(step: Json) -> Json:
    """What is compared of a recorded step, as a simulator says it."""
    return {"scheduled": step["nst"], "preempted": step["preempted"], "free_blocks": step["free"]}


def differing(theirs: Json, ours: Json, kinds: Sequence[str]) -> str | None:
    """The first kind of decision that differs; a simulator that leaves one out is not asked for it."""
    for kind in kinds:
        value, said = theirs[kind], ours.get(kind)
        if said is None or said == value:
            continue
        if kind == "scheduled" and dict(said).keys() != dict(value).keys():
            return "who is scheduled"
        if kind == "scheduled" and sorted(said) == sorted(value):
            return "order"
        return {"scheduled": "how many tokens"}.get(kind, kind)
    return None


def run(header: Json, ticks: list[Json], side: Side, kinds: Sequence[str] = KINDS) -> Json:
    """How many steps of one scenario agree, and what ends it."""
    total, equal = sum("s" in tick for tick in ticks), 0
    outputs = Counter(rid for tick in ticks for rid, new, _, _ in tick.get("u", {}).get("out", ()) for _ in new)
    requests = {each["id"]: {**each, "output_tokens": outputs[each["id"]]} for each in header["requests"]}
    uses = {name for each in header["requests"] for name in each} | {f"event {each['op']}" for each in header["events"]}
    given = {key: header[key] for key in ("vllm", "config", "hash_block_size")}
    begun = side.ask(op="begin", uses=sorted(uses), **given)
    if "unsupported" in begun:
        return {"steps": total, "equal": 0, "end": None, "unsupported": begun["unsupported"]}
    for tick in ticks:
        side.ask(op="arrive", events=tick.get("ev_pre", []), requests=[requests[rid] for rid in tick.get("add", ())])
        if "s" in tick:
            why = differing(decided(tick["s"]), side.ask(op="schedule"), kinds)
            if why is not None:
                return {"steps": total, "equal": equal, "end": why}
            equal += 1
        if "u" in tick:
            update = {key: tick["u"].get(key) for key in ("of", "sampled", "drafts", "pooled")}
            side.ask(op="update", events=tick.get("ev_mid", []), **update)
    return {"steps": total, "equal": equal, "end": None}


def main() -> int:
    """Print a line a scenario and the sum: 0 if all that were run agree to the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="kinds of decisions to compare")
    at = sys.argv.index("--")
    arguments, command = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    results: dict[str, Json] = {}
    side = Side(command)
    for name, header, ticks in vectors(arguments.folder, arguments.names):
        try:
            results[name] = run(header, ticks, side, arguments.only)
        except RuntimeError as error:
            results[name] = {"steps": sum("s" in tick for tick in ticks), "equal": 0, "end": str(error)}
            side.close()
            side = Side(command)
        if not arguments.json:
            print(f"{name:34} {results[name]}", flush=True)
    side.close()
    ran = [each for each in results.values() if "unsupported" not in each]
    ends = Counter(each["end"] for each in ran if each["end"]).most_common()
    found = {
        "scenarios": len(results),
        "run": len(ran),
        "equal_to_the_end": sum(each["end"] is None for each in ran),
        "steps": sum(each["steps"] for each in ran),
        "steps_before_the_first_difference": sum(each["equal"] for each in ran),
        "first_differences": dict(ends),
        "unsupported": dict(Counter(each["unsupported"] for each in results.values() if "unsupported" in each)),
    }
    print(json.dumps({**found, "results": results} if arguments.json else found, indent=1))
    return int(any(each["end"] for each in ran))


if __name__ == "__main__":
    sys.exit(main())
