"""Texts that are short and ask for much: every reader gets them, with limits of time and memory far above need."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from itertools import product

from tokenyard.deploy.serve_line import read_serve_text
from tokenyard.deploy.texts.data import YAMLError, yaml_documents
from tokenyard.errors import TokenyardError

__all__ = ["bombs"]

SIZE = 60_000
MEMORY = 1 << 29
"""Bytes beyond what the process has when it starts."""
SECONDS = 8
"""Seconds of the processor, for one text; the slowest takes about one."""
_BEGINNINGS = ("", "vllm serve m ", "args:\n- ")
_PARTS = (
    " ", "\t", "\n", "a", "-", "-a", ".a", "'", '"', '"\\', "\\", "\\\n", "$", "${", "${B:-", "$A", "$(", "`", "(", "{",
    "[", "[{", "a: ", "- ", "&a ", "*a ", "=", "a=", "#", ";", "|", "&", "<", ">", ">a", "@", "://", "://a:", "--a ",
    "--a.b ", "--kv-transfer-config.a.", "--middleware a ", "token ", "key: ", "non-default args: {", "[Service]\n",
    "ExecStart=", "1", "1:", "0x", "1.", "\x1b[", "KV cache size: 1,", "device_name=a", "\u00a0", "\x85", "\u00e9",
)  # fmt: skip
_ENDS = ("", "\nvllm serve m", "}")


def _doubling_aliases() -> str:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join(["a0: &a0 [x, x]", *levels, "env: {X: *a11}", "args: [--model, m]"])


def bombs() -> Iterator[str]:
    """All of them; unless all examples are asked for, every part after one of the beginnings."""
    for i, (beginning, part) in enumerate(product(_BEGINNINGS, _PARTS)):
        if os.environ.get("TOKENYARD_EXAMPLES") != "all" and sum(divmod(i, len(_PARTS))) % len(_BEGINNINGS):
            continue
        end = _ENDS[i % len(_ENDS)]
        room = SIZE - len(beginning) - len(end)
        yield beginning + part * (room // len(part)) + end
    yield _doubling_aliases()
    yield "\n".join(["a0: &a0 {p: x}", *(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}" for i in range(1, 40))])
    yield "\n".join(["A0=aaaaaaaaaa", *(f"A{i}=" + f"$A{i - 1}" * 4 for i in range(1, 20)), "vllm serve $A19"])
    yield "A=" + "a" * 50_000 + "\nvllm serve" + " $A" * 3_000
    yield "A=" + "a" * 50_000 + "\nvllm serve ${B:-" + "$A" * 4_000 + "}"
    yield "vllm serve " + "${B:-" * 9_000 + "x" + "}" * 9_000
    yield "env: {A: " + "a" * 200_000 + "}\nargs: [--model, '" + "$(A)" * 10_000 + "']"
    yield 'vllm serve m --speculative-config \'{"a": "' + '\\"' * 29_000 + "'"
    yield "vllm serve m --speculative-config '" + "[" * 59_000 + "'"
    yield "vllm serve m --speculative-config '" + '{"a":' * 10_000 + "1" + "}" * 10_000 + "'"
    yield "vllm serve m --max-model-len " + "9" * 400 + ".5k"
    yield "vllm serve m --max-num-seqs " + "9" * 50_000
    yield "docker run --name a vllm" + "-a" * 29_000 + "!"
    yield "x: " + "1:" * 20_000 + "1.5\nargs: [--model, m]"
    yield "non-default args: " + "{'a': " * 9_000
    yield "non-default args: {'model': '" + "\\'" * 29_000
    yield "non-default args: {'model': m" + "(" * 50_000
    yield ("Available KV cache memory: 1 GiB " * 1_000 + "\n") * 100
    yield "a" * 10_000_000
    yield "a: b\n" * 2_000_000


def _too_long(signum: int, frame: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")


def main() -> int:
    """Read every bomb; 0 if each is read, or refused by an error of ours, within the limits."""
    signal.signal(signal.SIGPROF, _too_long)
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no file on a disk
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))
    for text in bombs():
        for read, errors in ((read_serve_text, TokenyardError), (yaml_documents, YAMLError)):
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                read(text)
            except errors:
                pass
            except BaseException:
                print("not borne:", repr(text[:100]), repr(text[-20:]), len(text), file=sys.stderr)
                raise
    signal.setitimer(signal.ITIMER_PROF, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
