"""What ``make size`` counts, and that docs/architecture.md has its figures."""

import re

import pytest

from size import PAGE, code_lines, size_table, sizes, working_tree


def test_comments_blanks_and_docstrings_are_no_code() -> None:
    text = '"""Says\n\nmuch."""\n\n# a comment\nX = """\n# text\n"""\n"""Of X."""\n'
    text += '\n\ndef f() -> int:\n    """Return 1."""\n    return 1\n'
    assert code_lines("a.py", text) == 5
    assert code_lines("a.ts", "/**\n * Says.\n */\nconst a = 1; // one\n\n// two\n") == 1


def test_rooms_and_documents() -> None:
    files = {
        "src/tokenyard/core/kv/a.py": "A = 1\n",
        "src/tokenyard/b.py": "B = 1\nC = 2\n",
        "docs/a.md": "# Two words\n",
        "docs/b.md": "Written by scripts/generate_b.py.\n",
        "elsewhere/c.py": "C = 1\n",
    }
    assert sizes(files.items()) == {
        ("src", "core"): (1, 1),
        ("src", "."): (2, 1),
        ("words", "docs"): (3, 1),
        ("words", "docs, generated"): (3, 1),
    }


def _figures(table: str) -> dict[str, list[float]]:
    rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|"))
    return {name: [float(each.strip("*")) for each in numbers] for name, *numbers in list(rows)[2:]}


@pytest.mark.slow
def test_the_page_has_the_figures_of_today() -> None:
    """Up to a tenth: `make size ARGS=--update` writes them."""
    page, today = PAGE.read_text(encoding="utf-8"), size_table(sizes(working_tree()))
    said = page.split("<!-- scripts/size.py -->", 1)[1].split("<!-- end", 1)[0]
    before, now = _figures(said), _figures(today)
    assert before.keys() == now.keys()
    for name, figures in now.items():
        assert before[name] == pytest.approx(figures, rel=0.1, abs=1), name
    files = [[int(each) for each in re.findall(r"(\d+) files", text)] for text in (said, today)]
    assert files[0] == pytest.approx(files[1], rel=0.1)


def test_the_lab_says_a_line_of_each_part() -> None:
    lab = PAGE.parents[1] / "lab"
    listed = re.findall(r"^\| `([\w./]+)` \| .", (lab / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    parts = {path.name + "/" * path.is_dir() for path in lab.iterdir() if path.suffix in (".py", "")}
    assert sorted(listed) == sorted(parts - {"__pycache__/"})
