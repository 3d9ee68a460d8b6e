"""The same calls to a real vLLM and to `tokenyard emulate`: forms, heads, codes, metrics, events of streams.

    .venv/bin/python lab/emulate_conformance.py --vllm .venv-vllm-0.32 [--docs FILE] [--record FILE] [--only NAME]
        [--recorded FILE]

Starts vLLM on the CPU with a tiny model that it makes, and the emulator with the same settings, for each of the servers
of ``lab/emulate_calls.json``; prints a row per call. ``--docs`` writes the table (with ``--made-up`` a part),
``--record`` the forms of vLLM's answers, which ``tests/unit/server/emulate/test_forms_of_vllm.py`` holds against;
``--recorded`` takes such a file in the place of a vLLM that runs. Exits with 1 if a difference is not among those that
are explained here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from emulate_forms import LENGTH, SERVERS, Form, Server, ask, differences, form_of
from emulate_servers import ROOT, free_port, running, tiny_model, until_ready

_BLOCK = 32
_RANDOM = "a model of random weights does not get to a call, the emulator's makes one"
_KEY = "the emulator, as all servers of Tokenyard, asks for a key on every path but health"
EXPLAINED = {
    "no key, metrics": _KEY,
    "no key, tokenize": _KEY,
    "tools required": _RANDOM,
    "tools required, stream": _RANDOM,
    "messages named tool": _RANDOM,
    "messages named tool, stream": _RANDOM,
}
"""Calls whose answers differ, and why."""
_EMPTY = "tokens of the executor that stands in for a GPU may have no text"
EXPLAINED_MADE_UP = {
    **EXPLAINED,
    **dict.fromkeys(
        ("responses", "responses stream", "responses instructions", "responses of messages", "chat usage throughout"),
        _EMPTY,
    ),
}
"""The same with ``--made-up``."""


class Row(NamedTuple):
    """A call's answers."""

    server: str
    call: str
    there: Form
    here: Form
    explained: Mapping[str, str]
    """Calls that are known to differ, and why."""

    @property
    def differs(self) -> list[str]:
        """In what; nothing: they are alike."""
        return differences(self.there, self.here)

    @property
    def text(self) -> str:
        """For people."""
        if not self.differs:
            return "same"
        why = self.explained.get(self.call)
        return "; ".join(self.differs) if why is None else f"{'; '.join(self.differs)} ({why})"


def main() -> int:
    """Ask both, print, and say whether all that differs is explained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vllm", type=Path, default=ROOT / ".venv-vllm-0.32")
    parser.add_argument("--surface", default="0.32", help="the version that the emulator is to look like")
    parser.add_argument(
        "--made-up", action="store_true", help="vLLM without kernels: its own server and scheduler, our executor"
    )
    parser.add_argument("--only", help="one of the servers, by name")
    parser.add_argument("--docs", type=Path, help="write the table for readers")
    parser.add_argument("--recorded", type=Path, help="forms of vLLM's answers, in the place of a vLLM that runs")
    parser.add_argument("--record", type=Path, help="write the forms of vLLM's answers")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(flags.vllm, Path(folder))
        chosen = [each for each in SERVERS if flags.only in (None, each.name)]
        rows = [row for server in chosen for row in asked(server, model, flags)]
    for row in rows:
        print(f"{row.call:32} {row.there.status:4} {row.text}")
    same, explained = (
        sum(not row.differs for row in rows),
        sum(bool(row.differs and row.call in row.explained) for row in rows),
    )
    print(f"{same} of {len(rows)} calls are answered alike; {explained} differ for a reason that is told")
    if flags.docs is not None:
        written = flags.docs.read_text(encoding="utf-8") if flags.docs.exists() else ""
        table, section, rest = written.partition(_SECTION)
        text = table + _section(rows, flags.surface) if flags.made_up else _page(rows, flags.surface) + section + rest
        flags.docs.write_text(text, encoding="utf-8")
    if flags.record is not None:
        record = {f"{row.server}: {row.call}": row.there._asdict() for row in rows}
        flags.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if same + explained == len(rows) else 1


def asked(server: Server, model: Path, flags: argparse.Namespace) -> list[Row]:
    """Both servers' answers to all calls."""
    explained = EXPLAINED_MADE_UP if flags.made_up else EXPLAINED
    known = None if flags.recorded is None else json.loads(flags.recorded.read_text(encoding="utf-8"))
    with ExitStack() as stack:
        ours = stack.enter_context(_emulator(server, model, flags.surface))
        if known is not None:
            there = [Form(**known[f"{server.name}: {call.name}"]) for call in server.calls]
        else:
            theirs = stack.enter_context(_vllm(server, model, flags.vllm, made_up=flags.made_up))
            there = [form_of(call, ask(call, theirs)) for call in server.calls]
        return [
            Row(server.name, call.name, form, form_of(call, ask(call, ours)), explained)
            for call, form in zip(server.calls, there, strict=True)
        ]


