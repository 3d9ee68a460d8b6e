"""The same calls to a real vLLM and to `tokenyard emulate`: forms, heads, codes, names of metrics, events of streams.

    .venv/bin/python scripts/emulate_conformance.py --vllm .venv-vllm-0.32 [--json FILE] [--url http://127.0.0.1:8000]

Starts vLLM on the CPU with a tiny model that it makes (or asks the one at ``--url``), and the emulator with the same
settings; prints a row per call. Exits with 1 if a difference is not among those that are explained here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ROOT = Path(__file__).resolve().parent.parent
_LENGTH, _BLOCK = 512, 32
_USER = [{"role": "user", "content": "hello there"}]
_FUNCTION = {
    "name": "f",
    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
}
_TOOLS = [{"type": "function", "function": _FUNCTION}]
_SHORT = {"max_tokens": 4, "ignore_eos": True}
_EXPLAINED = {
    "Transfer-Encoding": "heads of HTTP are compared without regard to case",
    "cache-control": "the emulator forbids caches to keep streams",
    "tokenyard-ignored": "the emulator names fields that it has passed over",
    "x-approximate-tokens": "the emulator says what is not real",
    "x-emulated-time": "the emulator says what time it is there",
}
"""Heads that differ, and why."""
_NOT_THERE = re.compile(r"^(python_|process_|http_)")
"""Families of metrics that are not the engine's."""


class Call(NamedTuple):
    """One request to both."""

    name: str
    method: str
    path: str
    body: dict[str, Any] | bytes | None = None


CALLS = [
    Call("models", "GET", "/v1/models"),
    Call("health", "GET", "/health"),
    Call("ping", "GET", "/ping"),
    Call("version", "GET", "/version"),
    Call("load", "GET", "/load"),
    Call("completion", "POST", "/v1/completions", {"prompt": "hi", **_SHORT}),
    Call("completion n=2", "POST", "/v1/completions", {"prompt": "hi", "n": 2, "temperature": 1, **_SHORT}),
    Call("completion logprobs", "POST", "/v1/completions", {"prompt": "hi", "logprobs": 1, **_SHORT}),
    Call("completion ids", "POST", "/v1/completions", {"prompt": [5, 6, 7], "return_token_ids": True, **_SHORT}),
    Call("completion stream", "POST", "/v1/completions", {"prompt": "hi", "stream": True, **_SHORT}),
    Call(
        "completion stream usage",
        "POST",
        "/v1/completions",
        {"prompt": "hi", "stream": True, "stream_options": {"include_usage": True}, **_SHORT},
    ),
    Call(
        "completion usage throughout",
        "POST",
        "/v1/completions",
        {
            "prompt": "hi",
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **_SHORT,
        },
    ),
    Call("completion n=2 stream", "POST", "/v1/completions", {"prompt": "hi", "n": 2, "stream": True, **_SHORT}),
    Call("completion echo", "POST", "/v1/completions", {"prompt": "hi", "echo": True, **_SHORT}),
    Call("completion prompt logprobs", "POST", "/v1/completions", {"prompt": "hi", "prompt_logprobs": 1, **_SHORT}),
    Call("completion two prompts", "POST", "/v1/completions", {"prompt": ["hi", "ho"], **_SHORT}),
    Call(
        "completion logprobs stream",
        "POST",
        "/v1/completions",
        {"prompt": "hi", "logprobs": 1, "stream": True, **_SHORT},
    ),
    Call(
        "completion ids stream",
        "POST",
        "/v1/completions",
        {"prompt": "hi", "return_token_ids": True, "stream": True, **_SHORT},
    ),
    Call("chat", "POST", "/v1/chat/completions", {"messages": _USER, **_SHORT}),
    Call("chat n=2", "POST", "/v1/chat/completions", {"messages": _USER, "n": 2, "temperature": 1, **_SHORT}),
    Call("chat n=2 stream", "POST", "/v1/chat/completions", {"messages": _USER, "n": 2, "stream": True, **_SHORT}),
    Call("chat ids", "POST", "/v1/chat/completions", {"messages": _USER, "return_token_ids": True, **_SHORT}),
    Call(
        "chat ids stream",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "return_token_ids": True, "stream": True, **_SHORT},
    ),
    Call(
        "chat logprobs stream",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "logprobs": True, "top_logprobs": 1, "stream": True, **_SHORT},
    ),
    Call("chat tools, no parser", "POST", "/v1/chat/completions", {"messages": _USER, "tools": _TOOLS, **_SHORT}),
    Call(
        "chat tool_choice auto",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "tools": _TOOLS, "tool_choice": "auto", **_SHORT},
    ),
    Call("responses", "POST", "/v1/responses", {"input": "hello", "max_output_tokens": 4}),
    Call("responses stream", "POST", "/v1/responses", {"input": "hello", "max_output_tokens": 4, "stream": True}),
    Call(
        "chat logprobs",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "logprobs": True, "top_logprobs": 1, **_SHORT},
    ),
    Call("chat stream", "POST", "/v1/chat/completions", {"messages": _USER, "stream": True, **_SHORT}),
    Call(
        "chat stream usage",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "stream": True, "stream_options": {"include_usage": True}, **_SHORT},
    ),
    Call(
        "chat schema",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "structured_outputs": {"choice": ["yes", "no"]}, "max_tokens": 8},
    ),
    Call("tokenize", "POST", "/tokenize", {"prompt": "hi"}),
    Call("tokenize chat", "POST", "/tokenize", {"messages": _USER}),
    Call("detokenize", "POST", "/detokenize", {"tokens": [300, 301]}),
    Call("embeddings of a chat model", "POST", "/v1/embeddings", {"input": "hi"}),
    Call("unknown model", "POST", "/v1/completions", {"model": "nope", "prompt": "hi"}),
    Call("max_tokens -1", "POST", "/v1/completions", {"prompt": "hi", "max_tokens": -1}),
    Call("max_tokens too large", "POST", "/v1/completions", {"prompt": "hi", "max_tokens": 99999}),
    Call("no JSON", "POST", "/v1/completions", b"{bad"),
    Call("no prompt", "POST", "/v1/completions", {}),
    Call("temperature -1", "POST", "/v1/chat/completions", {"messages": _USER, "temperature": -1}),
    Call("unknown field", "POST", "/v1/completions", {"prompt": "hi", "frobnicate": 1, **_SHORT}),
    Call("no messages", "POST", "/v1/chat/completions", {"messages": []}),
    Call("messages missing", "POST", "/v1/chat/completions", {}),
    Call("prompt too long", "POST", "/v1/completions", {"prompt": [7] * (_LENGTH + 1), "max_tokens": 4}),
    Call("token beyond the vocabulary", "POST", "/v1/completions", {"prompt": [10**9], "max_tokens": 4}),
    Call("n=0", "POST", "/v1/completions", {"prompt": "hi", "n": 0}),
    Call("top_p 2", "POST", "/v1/completions", {"prompt": "hi", "top_p": 2}),
    Call("logprobs 1000", "POST", "/v1/completions", {"prompt": "hi", "logprobs": 1000, **_SHORT}),
    Call("top_logprobs alone", "POST", "/v1/chat/completions", {"messages": _USER, "top_logprobs": 1, **_SHORT}),
    Call("stream options, no stream", "POST", "/v1/completions", {"prompt": "hi", "stream_options": {}, **_SHORT}),
    Call("min_tokens too large", "POST", "/v1/completions", {"prompt": "hi", "min_tokens": 9, "max_tokens": 4}),
    Call("unknown path", "GET", "/nope"),
    Call("wrong method", "GET", "/v1/completions"),
    Call("adapter without a name", "POST", "/v1/load_lora_adapter", {}),
    Call("unknown adapter", "POST", "/v1/unload_lora_adapter", {"lora_name": "nope"}),
    Call("reset_prefix_cache", "POST", "/reset_prefix_cache"),
    Call("is_sleeping", "GET", "/is_sleeping"),
    Call("metrics", "GET", "/metrics"),
]


