"""Commands of a shell: the words of each, as far as they are known without running anything.

A text is read once, from left to right. No more than :data:`MOST_CHARACTERS` of it are read, nor of what variables
make of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from tokenyard.patterns import lazy_pattern

MOST_CHARACTERS = 1 << 16
"""Most characters of a command line, a script, or what variables make of one."""

_BLANK = lazy_pattern(r"[^\S\n]+")
_BLANK_LINES = lazy_pattern(r"(?:[ \t\r]*(?:#[^\n]*)?\n)*")
_TO_NEXT_FLAG = lazy_pattern(r"[ \t]*(?=--?[A-Za-z])")
_PROMPT = lazy_pattern(r"[ \t]*[$>%][ \t]+(?=\S)")
_PROMPT_BELOW = lazy_pattern(r"[ \t]*>[ \t]+(?=-)")
_END_OF_LINE = lazy_pattern(r"\\[ \t]*\r?(?:\n|\Z)")
_PLAIN = lazy_pattern(r"[^\s\\'\"$`#;&|<>]+")
_IN_QUOTES = lazy_pattern(r"[^\"\\$`]+")
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+)(?::?[-=](.*))?", re.DOTALL)
_WHOLE_ARRAY = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]")
_ARRAY = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=(?=\()")
_REDIRECTION = lazy_pattern(r"[0-9]*&?(?:>>|>&|>\||>|<<<|<<|<(?=\s))[ \t]*(?:&?[0-9-](?=\s|\Z)|[^\s;&|]*)")
_OPENING = lazy_pattern(r"[(){}'\"\\`]")
_MOST_DEFAULTS_WITHIN = 10
"""Defaults of variables within defaults."""


class ShellError(ValueError):
    """A text is no command of a shell, or stands for more than may be read."""


class WordPart(msgspec.Struct, frozen=True):
    """A part of a word."""

    text: str
    """The text as it is; a variable as it is written."""
    name: str | None = None
    """Name of a variable, where the piece is one."""
    default: str | None = None
    """What a variable is where it is not set, as it is written."""
    is_quoted: bool = False
    items: tuple[list[WordPart], ...] | None = None
    """Words of an array that is set."""
    is_array: bool = False
    """Whether it stands for all words of an array, ``${NAME[@]}``."""


Word = list[WordPart]


class Command(list[Word]):
    """The words of one command."""

    cut_at: int | None = None
    """Line of a comment that ends it, though a backslash says that it goes on below."""


def commands(text: str) -> Iterator[Command]:
    """The commands of a script, one after the other. Raises ShellError.

    They end at ``;``, ``&``, ``|`` and at lines that nothing continues. A line is continued by a backslash, by an open
    quotation, and by a line below that begins with a flag: no command begins with a dash, so the user who pasted it
    has lost the backslashes. Comments, redirections and prompts (``$``, ``>``, ``%``) are left out. A comment below a
    backslash, or one that ends with a backslash, ends a command, as in a shell.
    """
    if len(text) > MOST_CHARACTERS:
        problem = f"has {len(text):,} characters, and no more than {MOST_CHARACTERS:,} are read: give the command alone"
        raise ShellError(problem)
    return _Lexer(text).commands()


def split_words(text: str) -> list[str]:
    """The words of one command, variables as they are written. Raises ShellError."""
    return ["".join(piece.text for piece in word) for command in commands(text) for word in command]


def is_unresolved(word: str) -> bool:
    """Whether something of it is for a shell to work out: a variable that is not set here, or ``$(...)``."""
    return "$" in word or "`" in word


def expanded(word: Word, environment: Mapping[str, str], *, most: int = MOST_CHARACTERS) -> list[str]:
    """What a shell makes of a word: none or several where a variable stands outside of quotation marks.

    Variables that are not set stay as they are written, unless they have a default. Raises ShellError for more than
    ``most`` characters.
    """
    if all(piece.name is None for piece in word):
        return ["".join(piece.text for piece in word)]
    if any(piece.is_array for piece in word):
        return ["".join(piece.text for piece in word)]
    words, begun, left = [""], bool(word), most
    for piece in word:
        value = _value(piece, environment, left, _MOST_DEFAULTS_WITHIN)
        left -= len(value)
        if piece.name is None or piece.is_quoted or (value == piece.text and piece.default is None):
            words[-1] += value
            continue
        parts = value.split()
        begun = begun and (len(word) > 1 or bool(parts))
        words[-1] += parts[0] if parts else ""
        words += parts[1:]
    return words if begun else []


def _value(piece: WordPart, environment: Mapping[str, str], most: int, levels: int) -> str:
    value = piece.text if piece.name is None else environment.get(piece.name)
    if value is None and piece.default is not None:
        if levels == 0:
            raise ShellError(f"has defaults of variables in each other, more than {_MOST_DEFAULTS_WITHIN} deep")
        parts: list[str] = []
        for each in _Lexer(piece.default).quoted():
            parts.append(_value(each, environment, most, levels - 1))
            most -= len(parts[-1])
        return "".join(parts)
    value = piece.text if value is None else value
    if len(value) > most:
        raise ShellError(f"stands for more than {MOST_CHARACTERS:,} characters, its variables written out")
    return value


class _Lexer:
    """One pass over a text."""

    def __init__(self, text: str, *, has_arrays: bool = True) -> None:
        self._text = text
        self._at = 0
        self._has_arrays = has_arrays
        self._below = -1
        """Where a line begins that a backslash continues."""

    def commands(self) -> Iterator[Command]:
        text = self._text
        self._begin_line()
        command = Command()
        while self._at < len(text):
            if self._skip(_BLANK) or self._skip_continued():
                continue
            if text[self._at] == "#":
                begun, is_below = self._at, self._at == self._below
                self._to_line_end()
                if command and (is_below or text.endswith("\\", begun, self._at)):
                    command.cut_at = text.count("\n", 0, begun) + 1
                    yield command
                    command = Command()
                    self._begin_line()
            elif self._ends_command(has_words=bool(command)):
                if command:
                    yield command
                command = Command()
            elif not self._skip(_REDIRECTION):
                array = _ARRAY.match(text, self._at) if self._has_arrays else None
                command.append(self._word() if array is None else [self._array(array)])
        if command:
            yield command

    def _ends_command(self, *, has_words: bool) -> bool:
        """Go on behind what ends a command, if anything does here."""
        character = self._text[self._at]
        if character == "\n":
            self._at += 1
            if has_words and self._goes_on():
                return False
            self._begin_line()
            return True
        if character in ";|" or (character == "&" and not self._text.startswith("&>", self._at)):
            self._at += 1
            return True
        return False

    def quoted(self) -> Word:
        """The whole text, as within quotation marks."""
        word: Word = []
        while self._at < len(self._text):
            self._quoted_piece(word)
        return word

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._at)
        if found is None or found.end() == self._at:
            return False
        self._at = found.end()
        return True

    def _skip_continued(self) -> bool:
        """A backslash at the end of a line."""
        if not self._skip(_END_OF_LINE):
            return False
        self._skip(_BLANK)
        self._skip(_PROMPT_BELOW)
        self._below = self._at
        return True

    def _to_line_end(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _begin_line(self) -> None:
        self._skip(_BLANK_LINES)
        self._skip(_PROMPT)

    def _goes_on(self) -> bool:
        """Whether a flag stands below, blank lines and comments between; if so, it is the next to be read."""
        blank = _BLANK_LINES.match(self._text, self._at)
        end = self._at if blank is None else blank.end()
        found = _TO_NEXT_FLAG.match(self._text, end)
        if found is None:
            self._at = end
            return False
        self._at = found.end()
        return True

    def _word(self) -> Word:
        word: Word = []
        text = self._text
        while self._at < len(text):
            at = self._at
            character = text[at]
            plain = _PLAIN.match(text, at)
            if plain is not None:
                word.append(WordPart(plain[0]))
                self._at = plain.end()
            elif character.isspace() or character in ";|" or self._ends_at(at):
                break
            elif character == "\\":
                if _END_OF_LINE.match(text, at):
                    break
                word.append(WordPart(text[at + 1]))
                self._at += 2
            elif character == "'":
                end = text.find("'", at + 1)
                if end < 0:
                    raise self._open("a closing quotation mark", at)
                word.append(WordPart(text[at + 1 : end], is_quoted=True))
                self._at = end + 1
            elif character == '"':
                self._quoted(word)
            elif character in "$`":
                word.append(self._dollar(is_quoted=False))
            else:
                word.append(WordPart(character))
                self._at += 1
        return word

    def _array(self, begun: re.Match[str]) -> WordPart:
        """``NAME=(WORD ...)``: one piece, whose text ends at the equals sign."""
        end = self._closing(begun.end(), "(", ")")
        within = _Lexer(self._text[begun.end() + 1 : end - 1], has_arrays=False)
        self._at = end
        return WordPart(begun[0], items=tuple(word for command in within.commands() for word in command))

    def _ends_at(self, at: int) -> bool:
        """An ampersand that no word follows; those within a URL are left where they are."""
        return self._text[at] == "&" and (at + 1 == len(self._text) or self._text[at + 1] in "& \t\r\n;|>")

    def _quoted(self, word: Word) -> None:
        opened = self._at
        self._at += 1
        word.append(WordPart("", is_quoted=True))
        while not self._text.startswith('"', self._at):
            if self._at >= len(self._text):
                raise self._open("a closing quotation mark", opened)
            self._quoted_piece(word)
        self._at += 1

    def _quoted_piece(self, word: Word) -> None:
        text, at = self._text, self._at
        plain = _IN_QUOTES.match(text, at)
        if plain is not None:
            word.append(WordPart(plain[0], is_quoted=True))
            self._at = plain.end()
        elif text[at] == "\\":
            after = text[at + 1 : at + 2]
            if after != "\n":
                word.append(WordPart(after if after in ("\\", '"', "$", "`") else f"\\{after}", is_quoted=True))
            self._at += 2
        elif text[at] == '"':  # within a default
            self._at += 1
        else:
            word.append(self._dollar(is_quoted=True))

    def _dollar(self, *, is_quoted: bool) -> WordPart:
        """A variable, or what a shell would work out, which stays as it is written."""
        text, at = self._text, self._at
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise self._open("a closing backtick", at)
            self._at = end + 1
            return WordPart(text[at : end + 1], is_quoted=is_quoted)
        if text.startswith("$(", at):
            self._at = self._closing(at + 1, "(", ")")
            return WordPart(text[at : self._at], is_quoted=is_quoted)
        if text.startswith("${", at):
            self._at = self._closing(at + 1, "{", "}")
            raw = text[at : self._at]
            array = _WHOLE_ARRAY.fullmatch(raw[2:-1])
            if array is not None:
                return WordPart(raw, array[1], None, is_quoted, is_array=True)
            found = _BRACED.fullmatch(raw[2:-1])
            return WordPart(raw, is_quoted=is_quoted) if found is None else WordPart(raw, found[1], found[2], is_quoted)
        found = _NAME.match(text, at + 1)
        if found is None:
            self._at += 1
            return WordPart("$", is_quoted=is_quoted)
        self._at = found.end()
        return WordPart(text[at : found.end()], found[0], None, is_quoted)

    def _closing(self, opened: int, opening: str, closing: str) -> int:
        """Behind the bracket that closes the one at ``opened``."""
        levels = 0
        for found in _OPENING.finditer(self._text, opened):
            if found[0] == opening:
                levels += 1
            elif found[0] == closing:
                levels -= 1
                if levels == 0:
                    return found.end()
        raise self._open(f"a closing {closing}", opened)

    def _open(self, lacking: str, at: int) -> ShellError:
        line = self._text.count("\n", 0, at) + 1
        return ShellError(f"is not a valid shell command line: no {lacking.removeprefix('a ')} (line {line})")