def _page(rows: Sequence[Row], version: str) -> str:
    """The table, with what differs and why."""
    lines = [
        f"# An emulated server beside vLLM {version}",
        "",
        "Written by `lab/emulate_conformance.py --docs docs/emulate-conformance.md`:",
        f"{len(rows)} calls to vLLM on a CPU with a tiny model, and to `tokenyard emulate` of the same command line.",
        "Compared are codes, heads, fields in their order with the kinds of their values, the shape of ids, events of",
        "streams, and metrics with their labels, values of labels and buckets; not texts.",
        "",
        f"{sum(not row.differs for row in rows)} are answered alike; the others are:",
    ]
    for server in SERVERS:
        own = [row for row in rows if row.server == server.name and row.differs]
        if own:
            title = f"vllm serve MODEL {server.flags}".strip()
            lines += ["", f"## `{title}`", "", "| call | vLLM | the emulator |", "| --- | --- | --- |"]
            lines += [f"| {row.call} | {row.there.status} | `{row.text.replace('|', '/')}` |" for row in own]
    return "\n".join(lines) + "\n"


_SECTION = "\n## By vLLM's own server without a model"


def _section(rows: Sequence[Row], version: str) -> str:
    """What differs from a vLLM whose executor stands in for a GPU."""
    same = sum(not row.differs for row in rows)
    lines = [
        f"{_SECTION}: {version}",
        "",
        "Written by `lab/emulate_conformance.py --made-up --docs docs/emulate-conformance.md`: the same calls to",
        f"the API server, engine core and scheduler of vLLM {version} on `tokenyard.vllm.EmulatedExecutor`.",
        f"{same} of {len(rows)} are answered alike; the others are:",
        "",
        f"| call | vLLM {version} | the emulator |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {row.call} | {row.there.status} | `{row.text.replace('|', '/')}` |" for row in rows if row.differs]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Both servers.


@contextmanager
def _started(command: list[str], port: int, seconds: float, **environment: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, running(command, Path(folder, "log"), **environment) as process:
        until_ready(f"http://127.0.0.1:{port}/health", [Path(folder, "log")], seconds, [process])
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _vllm(server: Server, model: Path, environment: Path, *, made_up: bool) -> Iterator[str]:
    settings = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    }
    python = [str(environment / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    line = f"--model {model} --dtype float32 --enforce-eager --max-model-len {LENGTH} --block-size {_BLOCK}"
    port = free_port()
    more = f"--host 127.0.0.1 --port {port} --served-model-name tiny --enable-prompt-tokens-details"
    command = [*python, *line.split(), *more.split(), *server.flags.split()]
    if made_up:
        command += ["--distributed-executor-backend", "tokenyard.vllm.EmulatedExecutor"]
        command += ["--additional-config", json.dumps({"tokenyard": {"gpu": "h100"}})]
        settings["PYTHONPATH"] = str(ROOT / "src")
    with _started(command, port, 3000, **settings) as url:
        yield url


def line_of(server: Server, model: Path) -> str:
    """What is emulated."""
    line = f"vllm serve {model} --max-model-len {LENGTH} --block-size {_BLOCK} --served-model-name tiny"
    return f"{line} --enable-prompt-tokens-details {server.flags}".strip()


@contextmanager
def _emulator(server: Server, model: Path, surface: str) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tokenyard", "emulate", line_of(server, model), "--port", str(port)]
    more = ["--ignore-unmodelled"] if "pooling" in server.flags else []
    more += ["--surface", surface, "--speed", "0.02"]  # a token is a chunk then, however busy the machine is
    with _started([*command, *more], port, 300, PYTHONPATH=str(ROOT / "src")) as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
