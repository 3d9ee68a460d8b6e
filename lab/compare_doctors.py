"""The states of tests/support/states.py, as `tokenyard doctor` and vllm-doctor (PyPI) tell them: a Markdown table.

    PYTHONPATH=. .venv/bin/python lab/compare_doctors.py --other SCRATCH/bin/vllm-doctor

The other one is asked on loopback, with the last scrape of each state, as it takes no file and looks once.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.states import STATES, State

import tokenyard as ty

_FINDS = {
    "idle": set(),
    "empty": set(),
    "stuck": {"stuck"},
    "max_num_seqs": {"queue_pressure"},
    "kv_blocks": {"kv_cache_pressure"},
    "kv_full_sequence": {"kv_cache_pressure"},
    "token_budget": {"ttft_bottleneck"},
    "hot_engine": {"replica_imbalance"},
    "preemption_storm": {"preemption_pressure"},
    "cache_missed": {"prefix_cache_efficiency"},
}
"""What the other one's rules call it, where they have a name."""


def last_scrape(data: bytes) -> bytes:
    """The newest scrape of a text of several."""
    return re.split(rb"^# scraped_at .*\n", data, flags=re.MULTILINE)[-1]


def other_says(command: str, data: bytes) -> list[str]:
    """The rules that the other one says are broken, in its order."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        done = subprocess.run([command, "diagnose", url, "-o", "json"], capture_output=True, text=True, check=False)
        told = json.loads(done.stdout)
    finally:
        server.shutdown()
    return [each["id"] for each in told["checks"] if each["finding"] is not None]


def main() -> None:
    """Print the table and how many each tells."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--other", required=True)
    command = asked.parse_args().other
    print("| state | true | `tokenyard doctor` | vllm-doctor |\n| --- | --- | --- | --- |")
    right = [0, 0]
    for state in STATES:
        data = state.made()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.prom"
            path.write_bytes(data)
            answer = ty.doctor(path).answer
        first = answer.causes[0].code if answer.causes else answer.code
        ours = str(answer.reason) if first == "held_back" else first
        others = other_says(command, last_scrape(data))
        true = truth_of(state)
        wanted = _FINDS.get(true, {true})
        right[0] += ours == true
        right[1] += bool(wanted & set(others)) if wanted else not others
        print(f"| {state.name} | {true} | {ours} | {', '.join(others) or 'healthy'} |")
    print(f"\n{len(STATES)} states: {right[0]} told, by vllm-doctor {right[1]}")


def truth_of(state: State) -> str:
    """In one word."""
    return state.cause or state.reason or state.code


if __name__ == "__main__":
    main()
