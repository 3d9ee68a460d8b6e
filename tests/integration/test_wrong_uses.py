"""Every command, used wrongly: nothing given, too much, a folder for a file, files that hold nothing or something else.

None prints a traceback, none ends as if all was well, and all say something on standard error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.integration.command import call

from tokenyard.cli.support.flags import COMMANDS

FLAGS = {
    "run": ["--gpu", "l4", "--model", "meta-llama/Llama-3.2-1B-Instruct"],
    "compare": ["--gpu", "l4", "--model", "meta-llama/Llama-3.2-1B-Instruct"],
    "sweep": ["--gpu", "l4", "--model", "meta-llama/Llama-3.2-1B-Instruct", "--set", "max_num_seqs=4"],
    "plan": ["--gpu", "l4", "--model", "meta-llama/Llama-3.2-1B-Instruct", "--slo", "ttft:1000"],
    "split": ["--gpu", "l4", "--model", "meta-llama/Llama-3.2-1B-Instruct", "--split", "1+1"],
    "export": ["--html", "page.html"],
    "whatif": ["--set", "max_num_seqs=4", "--yes"],
    "import": ["--output", "out.jsonl"],
}
"""What a command needs besides its file."""
NEEDS_NOTHING = {"ask", "demo", "workloads", "accuracy", "parity", "view", "serve"}
"""They have defaults, or begin to serve: without any word there is nothing wrong with them."""
READS_A_FILE = sorted(set(COMMANDS) - {"ask", "demo", "workloads", "serve", "view", "watch"})
"""`watch` waits for what is not there yet."""


def _files(folder: Path) -> None:
    (folder / "empty.jsonl").touch()
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 64)
    (folder / "null.jsonl").write_text("null\n" * 5)
    (folder / "text.txt").write_text("hello\nworld\n")
    (folder / "folder.jsonl").mkdir()
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "trace").mkdir()
    (folder / "trace" / "part-00000.jsonl").touch()
    (folder / "locked.jsonl").write_text('{"prompt_len": 4, "max_tokens": 3}\n')
    (folder / "locked.jsonl").chmod(0)


def _wrong(command: str, *words: str, cwd: Path) -> None:
    said = call(command, *words, cwd=cwd)
    message = said.stderr + said.stdout
    assert "Traceback" not in message
    assert said.code in (1, 2), message
    assert said.stderr.strip(), message


@pytest.mark.parametrize(
    "given",
    [
        "empty.jsonl",
        "binary.jsonl",
        "null.jsonl",
        "text.txt",
        "folder.jsonl",
        "loop.jsonl",
        "trace",
        "missing.jsonl",
        "locked.jsonl",
        "",
        ".",
        "/dev/null",
        "a\nb",
        "x" * 5000,
    ],
)
@pytest.mark.parametrize("command", READS_A_FILE)
def test_what_is_no_file_of_the_kind(command: str, given: str, tmp_path: Path) -> None:
    if given == "locked.jsonl" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    _files(tmp_path)
    words = {"query": [given, "show tables"], "accuracy": [given]}.get(command, [given, *FLAGS.get(command, ())])
    _wrong(command, *words, cwd=tmp_path)


@pytest.mark.parametrize("given", ["text.txt", "loop.jsonl", "/dev/null", "no/such/folder", "x" * 5000])
def test_what_nothing_can_be_watched_in(given: str, tmp_path: Path) -> None:
    _files(tmp_path)
    _wrong("watch", given, "--no-browser", cwd=tmp_path)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - NEEDS_NOTHING))
def test_nothing_given(command: str, tmp_path: Path) -> None:
    _wrong(command, cwd=tmp_path)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_too_much_given(command: str, tmp_path: Path) -> None:
    _wrong(command, "one", "two", "three", "four", cwd=tmp_path)
    _wrong(command, "--no-such-flag", "one", cwd=tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["query", "show tables", "trace"],
        ["import", "out.jsonl", "--output", "folder.jsonl"],
        ["export", "trace", "--html", "folder.jsonl"],
        ["compare", "trace", "chat"],
        ["convert", "trace", "--output", "text.txt"],
        ["run", "chat", "--trace", "text.txt", "--gpu", "l4", "--model", "meta-llama/Llama-3.2-1B-Instruct"],
        ["sweep", "text.txt", "chat", "--gpu", "l4", "--set", "max_num_seqs=4"],
        ["why", "trace", "trace", "trace"],
        ["whatif", "chat", "--set", "max_num_seqs=4"],
        ["run", "trace"],
        ["report", "chat"],
    ],
    ids=" ".join,
)
def test_swapped(words: list[str], tmp_path: Path) -> None:
    _files(tmp_path)
    _wrong(*words, cwd=tmp_path)


TOO_LARGE = ("--model", "qwen3-235b-a22b", "--gpu", "h100")


@pytest.mark.parametrize("command", ["run", "compare", "plan", "split", "sweep", "upgrade"])
def test_a_file_that_is_not_there_is_said_before_a_model_that_does_not_fit(command: str, tmp_path: Path) -> None:
    words = {"sweep": ("--set", "max_num_seqs=4", "--output", "rows"), "upgrade": ("--from", "0.27")}.get(command, ())
    said = call(command, "missing.jsonl", *TOO_LARGE, *words, cwd=tmp_path)
    said.refused("missing.jsonl: is neither a file nor a built-in workload")
    if command == "run":
        call(command, "chat", *TOO_LARGE, cwd=tmp_path).refused("raise --tensor-parallel-size")


def test_a_command_that_there_is_not(tmp_path: Path) -> None:
    call("rn", "chat", cwd=tmp_path).refused("command = 'rn': did you mean run?")
    call("replay", "chat", cwd=tmp_path).refused("command = 'replay': use one of: run, report, doctor, why")


def test_a_line_that_stands_without_a_flag_may_have_it(tmp_path: Path) -> None:
    line = "vllm serve llama-3.2-1b --max-model-len 4096"
    bare = call("headroom", line, "--gpu", "l4", "--json", cwd=tmp_path).stdout
    assert json.loads(bare)["gpu"] == "l4"
    assert call("headroom", "--serve", line, "--gpu", "l4", "--json", cwd=tmp_path).stdout == bare
    assert call("headroom", f"--serve={line}", "--gpu", "l4", "--json", cwd=tmp_path).stdout == bare


def test_a_value_that_a_setting_cannot_have_says_nothing_of_memory(tmp_path: Path) -> None:
    said = call("run", "chat", "--kv-cache-dtype", "fp9", cwd=tmp_path)
    said.refused("kv-cache-dtype = 'fp9': use one of: auto")
    assert "memory" not in said.stderr


def test_the_list_of_models_is_named_as_such(tmp_path: Path) -> None:
    call("run", "chat", "--model", "nosuch", cwd=tmp_path).refused("models are the last list of `tokenyard workloads`")
    listed = call("workloads", "--json", cwd=tmp_path).stdout
    assert list(json.loads(listed))[-1] == "models"


def test_what_names_variants_is_called_as_it_is_typed(tmp_path: Path) -> None:
    call("plan", "chat", "--model", "nosuch", cwd=tmp_path).refused("--set = '32 variants'")
