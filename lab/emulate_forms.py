"""Calls to an emulated server and to vLLM's own (``emulate_calls.json``), and what is compared of the answers.

It is the form: the code, the names of heads, fields in their order with the kinds of their values, values that programs
read (``finish_reason``, ``object``, ``type`` ...), the shape of ids, the events of streams, and of ``/metrics`` every
family with its labels, their values and its buckets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

__all__ = ["LENGTH", "SERVERS", "Call", "Form", "Server", "ask", "differences", "form_of"]

LENGTH = 512
"""Longest request of the model that is asked."""


class Call(NamedTuple):
    """One request to both; a body of text is no JSON."""

    name: str
    method: str
    path: str
    body: dict[str, Any] | str | None = None
    heads: Mapping[str, str] = {}


class Server(NamedTuple):
    """A command line of vLLM's, and what is asked of it."""

    name: str
    flags: str
    calls: Sequence[Call]


def _repeated(said: dict[str, Any]) -> Any:
    """``{"times": [PIECE, N]}`` is a text or a list that holds a piece so often."""
    return said["times"][0] * said["times"][1] if "times" in said else said


_LISTED = Path(__file__).with_name("emulate_calls.json").read_text(encoding="utf-8")
SERVERS = tuple(
    Server(each["name"], each["flags"], [Call(*call) for call in each["calls"]])
    for each in json.loads(_LISTED, object_hook=_repeated)
)


class Form(NamedTuple):
    """An answer without its values."""

    status: int
    heads: Sequence[str]
    """Names, with the values of some."""
    body: Any


_NOT_THERE = re.compile(r"^(python_|process_|http_)")
"""Families of metrics that are not the engine's."""
_TOLD = {
    *("object", "type", "role", "finish_reason", "code", "param", "owned_by", "status", "tool_choice", "truncation"),
    *("reason", "service_tier", "stop_reason"),
}
"""Fields whose values programs read."""
_OUR_HEADS = {
    "cache-control": "the emulator forbids caches to keep streams",
    "tokenyard-ignored": "the emulator names fields that it has ignored",
    "x-approximate-tokens": "the emulator says what is not real",
    "x-emulated-time": "the emulator says what time it is there",
    "x-emulated-late": "the emulator says how late it is",
}
"""Heads that are ours, and why."""
_CONNECTION = {"date", "transfer-encoding", "content-length", "server"}
_WITH_VALUES = {"content-type", "allow", "vary", "www-authenticate", "x-request-id", "access-control-allow-origin"}


def ask(call: Call, url: str, http: Any = None) -> httpx.Response:
    """The answer to a call; ``http`` asks, in the place of a socket."""
    body = call.body
    if isinstance(body, dict):
        body = {"model": "tiny", **body}
    content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    heads = {"Content-Type": "application/json"} if content is not None else {}
    send = httpx.request if http is None else http.request
    options: dict[str, Any] = {"timeout": 600} if http is None else {}
    return send(call.method, f"{url}{call.path}", content=content, headers=heads | dict(call.heads), **options)


def form_of(call: Call, answer: httpx.Response) -> Form:
    """What is compared."""
    heads = [
        f"{name}: {value}" if name in _WITH_VALUES else name
        for name, value in sorted((name.lower(), value) for name, value in answer.headers.items())
        if name not in _CONNECTION and name not in _OUR_HEADS
    ]
    return Form(answer.status_code, heads, _body(call, answer))


def _body(call: Call, answer: httpx.Response) -> Any:
    if call.path == "/metrics":
        return sorted(_families(answer.text))
    if call.path.startswith("/server_info") and answer.is_success:
        return {name: type(value).__name__ for name, value in answer.json().items()}  # settings are each one's own
    if "event-stream" in answer.headers.get("content-type", ""):
        forms = [_event(each) for each in answer.text.split("\n\n") if each]
        found = [form for i, form in enumerate(forms) if form not in forms[:i]]
        together = isinstance(call.body, dict) and ("n" in call.body or isinstance(call.body.get("prompt"), list))
        return sorted(found, key=json.dumps) if together else found
    try:
        return _kinds(answer.json())
    except ValueError:
        return re.sub(r"'[^']*'", "'..'", answer.text)


