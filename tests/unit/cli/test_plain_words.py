"""What is read without tyro is what tyro reads; help, mistakes and whatever is not plain are left to it."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.cli.support.flag_names import Flag, flags_of
from tokenyard.cli.support.flags import COMMANDS, Command
from tokenyard.cli.support.flags.marks import POSITIONAL
from tokenyard.cli.support.parsing import read_by_tyro
from tokenyard.cli.support.plain_words import read_plainly
from tokenyard.errors import ConfigError

WORDS = ("1", "-1", "0.5", "1e3", "chat", "a=1", "None", "", "on", "fcfs", "--", "--json", "x y", "9" * 19)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command, some of its flags with words behind them that may fit, and words that stand alone."""
    command, name = draw(st.sampled_from(list(COMMANDS.items())))
    flags = flags_of(cast(type, command))
    words = draw(st.lists(st.sampled_from(("a", "b")), max_size=2)) if draw(st.booleans()) else ["a"]
    for each in draw(st.lists(st.sampled_from([each for each in flags if POSITIONAL not in each.said]), max_size=3)):
        spelt = draw(st.sampled_from(each.spellings))
        values = draw(st.lists(st.sampled_from((*_fitting(each), *WORDS)), max_size=2))
        if draw(st.booleans()) and values:
            words += [f"{spelt}={values[0]}", *values[1:]]
        else:
            words += [spelt if draw(st.integers(0, 5)) else spelt.replace("--", "--no-", 1), *values]
    words += draw(st.lists(st.sampled_from(("a", "b")), max_size=1))
    return [name, *words]


def _fitting(flag: Flag) -> list[str]:
    kind: Any = flag.kind
    choices = [each for part in (kind, *get_args(kind)) if get_origin(part) is Literal for each in get_args(part)]
    return choices or ["7", "name"]


def as_tyro_reads(words: list[str]) -> Command | None:
    try:
        return read_by_tyro(words)
    except SystemExit:
        return None


@pytest.mark.slow
@given(command_lines())
def test_what_is_plain_is_read_as_tyro_reads_it(words: list[str]) -> None:
    try:
        plain = read_plainly(words)
    except ConfigError:
        assert as_tyro_reads(words) is None
    else:
        assert plain is None or plain == as_tyro_reads(words)


@pytest.mark.parametrize(
    "line",
    [
        "run chat --limit 3 --slo ttft_p90=1s tpot:4 --json",
        "run a.csv b.csv --no-enable-prefix-caching --cudagraph-capture-sizes 1 2 --advice none",
        "plan chat --set max_num_seqs=1 --space b=2 --maximize load --no-largest-load",
        "whatif t --policies x --set a=1 --set b=2",
        "view",
    ],
)
def test_usual_lines_need_no_tyro(line: str) -> None:
    words = line.split()
    assert read_plainly(words) == as_tyro_reads(words) is not None


@pytest.mark.parametrize(
    "line", ["", "fly", "run", "run chat --limit x --help", "run chat --help", "run chat --jsn", "run a -1"]
)
def test_mistakes_and_help_are_tyros(line: str) -> None:
    assert read_plainly(line.split()) is None


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run chat --limit x", "--limit = 'x': give a whole number of at most 18 digits"),
        ("run chat --burstiness x", "--burstiness = 'x': give a number"),
        ("run chat --time-unit x", "--time-unit = 'x': use one of: d, h, min, s, ms, us, ns"),
        ("plan chat --maximize=x", "--maximize = 'x': use one of: goodput, throughput, load"),
    ],
)
def test_a_word_that_a_flag_does_not_take_is_named_with_what_it_takes(line: str, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_plainly(line.split())
    assert str(refused.value) == error
