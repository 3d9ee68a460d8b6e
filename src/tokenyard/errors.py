"""Everything Tokenyard raises on purpose.

    TokenyardError
    ├── ConfigError      a setting is wrong: names the field, the value and the fix
    │   └── UnknownArgumentError  a function takes no argument of that name (a TypeError as well)
    ├── RequestError     a request cannot be accepted: names the request, the field and the fix
    ├── WorkloadError    a workload file is wrong: names the file and the line
    ├── TraceError       a trace cannot be read
    ├── PolicyError      a policy breaks its contract: names its class, the method and what is wrong
    ├── ConnectorError   a KV connector breaks its contract: names its class, the method and what is wrong
    ├── GrammarError     a request's grammar raises, or answers what cannot be: names the request and the method
    ├── StuckError       an engine does not move any more: names the request at which it stops and the reason
    ├── LatencyError     a latency model answers with what is no duration: names its class, the step and the answer
    ├── FileError        a file cannot be opened, is no file, or holds more than may be read
    ├── ParityError      a golden vector cannot be replayed (a *difference* is a result, not an error)
    ├── NotModelledError flags would change the result, and a replay does not know how: names all of them
    ├── QueueFullError   an engine has as many requests as it may have: retry later
    ├── NestedCallError  a hook calls back into the engine that has called it: nothing is done
    ├── EngineDeadError  an engine has ended by an error, or was shut down: nothing is generated any more
    ├── NoStartError     vLLM would not start with these settings: says what keeps it from it, by field, value and fix
    ├── CannotDescribeError  vLLM cannot build a model, or a description has no piece for it
    └── MissingExtraError  an optional dependency is absent: names the extra to install

Beside them stands OverwrittenTraceWarning, which a program sees that replays.

The command line prints the message alone and exits with code 2; a traceback means a bug of ours.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

MISSING = "missing_field"
"""Code: a field of a file is not there."""
NO_START = "no_start"
"""Code: vLLM would not start with these settings."""
SERVES_NONE = "serves_none"
"""Code: none of the requests could be served."""
TOO_LONG = "too_long"
OUT_OF_VOCABULARY = "out_of_vocabulary"
"""Code: longer than ``max_model_len``, or than the memory holds."""

_MOST_SHOWN = 120
"""Characters of a value in a message."""


_MARKED = re.compile("§(§|[a-z][a-z0-9_]*)")
"""A setting in a sentence, by its name; ``§§`` is the sign itself."""


def worded(marked: str, word: Callable[[str], str] = str) -> str:
    """A sentence whose settings are marked (``raise §max_num_seqs``), with each as ``word`` calls it."""
    return _MARKED.sub(lambda found: "§" if found[1] == "§" else word(found[1]), marked) if "§" in marked else marked


def _literal(text: str) -> str:
    """Foreign text, of which nothing is a mark."""
    return text.replace("§", "§§")


class TokenyardError(Exception):
    """Base class of every error a user can cause and mend. The message is for people; programs read the attributes.

    Code that raises one marks the settings that its sentences name (``raise §max_num_seqs``): ``str`` calls them by
    their names, the command line by its flags.
    """

    marked: str = ""
    """The message with its settings marked, for hosts that call them otherwise: see ``worded``."""

    def __init__(self, message: str = "") -> None:
        super().__init__(worded(message))
        self.marked = message

    code: str = "error"
    """What is wrong, as a word that does not change: that of the class, or a more precise one."""
    field: str | None = None
    """The setting that is wrong, by its name; None where it is no single one."""
    value: object = None
    """The value of that setting."""
    fix: str | None = None
    """What to do, for people."""
    details: Mapping[str, object] = MappingProxyType({})
    """Further facts, by name: ``{"longest": 40160}`` where a shorter ``max_model_len`` would do."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[TokenyardError], args: tuple[object, ...], state: dict[str, object]) -> TokenyardError:
    """An error that came from another process, without asking its class for the words again."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def shown(value: object) -> str:
    """A value as messages show it: as Python writes it, and cut where it is long; what is cut costs nothing."""
    text = repr(_Beginning().of(value))
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


class _Words(str):
    """What stands for a value that is not written out."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Beginning:
    """Copies the beginning of a value, enough for a message: of a value of any size it costs the same."""

    def __init__(self) -> None:
        self._left = 2 * _MOST_SHOWN

    def of(self, value: object) -> object:
        if type(value) is str:
            self._left -= min(len(value), 2 * _MOST_SHOWN) + 2
            return value[: 2 * _MOST_SHOWN]
        if type(value) is list:
            return [self.of(each) for each in self._some(value)]
        if type(value) is tuple:
            return tuple(self.of(each) for each in self._some(value))
        if type(value) is dict:
            return {self.of(name): self.of(value[name]) for name in self._some(value)}
        self._left -= 1
        if type(value) is int and value.bit_length() > 4 * _MOST_SHOWN:  # Python refuses to write the longest ones
            return _Words(f"(a number of {value.bit_length()} bits)")
        return value

    def _some(self, values: Iterable[object]) -> Iterator[object]:
        for each in values:
            if self._left <= 0:
                return
            self._left -= 2
            yield each


