"""What is written as words is read as the values that were meant; what cannot be read is named with its fix."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import MISSING
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.cli.support.flag_table import Flag, flags_of
from tokenyard.cli.support.flags import COMMANDS, command_of
from tokenyard.cli.support.help_pages import completion, help_of, short_help_of
from tokenyard.cli.support.parsing import parse, read
from tokenyard.deploy.setting_values import kinds_in
from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.settings import EmulateSettings

TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn")), min_size=1).filter(
    lambda text: not text.startswith("-")
)


def values(flag: Flag) -> st.SearchStrategy[Any]:
    """Draw a value of a flag, as its command has it."""
    if flag.is_switch:
        return st.booleans() if flag.off_spellings else st.just(value=True)
    if flag.element is None:
        return single(next(iter(kinds_in(flag.kind))), flag.choices)
    several = st.lists(single(flag.element, flag.choices), min_size=1, max_size=3).map(tuple)
    return st.lists(several, min_size=1, max_size=2).map(tuple) if flag.is_repeated else several


def single(kind: Any, choices: list[str]) -> st.SearchStrategy[Any]:
    """Draw one value of a type."""
    if choices:
        return st.sampled_from(list(kind) if isinstance(kind, type) and issubclass(kind, Enum) else choices)
    of_kind: dict[type, st.SearchStrategy[Any]] = {
        str: TEXTS,
        Path: TEXTS.map(Path),
        int: st.integers(-(10**18) + 1, 10**18 - 1),
        float: st.floats(allow_nan=False),
    }
    return of_kind[kind]


@st.composite
def meant(draw: st.DrawFn) -> tuple[str, list[str], dict[str, Any]]:
    """Draw a command, words for it, and the values that they stand for; what stands without a flag comes first."""
    name = draw(st.sampled_from(list(COMMANDS)))
    flags = flags_of(command_of(name))
    optional = [each for each in flags if each.default is not MISSING and not each.is_positional]
    optional = [each for each in optional if each.declared_in is not EmulateSettings]  # which refuses some values
    needed = [each for each in flags if each.default is MISSING]
    others = draw(st.lists(st.sampled_from(optional), max_size=4, unique_by=lambda each: each.name))
    said = {each.name: draw(values(each)) for each in (*needed, *others)}
    bare = [each for each in needed if each.is_positional]
    order = [*bare, *draw(st.permutations([each for each in (*needed, *others) if not each.is_positional]))]
    words = [word for each in order for word in draw(written(each, said[each.name]))]
    return name, words, said


@st.composite
def written(draw: st.DrawFn, flag: Flag, value: Any) -> list[str]:
    """Draw one of the ways in which a flag and its value are written."""
    if flag.is_positional:
        return [str(value)]
    word = draw(st.sampled_from(flag.spellings))
    if flag.is_switch:
        return [word if value else word.replace("--", "--no-", 1)]
    if flag.element is None:
        text = str(value.value if isinstance(value, Enum) else value)
        return [f"{word}={text}"] if text.startswith("-") or draw(st.booleans()) else [word, text]
    times = value if flag.is_repeated else (value,)
    return [text for several in times for text in (word, *map(str, several))]


def value_in(command: object, flag: Flag) -> object:
    """Find what a command has of a flag."""
    return getattr(command if flag.group is None else getattr(command, flag.group), flag.name)


@given(meant())
def test_words_are_read_as_the_values_that_they_stand_for(drawn: tuple[str, list[str], dict[str, Any]]) -> None:
    name, words, said = drawn
    command = read(command_of(name), words)
    for each in flags_of(command_of(name)):
        assert value_in(command, each) == said.get(each.name, each.default), each.name


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run chat --limit x", "limit = 'x': give a whole number of at most 18 digits"),
        ("run chat --limit 1000000000000000000", "limit = '1000000000000000000': give a whole number of at most 18"),
        ("run chat --seed 1..4", "give a whole number of at most 18 digits; a range is for what tries several values"),
        ("run chat --burstiness x", "burstiness = 'x': give a number"),
        ("run chat --time-unit x", "time_unit = 'x': give one of: d, h, min, s, ms, us, ns"),
        ("plan chat --maximize=x", "maximize = 'x': give one of: goodput, throughput, load"),
        ("run", "WORKLOAD = '': is needed: Built-in workload (agentic, chat"),
        ("upgrade chat", "--from = '': is needed: The version that serves it now"),
        ("run chat --limit", "--limit = '': needs a value: N"),
        ("run chat --limit --json", "--limit = '': needs a value: N"),
        ("why a b c", "argument = 'c': is one word too many: `tokenyard why --help` says what it takes"),
        ("report a --json=yes", "--json = 'yes': takes no value"),
        ("report a --help=yes", "--help = 'yes': takes no value"),
        ("run chat --jsn", "option = '--jsn': did you mean --json?"),
        ("run chat --no-jsn=3", "option = '--no-jsn': did you mean --json?"),
        ("view --no-browsr", "option = '--no-browsr': did you mean --no-browser?"),
        ("run chat --max-num-sqs 3", "option = '--max-num-sqs': did you mean --max-num-seqs?"),
        ("run chat --enforce-eagr", "option = '--enforce-eagr': did you mean --enforce-eager?"),
        ("run chat --api-server-cout 3", "option = '--api-server-cout': did you mean --api-server-count?"),
        ("report a --perfetto x", "option = '--perfetto': is a flag of export: `tokenyard report --help` lists"),
        ("report a -o x", "option = '-o': there is no such flag: `tokenyard report --help` lists the flags"),
        ("report a --zzzzzz", "option = '--zzzzzz': there is no such flag"),
        ("emulate line --speed 0", "speed = 0.0: give a number from 0.001 to 10000"),
        ("--json", "command = '--json': use one of: run, report"),
        ("--print-completion ksh", "--print-completion = 'ksh': give one of: bash, fish, zsh"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_can(line: str, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(line.split())
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("run --json chat --limit 3", "run chat --limit=3 --json"),
        ("run a --limit 3 b c --json", "run a b c --limit 3 --json"),
        ("run --rate_scale .5 chat", "run chat --rate-scale 0.5"),
        ("report -- t", "report t"),
        ("why t --js", "why t --json"),
        ("view --browser --no-browser", "view --no-browser"),
        ("run chat --limit 3 --limit 4", "run chat --limit 4"),
        ("run chat --slo=ttft:9 tpot:4 --json", "run chat --slo ttft:9 tpot:4 --json"),
        ("serve m --api-key=-k", "serve m --api-key=-k --api-key=-k"),
        ("whatif t --policy a --set x=1 --set y=2 z=3", "whatif t --policies=a --set=x=1 --set y=2 z=3"),
    ],
)
def test_lines_that_say_the_same(line: str, same: str) -> None:
    assert parse(line.split()) == parse(same.split())


def test_a_word_behind_two_dashes_is_no_flag() -> None:
    assert parse(["report", "--", "--json"]) == read(command_of("report"), ["--", "--json"])
    assert value_in(parse(["report", "--", "--json"]), flags_of(command_of("report"))[0]) == Path("--json")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", [80, 120])
def test_help_has_every_flag_with_its_text_and_default(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    page = help_of(command_of(name))
    assert max(map(len, page.splitlines())) <= width
    text = " ".join(page.split())
    for each in flags_of(command_of(name)):
        assert f"{' '.join(each.text.split())} ({each.default_in_words})" in text
        assert all(f" {word}" in text for word in ([] if each.is_positional else each.spellings + each.off_spellings))
        if each.group is not None:
            assert (
                f"{each.group.replace('_', '-')} options: {' '.join((each.declared_in.__doc__ or '').split())}" in text
            )


def test_the_short_help_fits_a_screen_and_says_where_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        page = short_help_of(command_of(name))
        if page != help_of(command_of(name)):
            assert len(page.splitlines()) <= 50
            assert f"`tokenyard {name} --help` explains these and the " in page
    run = short_help_of(command_of("run"))
    listed = re.findall(r"^  (--[a-z-]+)", run, re.MULTILINE)
    assert {"--serve", "--gpu", "--slo", "--trace", "--json"} <= set(listed)
    assert (
        f"the {len([each for each in flags_of(command_of('run')) if not each.is_positional]) - len(listed)} others"
        in run
    )


def test_help_of_the_program_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["-h"], ["--help"]):
        with pytest.raises(SystemExit) as ended:
            parse(words)
        assert ended.value.code == 0
        page = capsys.readouterr().out
        assert all(re.search(rf"\b{name}\b", page) for name in COMMANDS)
        assert len(page.splitlines()) <= (20 if words != ["--help"] else 100)


BASH = "/bin/bash"


@pytest.mark.skipif(not os.path.exists(BASH), reason="no bash")  # noqa: PTH110
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["wh"], ["why", "whatif"]),
        (["--v"], ["--version"]),
        (["why", "trace", "--st"], ["--stuck"]),
        (["view", "--no"], ["--no-browser"]),
        (["convert", "trace", "--compression", "z"], ["zstd"]),
        (["run", "chat", "--advice", ""], ["auto", "all", "none"]),
        (["report", ""], []),
    ],
)
def test_bash_completes(words: list[str], offered: list[str]) -> None:
    listed = " ".join(f"'{word}'" for word in ["tokenyard", *words])
    ask = f'COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _tokenyard; echo "${{COMPREPLY[*]}}"'
    done = subprocess.run([BASH, "-c", completion("bash") + ask], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(offered)
    assert done.stderr == ""


def test_zsh_reads_the_same_cases() -> None:
    cases = [line for line in completion("bash").splitlines() if line.startswith('    "')]
    assert cases
    assert set(cases) <= set(completion("zsh").splitlines())
    assert completion("zsh").startswith("#compdef tokenyard\n")


def test_fish_reads_the_same_cases() -> None:
    cases = [line for line in completion("bash").splitlines() if line.startswith('    "')]
    assert completion("fish").count("\n    case '") == len(cases)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("tokenyard wh", ["whatif", "why"]),
        ("tokenyard why t --st", ["--stuck"]),
        ("tokenyard run --advice a", ["all", "auto"]),
    ],
)
def test_fish_completes(line: str, offered: list[str]) -> None:
    ask = f"{completion('fish')}\ncomplete -C '{line}'"
    done = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True, cwd="/")
    assert sorted(done.stdout.split()) == offered
