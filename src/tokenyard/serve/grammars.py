"""Grammars for structured output, tried in a process of its own and compiled on a thread while their requests wait."""

from __future__ import annotations

import json as json_text
import queue
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from time import thread_time
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError, FileError, MissingExtraError, text_of
from tokenyard.serve.form_work import check_form, is_long
from tokenyard.serve.front import MAX_GRAMMAR_BYTES
from tokenyard.trace.columnar.child import ChildProcess, OutOfMemoryError, OutOfTimeError, keep_memory_within

# ---------------------------------------------------------------------------------------------------------------------
# A few threads that work is submitted to, and that no process waits for when it ends.

_Result = TypeVar("_Result")


class DaemonPool:
    """Like ``ThreadPoolExecutor``, whose threads Python joins at the end, however long their work takes."""

    def __init__(self, num_threads: int, name: str) -> None:
        """Threads start with the first work."""
        self._num_threads, self._name = num_threads, name
        self._waiting = queue.SimpleQueue[Callable[[], None] | None]()
        self.threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._num_running = 0

    @property
    def is_busy(self) -> bool:
        """Work has begun that has not ended. A process must not end by itself then: Python may crash, see os._exit."""
        return self._num_running > 0

    def submit(self, work: Callable[[], _Result]) -> Future[_Result]:
        """The future of ``work``'s result; cancelling it drops work that has not begun."""
        future = Future[_Result]()

        def do() -> None:
            if self._is_over:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised again where the result is requested
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._waiting.put(do)
            if len(self.threads) < self._num_threads:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self.threads.append(thread)
                thread.start()
        return future

    def shutdown(self) -> None:
        """Drop what has not begun; what has begun is not waited for."""
        self._is_over = True
        with self._lock:
            for _ in self.threads:
                self._waiting.put(None)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            with self._lock:
                self._num_running += 1
            work()
            with self._lock:
                self._num_running -= 1


class Watch:
    """Calls that may never come back, one after the other: each on a thread that is given up then, with what it does.

    llguidance goes round for ever in some grammars whose terminals overlap (``T "a"`` with ``T: /a*/``), and holds no
    lock of Python's meanwhile.
    """

    def __init__(self) -> None:
        self._thread = DaemonPool(1, "mask")
        self.num_lost = 0
        """Threads that were given up: each keeps a processor busy as long as this process lives."""

    def call(self, work: Callable[[], _Result]) -> _Result:
        """Return what ``work`` does. Raises TimeoutError where it takes longer than :data:`ANSWER_SECONDS`."""
        future = self._thread.submit(work)
        try:
            return future.result(ANSWER_SECONDS)
        except TimeoutError:
            self.num_lost += 1
            self.shutdown()
            self._thread = DaemonPool(1, "mask")
            raise

    def shutdown(self) -> None:
        """End the thread, when it is done."""
        self._thread.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# Grammars for structured output, by llguidance: compiled on a thread while their requests wait.
#
# compiler = GrammarCompiler(folder, vocab_size, eos_token_ids) Request(...,
# structured_output=compiler.compile(json={"type": "object", ...}))

_THREADS = 2
_TRIED = 16
"""First tokens, about, that a grammar is tried with when it is compiled."""
MASK_SECONDS = 2.0
"""Seconds of a processor that the masks of one answer may take; long forms that are in use take hundredths in all."""
MASK_SECONDS_PER_TOKEN = 0.01
"""Beside that."""
ANSWER_SECONDS = 5.0
"""Seconds after which a mask of a grammar that a client wrote (Lark) is not waited for any longer."""
MOST_LOST = 4
"""Masks that never came, after which such grammars are refused."""
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_EVERYTHING = -1
"""A word of a bitmask with every bit set."""