def _event(text: str) -> Any:
    """A server-sent event: its lines, the data's without their values."""
    lines = []
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        lines.append([name, _kinds(json.loads(value)) if value.startswith("{") else value])
    return lines


def _families(text: str) -> Iterator[str]:
    """Every family with its kind, its labels and their values, and its bounds."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels: dict[str, dict[str, list[str]]] = {}
    for name, given in re.findall(r"^([a-zA-Z_:]+)(?:\{(.*?)\})? ", text, re.MULTILINE):
        own = labels.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', given):
            if value not in own.setdefault(label, []):
                own[label].append(value)
    for name, kind in kinds.items():
        if _NOT_THERE.match(name) or name.startswith("tokenyard:"):
            continue
        found: dict[str, list[str]] = {}
        for sample in (name, f"{name}_bucket", f"{name}_total"):
            found |= labels.get(sample, {})
        free = name in ("vllm:cache_config_info", "vllm:lora_requests_info")
        told = {
            label: [] if free else values if label == "le" else sorted(values)
            for label, values in sorted(found.items())
        }
        yield f"{name} {kind} " + "; ".join(f"{label} {' '.join(values)}".rstrip() for label, values in told.items())


def _kinds(value: Any) -> Any:
    if isinstance(value, dict) and value and all(name.isdecimal() for name in value):
        return _kinds(list(value.values()))  # by token id
    if isinstance(value, dict):
        return {name: _of_field(name, each) for name, each in value.items()}
    if isinstance(value, list):
        forms: list[Any] = []
        for each in map(_kinds, value):
            if each not in forms:
                forms.append(each)
        return forms
    return type(value).__name__.replace("float", "number").replace("int", "number")


def _of_field(name: str, value: Any) -> Any:
    if name == "bytes":
        return "bytes"
    if name == "top_logprobs" and isinstance(value, list):  # of completions they are by text
        return _kinds([list(each.values()) if each and "token" not in each else each for each in value])
    if name in _TOLD and not isinstance(value, (dict, list)):
        return value
    if isinstance(value, str) and (name == "id" or name.endswith("_id")):
        return re.sub(r"[0-9a-f]{8,}", lambda found: f"<{len(found[0])} hex>", value)
    return _kinds(value)


def differences(there: Form, here: Form) -> list[str]:
    """What differs between vLLM's answer and ours: the first place of the body, and all else."""
    found = []
    if there.status != here.status:
        found.append(f"status {there.status} there, {here.status} here")
    missing, more = set(there.heads) - set(here.heads), set(here.heads) - set(there.heads)
    if missing:
        found.append(f"missing head {', '.join(sorted(missing))}")
    if more:
        found.append(f"more head {', '.join(sorted(more))}")
    if there.body != here.body or json.dumps(there.body) != json.dumps(here.body):
        found.append(_difference(there.body, here.body))
    return found


def _difference(there: Any, here: Any, at: str = "") -> str:
    """The first place where two forms part."""
    if isinstance(there, dict) and isinstance(here, dict):
        if list(there) != list(here):
            missing, more = [n for n in there if n not in here], [n for n in here if n not in there]
            return (
                f"{at or 'body'}: missing {missing}, more {more}"
                if missing or more
                else f"{at or 'body'}: another order: {list(there)} there, {list(here)} here"
            )
        for name, each in there.items():
            if json.dumps(each) != json.dumps(here[name]):
                return _difference(each, here[name], f"{at}.{name}")
    if isinstance(there, list) and isinstance(here, list):
        if all(isinstance(each, str) for each in (*there, *here)):
            return f"{at}: missing {[n for n in there if n not in here]}, more {[n for n in here if n not in there]}"
        for i, (first, second) in enumerate(zip(there, here, strict=False)):
            if json.dumps(first) != json.dumps(second):
                return _difference(first, second, f"{at}[{i}]")
        return f"{at}: {len(there)} kinds there, {len(here)} here"
    return f"{at}: {there!r} there, {here!r} here"