def near_names(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """The known words that are most like one that is not known, the best first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    return get_close_matches(word, list(known), n, cutoff)


def text_of(error: BaseException) -> str:
    """What a foreign error says; its kind where it cannot say anything."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - theirs as well
        return f"<{type(error).__name__} without a text>"


def _sentence(what: str, value: object, fix: str) -> str:
    return f"{what} = {_literal(shown(value))}: {fix}"


class ConfigError(TokenyardError):
    """A configuration field holds a value that cannot work.

    ``code`` is ``config``, or says more: ``unknown_setting``, ``missing_field`` (of a model's config.json),
    ``no_start``, ``serves_none``.
    """

    code = "config"
    field: str
    fix: str

    def __init__(
        self,
        field: str,
        value: object,
        fix: str,
        *,
        code: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(_sentence(f"§{field}" if _MARKED.fullmatch(f"§{field}") else _literal(field), value, fix))
        if code is not None:
            self.code = code
        if details is not None:
            self.details = details
        self.field = field
        self.value = value
        self.fix = worded(fix)
        self.marked_fix = fix
        """``fix`` with its settings marked."""


class UnknownArgumentError(ConfigError, TypeError):
    """A function was called with a keyword argument that it does not take: a misspelt one, or one of something else.

    It is a ``TypeError`` as well, as Python's own is.
    """

    code = "unknown_argument"

    def __init__(self, called: str, field: str, value: object, fix: str) -> None:
        super().__init__(field, value, f"{called}() takes no such argument: {fix}")
        self.called = called
        """The function, by its name."""


class RequestError(TokenyardError):
    """A request is refused when it is made or added; the scheduler's state is unchanged.

    ``code`` is ``request``, or says more: ``too_long`` (for ``max_model_len``), ``out_of_vocabulary``.
    """

    code = "request"
    field: str
    fix: str

    def __init__(self, request_id: str, field: str, value: object, fix: str, *, code: str | None = None) -> None:
        super().__init__(f"request {_literal(repr(request_id))}: {_sentence(field, value, fix)}")
        if code is not None:
            self.code = code
        self.request_id = request_id
        self.field = field
        self.value = value
        self.fix = worded(fix)


class WorkloadError(TokenyardError):
    """A workload file cannot be used; ``line`` counts from 1 and is 0 when the whole file is meant."""

    code = "workload"

    def __init__(
        self,
        path: object,
        line: int,
        problem: str,
        *,
        field: str | None = None,
        value: object = None,
        fix: str | None = None,
    ) -> None:
        where = f"{path}:{line}" if line else f"{path}"
        super().__init__(f"{_literal(where)}: {problem}")
        self.path = path
        self.line = line
        self.problem = worded(problem)
        self.field, self.value = field, value
        self.fix = None if fix is None else worded(fix)


class FileError(TokenyardError):
    """A file cannot be opened, is no regular file, or holds more than may be read; names the file and the fix."""

    code = "file"

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class TraceError(TokenyardError):
    """A trace cannot be found, holds nothing that can be read, or not what was asked for."""

    code = "trace"

    def __init__(
        self, message: str = "", *, field: str | None = None, value: object = None, fix: str | None = None
    ) -> None:
        super().__init__(message)
        self.field, self.value, self.fix = field, value, fix


LOADED_FROM_FILE = "tokenyard_policy_"
"""What the name of a module begins with that was made from a user's file."""


def _file_of_class(kind: type, problem: str) -> str:
    """The file of a user's class, unless the problem names it."""
    file = str(getattr(sys.modules.get(kind.__module__), "__file__", None))
    return f" ({file})" if kind.__module__.startswith(LOADED_FROM_FILE) and file not in problem else ""


class RejectedError(RequestError):
    """A policy, or a fleet's, has rejected a request for good: it is counted among the refused, and ends nothing."""

    code = "rejected"

    def __init__(self, request_id: str, word: str, problem: str = "has rejected it: load is shed") -> None:
        super().__init__(request_id, "policy", word, problem, code=self.code)


class PolicyError(TokenyardError):
    """A policy has broken its contract, or raised: the scheduler's call ends and it is closed (docs/hooks.md)."""

    code = "policy"

    def __init__(self, policy: object, method: str, problem: str) -> None:
        name = type(policy).__name__
        super().__init__(f"policy {name}.{method} {problem}{_file_of_class(type(policy), problem)}")
        self.policy = name
        self.method = method
        self.problem = problem


class ConnectorError(TokenyardError):
    """A KV connector has broken its contract, or raised: the scheduler's call ends and it is closed (docs/hooks.md)."""

    code = "connector"

    def __init__(self, connector: object, method: str, problem: str) -> None:
        name = type(connector).__name__
        super().__init__(f"connector {name}.{method} {problem}")
        self.connector = name
        self.method = method
        self.problem = problem


class GrammarError(TokenyardError):
    """A request's grammar has raised (the error is the ``__cause__``), or has answered what cannot be.

    It is not raised: the request ends with reason ``error``, and its last output holds it; all other requests go on.
    """

    code = "grammar"

    def __init__(self, request_id: str, method: str, problem: str) -> None:
        super().__init__(f"the grammar of request {request_id!r}: {method} {problem}")
        self.request_id = request_id
        self.method = method
        self.problem = problem


class StuckError(TokenyardError):
    """An engine does not move any more: requests wait, nothing is in flight, and nothing is to come that changes it.

    Nothing has changed when it is raised. Aborting the request that it names lets the others go on; a replay,
    where no client can, ends with it.
    """

    code = "stuck"

    def __init__(self, request_id: str, reason: str, num_steps: int, num_requests: int, numbers: str = "") -> None:
        """``reason`` is what each of the ``num_steps`` last steps recorded at the request, ``num_requests`` are those
        that have not ended; ``numbers`` says what was short.
        """
        others = f", and {num_requests - 1} more wait with it" if num_requests > 1 else ""
        short = f" ({numbers})" if numbers else ""
        super().__init__(
            f"the engine is stuck at request {request_id!r}: {reason}{short} in each of the last {num_steps} steps, "
            f"nothing is in flight and nothing is to come that changes it{others}: abort the request, or, "
            f"in a replay, change what {reason} depends on: a setting, the policy, or the request itself"
        )
        self.request_id = request_id
        self.reason = reason
        self.num_steps = num_steps
        self.num_requests = num_requests


class LatencyError(TokenyardError):
    """A latency model has answered with something that is no duration; nothing is simulated with it."""

    code = "latency"
    fix: str

    def __init__(self, latency: object, method: str, value: object, asked: str, fix: str) -> None:
        name = type(latency).__name__
        super().__init__(
            f"latency model {name}.{method} = {shown(value)} for {asked}: {fix}{_file_of_class(type(latency), '')}"
        )
        self.latency = name
        self.method = method
        self.value = value
        self.asked = asked
        self.fix = fix


class ParityError(TokenyardError):
    """A golden vector is damaged or was not written by a recorder we know."""

    code = "parity"


class NotModelledError(TokenyardError):
    """Flags that change memory, time or decisions, and that a replay does not model."""

    code = "not_modelled"

    def __init__(self, flags: Sequence[tuple[str, str]]) -> None:
        named = "; ".join(f"{flag} ({why})" for flag, why in flags)
        them = "it" if len(flags) == 1 else "them"
        are = "is" if len(flags) == 1 else "are"
        super().__init__(
            f"{named}: {are} not modelled: leave {them} out, or --ignore-unmodelled goes on without {them}"
        )
        self.flags = tuple(flag for flag, _ in flags)
        self.field, self.value = "flags", self.flags
        self.fix = f"leave {them} out, or go on without {them} by ignore_unmodelled=True"


class NoStartError(TokenyardError):
    """With these settings vLLM ends before it serves a request."""

    code = NO_START
    field: str
    fix: str

    def __init__(
        self,
        reason: str,
        field: str,
        value: object,
        fix: str | None = None,
        *,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """``reason`` is a whole sentence. What stands behind its last colon is the ``fix``, unless it is told apart,
        where that would not be clear alone (``raise the one or lower the other``).
        """
        super().__init__(f"vLLM would not start: {reason}")
        self.reason = worded(reason)
        self.marked_reason = reason
        """``reason`` with its settings marked."""
        self.marked_fix = reason.rpartition(": ")[2] if fix is None else fix
        """``fix`` with its settings marked."""
        self.field, self.value, self.fix = field, value, worded(self.marked_fix)
        if details is not None:
            self.details = details


class QueueFullError(TokenyardError):
    """An engine has as many unfinished requests as it may have; nothing was queued."""

    code = "queue_full"

    def __init__(self, num_unfinished: int, most: int, num_asked: int = 1) -> None:
        more = f", and {num_asked} more do not fit" if num_asked > 1 else ""
        super().__init__(f"{num_unfinished} requests have not ended, of at most {most}{more}: retry later")
        self.num_unfinished = num_unfinished
        self.most = most


class NestedCallError(TokenyardError):
    """A hook has called back into the engine or scheduler that is in the middle of a call; nothing was done.

    A hook: a policy, connector, grammar, observer, clock or executor. Also raised for a call in a second thread.
    """

    code = "nested_call"

    def __init__(self, owner: object, method: str, outer: str, hook: str | None) -> None:
        """``outer`` is the method under way, ``hook`` the function that it had called; None: in another thread."""
        name = type(owner).__name__
        where = "in another thread" if hook is None else f"in a hook, {hook},"
        super().__init__(
            f"{name}.{method}() was called {where} while {name}.{outer}() was under way, whose work is half done: "
            f"use EngineCore.submit() and submit_abort(), which are done before the next step, "
            f"or call it when {outer}() has returned"
        )
        self.method = method
        self.outer = outer
        self.hook = hook


class EngineDeadError(TokenyardError):
    """An engine has ended by an error, which is its ``__cause__``, or was shut down; or a call was broken off."""

    code = "engine_dead"

    def __init__(self, why: str) -> None:
        super().__init__(f"the engine has ended: {why}")
        self.why = why


class CannotDescribeError(TokenyardError):
    """There is no vLLM, it cannot build the model, or a description has no piece for what the model is made of."""

    code = "cannot_describe"


class OverwrittenTraceWarning(UserWarning):
    """A replay is about to write its trace where another one is. As an error (``warnings``) it keeps that."""


class MissingExtraError(TokenyardError):
    """An optional dependency that is needed is not installed."""

    code = "missing_extra"

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: run  pip install 'tokenyard[{extra}]'")
        self.package = package
        self.extra = extra
        self.fix = f"run  pip install 'tokenyard[{extra}]'"