class Grammar:
    """A request's grammar, ready or being compiled: what :class:`~tokenyard.core.MaskedOutput` describes.

    One that cannot be compiled bars nothing and accepts no token, so that its request ends with reason ``error``;
    :meth:`check` says so before.
    """

    def __init__(
        self, compiled: Future[Any], num_words: int, eos_token_ids: frozenset[int], watch: Watch | None = None
    ) -> None:
        self._compiled, self._num_words = compiled, num_words
        self._ends, self._watch = eos_token_ids, watch
        self._is_lost = False
        self._own: Any = None
        self._seconds, self._num_masks = 0.0, 0
        self.problem: str | None = None
        """Why it could not go on, where it reached a limit of its library's, or took too long; None: it has not."""

    def another(self) -> Grammar:
        """The same one for another request, at its beginning: it is compiled once for all of them."""
        return Grammar(self._compiled, self._num_words, self._ends, self._watch)

    @property
    def is_ready(self) -> bool:
        """Whether it has been compiled, or cannot be."""
        return self._compiled.done()

    def check(self) -> None:
        """Wait until it is compiled. ConfigError if it cannot be."""
        self._compiled.result()

    @property
    def compiled(self) -> Future[Any]:
        """What :meth:`check` waits for; cancelling it drops a grammar whose turn to be compiled has not come."""
        return self._compiled

    @property
    def _matcher(self) -> Any:
        """None if it cannot be compiled, was dropped, or did not come back."""
        if self._is_lost:
            return None
        if self._own is None and not self._compiled.cancelled() and self._compiled.exception() is None:
            self._own = self._compiled.result().deep_copy()
        return self._own

    def _asked(self, work: Callable[[Any], _Result], otherwise: _Result) -> _Result:
        """What ``work`` finds with the matcher; ``otherwise`` without one, or where it does not come back."""
        matcher = self._matcher
        if matcher is None:
            return otherwise

        def timed() -> _Result:
            begun = thread_time()
            found = work(matcher)
            self._note_problem(matcher, begun)
            return found

        if self._watch is None:
            return timed()
        try:
            return self._watch.call(timed)
        except TimeoutError:
            self._is_lost, self.problem = True, f"it took longer than {ANSWER_SECONDS:g} s for a token"
            return otherwise

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if the grammar does not allow them."""

        def accept(matcher: Any) -> bool:
            rest = tokens[matcher.try_consume_tokens(list(tokens)) :]
            # Where nothing more can follow, its text is complete before the token that says so.
            return not rest or (bool(matcher.is_stopped()) and self._ends.issuperset(rest))

        return self._asked(accept, otherwise=False) and self.problem is None

    def _note_problem(self, matcher: Any, begun: float) -> None:
        """A lexer or parser that has grown too large says so only while tokens are sampled by it.

        One that is ambiguous takes longer with each token, and all other requests wait for it.
        """
        self._seconds += thread_time() - begun
        if self.problem is not None:
            return
        if matcher.is_error():
            self.problem = str(matcher.get_error()).splitlines()[0]
        elif self._seconds > MASK_SECONDS + MASK_SECONDS_PER_TOKEN * self._num_masks:
            self.problem = f"it took {self._seconds:.1f} s of a processor for {self._num_masks} tokens"

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading tokens that the grammar allows, without advancing."""
        return list(tokens[: self._asked(lambda matcher: int(matcher.validate_tokens(list(tokens))), 0)])

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        """Tokens allowed next, and after each of ``drafts``, shape ``[1 + len(drafts), words]``."""
        everything = np.full((1 + len(drafts), self._num_words), _EVERYTHING, np.int32)
        return self._asked(lambda matcher: self._masks(matcher, everything.copy(), drafts), everything)

    def _masks(self, matcher: Any, masks: npt.NDArray[np.int32], drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        advanced = 0
        for i, draft in enumerate((*drafts, _EVERYTHING)):
            found = np.frombuffer(matcher.compute_bitmask(), np.int32)
            self._num_masks += 1
            masks[i] = 0
            masks[i, : len(found)] = found[: self._num_words]
            if draft < 0 or not matcher.try_consume_tokens([draft]):
                break
            advanced += 1
        if not matcher.is_error():
            matcher.rollback(advanced)
        return masks


class GrammarCompiler:
    """Compiles grammars over one tokenizer."""

    def __init__(
        self,
        tokenizer: Path | str,
        vocab_size: int,
        eos_token_ids: Sequence[int],
        *,
        max_grammar_bytes: int = MAX_GRAMMAR_BYTES,
    ) -> None:
        """``tokenizer`` is a ``tokenizer.json`` or the folder with one; ``vocab_size`` counts the model's logits.

        A schema (as JSON), regular expression, list of choices or Lark text may have ``max_grammar_bytes``.

        Raises MissingExtraError without llguidance, ConfigError without an end-of-sequence token, FileError for a
        tokenizer that cannot be read.
        """
        try:
            import llguidance  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("llguidance", "torch") from None
        self._library = llguidance
        if not eos_token_ids:
            raise ConfigError("eos_token_id", None, "grammars end with a token: name it in generation_config.json")
        file = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
        try:
            text = file.read_text(encoding="utf-8")
            self._tokenizer = _tokenizer(self._library, text, vocab_size, eos_token_ids)
        except (OSError, ValueError) as error:
            raise FileError(file, f"holds no tokenizer that grammars can use: {text_of(error)}") from None
        self._num_words = -(-vocab_size // 32)
        self._ends = frozenset(eos_token_ids)
        self._max_bytes = max_grammar_bytes
        self._trial = _Trial(str(file), vocab_size, tuple(eos_token_ids))
        self.threads = DaemonPool(_THREADS, "grammar")
        self._watch = Watch()

    def compile(
        self,
        *,
        json: Mapping[str, Any] | str | None = None,
        regex: str | None = None,
        choice: Sequence[str] | None = None,
        grammar: str | None = None,
        json_object: bool = False,
    ) -> Grammar:
        """A grammar by vLLM's names: a JSON schema, a regular expression, one of some texts, Lark, or any JSON object.

        Returns at once. ConfigError unless one of them is given, and for one that asks too much; a long one is looked
        at later (:meth:`Grammar.check`).
        """
        given: dict[str, Any] = {
            "json": json,
            "regex": regex,
            "choice": choice,
            "grammar": grammar,
            "json_object": json_object or None,
        }
        wanted = {name: value for name, value in given.items() if value is not None}
        if len(wanted) != 1:
            raise ConfigError("structured_outputs", sorted(wanted), f"give one of: {', '.join(given)}")
        ((kind, value),) = wanted.items()
        if kind == "grammar" and self._watch.num_lost >= MOST_LOST:
            fix = "grammars are not taken any more: some never came to an end. Give a schema or an expression"
            raise ConfigError("structured_outputs.grammar", value, fix)
        in_thread = is_long(value)
        if not in_thread:
            check_form(kind, value, self._max_bytes)

        def made() -> Any:
            if in_thread:
                check_form(kind, value, self._max_bytes)
            self._trial.check(kind, value)
            return self.compile_one(kind, value)

        watch = self._watch if kind == "grammar" else None
        return Grammar(self.threads.submit(made), self._num_words, self._ends, watch)

    def for_answers(self, most_tokens: int) -> GrammarCompiler:
        """Itself: a grammar is as large however long its answer may be."""
        return self

    def compile_one(self, kind: str, value: Any) -> Any:
        make = self._library.LLMatcher
        try:
            if kind == "regex":
                source = make.grammar_from_regex(value)
            elif kind == "choice":
                source = make.grammar_from_lark("start: " + " | ".join(map(json_text.dumps, value)))
            elif kind == "grammar":
                source = make.grammar_from_lark(value)
            else:
                schema = _ANY_OBJECT if kind == "json_object" else value
                source = make.grammar_from_json_schema(schema if isinstance(schema, str) else json_text.dumps(schema))
            matcher = make(self._tokenizer, source, log_level=0)
            problem = _problem(matcher)
        except (TypeError, ValueError) as error:
            problem, matcher = text_of(error), None
        if problem:
            raise ConfigError(f"structured_outputs.{kind}", value, f"cannot be compiled: {problem.splitlines()[0]}")
        return matcher

    @property
    def is_busy(self) -> bool:
        """Something is being compiled, or never came back."""
        return self.threads.is_busy or self._watch.num_lost > 0

    def shutdown(self) -> None:
        """Compile nothing more; what is being compiled is not waited for."""
        self.threads.shutdown()
        self._watch.shutdown()
        self._trial.close()


def _tokenizer(library: Any, text: str, vocab_size: int, eos_token_ids: Sequence[int]) -> Any:
    """The library's own; before 1.7 it knows one token that ends an answer."""
    try:
        return library.LLTokenizer(text, n_vocab=vocab_size, eos_token=list(eos_token_ids))
    except TypeError:
        return library.LLTokenizer(text, n_vocab=vocab_size, eos_token=eos_token_ids[0])


# ---------------------------------------------------------------------------------------------------------------------
# A process that compiles each grammar first: one that takes gigabytes or minutes of it, or ends it, is refused, and
# this process never sees it. It is started with the first grammar, and again after each that has ended it.


TRIAL_SECONDS = 10.0
TRIAL_MEGABYTES = 512
_SECONDS_TO_LOAD = 120.0
"""For the library and the tokenizer."""


class _Trial:
    """Processes that try grammars, one for each thread that asks."""

    def __init__(self, *model: Any) -> None:
        """``model``: what a compiler is made of: tokenizer, vocabulary, end-of-sequence tokens."""
        self._model = model
        self._idle = queue.SimpleQueue[ChildProcess]()
        self._end = weakref.finalize(self, _close_all, self._idle)

    def check(self, kind: str, value: Any) -> None:
        """Raise ConfigError for what cannot be compiled there."""
        field = f"structured_outputs.{kind}"
        try:
            child = self._idle.get_nowait()
        except queue.Empty:
            child = ChildProcess()
        try:
            child.ask(_load_compiler, self._model, seconds=_SECONDS_TO_LOAD)
            problem = child.ask(compiles, self._model, kind, value, TRIAL_MEGABYTES, seconds=TRIAL_SECONDS)
        except BaseException as error:
            child.close()
            if isinstance(error, OutOfTimeError):
                raise ConfigError(field, value, f"cannot be compiled within {TRIAL_SECONDS:g} seconds") from None
            if isinstance(error, OutOfMemoryError):
                raise ConfigError(field, value, f"cannot be compiled within {TRIAL_MEGABYTES} MiB") from None
            raise
        self._idle.put(child)
        if not self._end.alive:
            _close_all(self._idle)
        if problem is not None:
            raise ConfigError(field, value, problem)

    def close(self) -> None:
        """End those that are idle; one that compiles ends with its work."""
        self._end()


def _close_all(idle: queue.SimpleQueue[ChildProcess]) -> None:
    with suppress(queue.Empty):
        while True:
            idle.get_nowait().close()


_COMPILERS: dict[tuple[Any, ...], GrammarCompiler] = {}
"""Compilers, by what they are made of."""


def _load_compiler(model: tuple[Any, ...]) -> None:
    if model not in _COMPILERS:
        _COMPILERS[model] = GrammarCompiler(*model)


def compiles(model: tuple[Any, ...], kind: str, value: Any, megabytes: int) -> str | None:
    """Called in the process that tries: why a grammar cannot be compiled; None: it can."""
    keep_memory_within(megabytes)
    try:
        matcher = _COMPILERS[model].compile_one(kind, value)
    except ConfigError as error:
        return error.fix
    return _problem_further_on(matcher) if kind == "grammar" else None


def _problem(matcher: Any) -> str | None:
    """Why it cannot be used, at its beginning or after a first token: some are found to be too large only then.

    Looking for the tokens that may come first is the long part; the matcher keeps them. Of those some are tried: a
    grammar that is too large after others only is found out while tokens are sampled (:attr:`Grammar.problem`).
    """
    if not matcher.is_error():
        for token in _some_first_tokens(matcher):
            one_on = matcher.deep_copy()
            one_on.try_consume_tokens([token])
            if one_on.is_error():
                return str(one_on.get_error())
    return str(matcher.get_error()) if matcher.is_error() else None


def _some_first_tokens(matcher: Any) -> list[int]:
    allowed = np.flatnonzero(np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little"))
    tokens: list[int] = allowed[:: max(1, len(allowed) // _TRIED)].tolist()
    return [] if matcher.is_error() else tokens


def _problem_further_on(matcher: Any) -> str | None:
    """Why it cannot be used once a token has come several times, where terminals overlap. It may not come back."""
    for token in _some_first_tokens(matcher):
        further = matcher.deep_copy()
        for _ in range(_TRIED):
            if not further.try_consume_tokens([token]):
                break
            further.compute_bitmask()
            if further.is_error():
                return str(further.get_error())
    return None
