"""``tokenyard ask``: ten questions, each with a page that shows what its example prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.integration.command import call
from tests.integration.documents import blocks_of

from tokenyard.cli.support.parsing import parse
from tokenyard.cli.support.questions import QUESTIONS, Question

REPO = Path(__file__).resolve().parents[3]
PAGES = REPO / "docs" / "questions"
MOST_LINES = 10


def _joined(text: str) -> str:
    return " ".join(text.replace("\\\n", " ").split())


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.page)
def test_a_page_is_short_and_says_what_the_menu_says(question: Question) -> None:
    text = (PAGES / question.page).read_text(encoding="utf-8")
    blocks = list(blocks_of(text))
    assert text.startswith(f"# {question.text}\n")
    assert f"**How sure is it?** {question.sure}" in _joined(text)
    assert f"$ {question.command}\n" in blocks[0].text
    ran = next(block for block in blocks if block.language == "sh")
    assert question.example is None or _joined(ran.text).startswith(question.example)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()[1:]
    assert len([line for line in prose if line.strip()]) <= MOST_LINES


@pytest.mark.parametrize("place", ["README.md", "docs/README.md"])
def test_the_pages_are_what_readers_see_first(place: str) -> None:
    text = (REPO / place).read_text(encoding="utf-8")
    listed = re.findall(r"\[([^\]]+)\]\((?:docs/)?questions/([\w-]+\.md)\)", text)
    assert listed == [(each.text, each.page) for each in QUESTIONS]
    assert sorted(path.name for path in PAGES.glob("*.md")) == sorted(each.page for each in QUESTIONS)


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.example], ids=lambda question: question.page)
def test_an_example_is_a_command(question: Question) -> None:
    assert question.example is not None
    parse(question.example.split()[1:])


def test_the_menu_and_one_of_it(tmp_path: Path) -> None:
    menu = call("ask", cwd=tmp_path).stdout
    assert [f"{number:>2}  {each.text}\n    {each.command}\n" in menu for number, each in enumerate(QUESTIONS, 1)] == (
        [True] * len(QUESTIONS)
    )
    assert call("ask", "2", cwd=tmp_path).stdout == call("ask", "how many gpus", cwd=tmp_path).stdout
    assert str(QUESTIONS[1].example) in call("ask", "2", cwd=tmp_path).stdout.replace("\n", " ")
    assert json.loads(call("ask", "10", "--json", cwd=tmp_path).stdout)["example"] is None
    assert len(json.loads(call("ask", "--json", cwd=tmp_path).stdout)) == len(QUESTIONS)


@pytest.mark.parametrize("said", ["0", "11", "weather", "vllm"])
def test_another_question_is_refused(said: str, tmp_path: Path) -> None:
    call("ask", said, cwd=tmp_path).refused("QUESTION", "give a number from 1 to 10")