def main() -> int:
    """Ask both, print, and say whether all that differs is explained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vllm", type=Path, default=ROOT / ".venv-vllm-0.32")
    parser.add_argument("--model", type=Path, help="folder of a tiny checkpoint; else one is made")
    parser.add_argument("--url", help="a vLLM that runs already, with --model as `tiny` and its development paths")
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = flags.model or _tiny(flags.vllm, Path(folder))
        with _emulator(model) as ours, _vllm(flags, model) as theirs:
            rows = [compared(call, theirs, ours) for call in CALLS]
    for row in rows:
        print(f"{row['call']:28} {row['status']:9} {'same' if not row['differs'] else '; '.join(row['differs'])}")
    same = sum(not row["differs"] for row in rows)
    print(f"{same} of {len(rows)} calls are answered alike; heads that differ everywhere: {', '.join(_EXPLAINED)}")
    if flags.json is not None:
        flags.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if same == len(rows) else 1


def compared(call: Call, theirs: str, ours: str) -> dict[str, Any]:
    """What differs in the answers to a call."""
    answers = [_ask(call, url) for url in (theirs, ours)]
    found = []
    real, made = answers
    if real.status_code != made.status_code:
        found.append(f"status {real.status_code} there, {made.status_code} here")
    heads = [{name.lower() for name in each.headers} for each in answers]
    found += [
        f"head {name}" for name in sorted(heads[0] ^ heads[1]) if name not in {each.lower() for each in _EXPLAINED}
    ]
    forms = [_form(call, each) for each in answers]
    if forms[0] != forms[1]:
        found.append(_difference(*forms))
    return {"call": call.name, "status": str(real.status_code), "differs": found}


def _ask(call: Call, url: str) -> httpx.Response:
    body = call.body
    if isinstance(body, dict):
        body = {"model": "tiny", **body}
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    head = {"Content-Type": "application/json"} if content is not None else {}
    return httpx.request(call.method, f"{url}{call.path}", content=content, headers=head, timeout=600)


def _form(call: Call, answer: httpx.Response) -> Any:
    """An answer without its values: fields in order, kinds of values."""
    if call.path == "/metrics":
        return sorted(_families(answer.text))
    if "event-stream" in answer.headers.get("content-type", ""):
        chunks = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        forms = [each if each == "[DONE]" else _kinds(json.loads(each)) for each in chunks]
        return [form for i, form in enumerate(forms) if not i or form != forms[i - 1]]
    try:
        return _kinds(answer.json())
    except ValueError:
        return re.sub(r"'[^']*'", "'..'", answer.text)


def _families(text: str) -> Iterator[str]:
    """Every family with its kind and the names of its labels."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels: dict[str, set[str]] = {}
    for name, given in re.findall(r"^([a-zA-Z_:]+)(?:\{(.*?)\})? ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', given))
    for name, kind in kinds.items():
        if not _NOT_THERE.match(name) and not name.startswith("tokenyard:"):
            found = set().union(*(own for sample, own in labels.items() if sample in (name, f"{name}_bucket")))
            yield f"{name} {kind} {sorted(found)}"


def _kinds(value: Any) -> Any:
    if isinstance(value, dict):
        known = {"object", "type", "role", "finish_reason", "code", "owned_by", "param"}
        return {
            name: (each if name in known and not isinstance(each, dict) else _kinds(each))
            for name, each in value.items()
        }
    if isinstance(value, list):
        forms: list[Any] = []
        for each in map(_kinds, value):
            if each not in forms:
                forms.append(each)
        return forms
    return type(value).__name__.replace("float", "number").replace("int", "number")


def _difference(there: Any, here: Any, at: str = "") -> str:
    """The first place where two forms part."""
    if isinstance(there, dict) and isinstance(here, dict):
        if list(there) != list(here):
            missing, more = [n for n in there if n not in here], [n for n in here if n not in there]
            return f"{at or 'body'}: missing {missing}, more {more}" if missing or more else f"{at}: another order"
        for name, each in there.items():
            if each != here[name]:
                return _difference(each, here[name], f"{at}.{name}")
    if isinstance(there, list) and isinstance(here, list):
        if all(isinstance(each, str) for each in (*there, *here)):
            return f"{at}: missing {[n for n in there if n not in here]}, more {[n for n in here if n not in there]}"
        for i, (first, second) in enumerate(zip(there, here, strict=False)):
            if first != second:
                return _difference(first, second, f"{at}[{i}]")
        return f"{at}: {len(there)} kinds there, {len(here)} here"
    return f"{at}: {there!r} there, {here!r} here"


# ---------------------------------------------------------------------------------------------------------------------
# Both servers.


def _tiny(environment: Path, folder: Path) -> Path:
    """A tiny checkpoint with a tokenizer and a chat template, made in vLLM's environment."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT / "src")!r})
from pathlib import Path
from tokenyard.serve.served_model import make_demo_model
make_demo_model(Path({str(folder)!r}), width=128, max_model_len=4096)
"""
    subprocess.run([environment / "bin" / "python", "-c", code], check=True)
    return folder


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def _started(command: list[str], url: str, environment: dict[str, str], seconds: float) -> Iterator[str]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment)
        try:
            until = time.monotonic() + seconds
            while not _is_up(url):
                if time.monotonic() > until or process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} did not start:\n{log.read().decode(errors='replace')[-3000:]}")
                time.sleep(2)
            yield url
        finally:
            process.terminate()
            process.wait(120)


@contextmanager
def _vllm(flags: argparse.Namespace, model: Path) -> Iterator[str]:
    if flags.url is not None:
        yield flags.url
        return
    settings = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    }
    python = [str(flags.vllm / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server"]
    line = f"--model {model} --dtype float32 --enforce-eager --max-model-len {_LENGTH} --block-size {_BLOCK}"
    more = "--host 127.0.0.1 --port 18132 --served-model-name tiny --enable-prompt-tokens-details"
    with _started([*python, *line.split(), *more.split()], "http://127.0.0.1:18132", settings, 3000) as url:
        yield url


@contextmanager
def _emulator(model: Path) -> Iterator[str]:
    line = f"vllm serve {model} --max-model-len {_LENGTH} --block-size {_BLOCK} --served-model-name tiny"
    line += " --enable-prompt-tokens-details"
    command = [sys.executable, "-m", "tokenyard", "emulate", line, "--port", "18133", "--surface", "0.32"]
    with _started(command, "http://127.0.0.1:18133", {"PYTHONPATH": str(ROOT / "src")}, 300) as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
