"""What may be shown: text of strangers made printable, and secrets replaced as they are read."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from tokenyard.patterns import lazy_pattern

# ---------------------------------------------------------------------------------------------------------------------
# Keys, tokens and passwords in what people paste: each is replaced where it is read, so that nothing later holds it.
#
# What is secret is known by the name of a setting (``--api-key``, ``HF_TOKEN``, ``{"password": ...}``) and, where
# there is no name, by what such a value looks like. A name that only resembles one loses its value too: a report can
# do without.

HIDDEN = "***"
"""Stands in the place of a value."""

_PART = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WITHIN = ("secret", "passw", "passphrase", "credential", "apikey", "bearer", "cookie", "keyfile", "keystore", "keytab")
_WHOLE = frozenset(
    ("auth", "authorization", "cert", "certs", "dsn", "jwt", "licence", "license", "pem", "pwd", "ssl", "tls")
)
_LAST = ("key", "keys", "token")
_LAST_WHOLE = frozenset(("ak", "pass", "pw", "sas", "sig", "signature", "sk"))
"""Words that mark a secret as a name's last part: ``REDIS_PASS``, ``?sig=``, an access key's ``sk``; not
``pass_config``.
"""
_PAIRS = frozenset(
    (first, second)
    for firsts, seconds in (
        (("access", "account", "api", "auth", "client", "encryption", "private", "signing"), ("key", "keys", "token")),
        (("key", "token"), ("base64", "data", "file", "id", "path", "pem")),
    )
    for first in firsts
    for second in seconds
) - {("token", "id")}
"""Parts of a name that follow each other; ``eos_token_id`` is a number of the vocabulary."""
_NAME = lazy_pattern(r"(?<![\w.-])[A-Za-z_-][\w.-]*|(?<!\w)[\u2010-\u2015]+[A-Za-z][\w.-]*")
"""A word processor makes one dash of two."""
_QUOTES_VALUE = lazy_pattern(
    r"""(?:\\*["']?\s*[=:]\s*|["']?\s+)(?:Bearer\s+|Basic\s+)?("(?:[^"\\]|\\.)*"?|'[^']*'?|\[[^\]]*\]?|[^\s,;}\]]+)"""
)
_HEADER = lazy_pattern(r"(?i)((?:proxy-)?authorization\\*[\"']?\s*[:=]\s*\\*[\"']?(?:Bearer |Basic )?)[^\"'\n,;}\\]+")
"""A header's value may be several words: ``Authorization: Digest username ...``."""
_RUN = lazy_pattern(r"[^\s'\"]+")
_LOOKS_SECRET = lazy_pattern(
    r"\b(?:sk|pk|rk)-(?:[\w-]{20,}|(?=[\w-]*\d)[\w-]{10,})|\b[srp]k_(?:live|test)_\w{8,}|\bhf_[A-Za-z0-9]{16,}|\bgh[oprsu]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bnvapi-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{10,}\.[\w-]+(?:\.[\w-]*)?"
    r"|(?<=\bBearer )[^\s'\"]+|(?<=\bBasic )[^\s'\"]+"
)
_USER = lazy_pattern(r"(?<![\w./:@+-])[\w.+-]+:(?!//)[^\s'\"@]+@(?!sha\d+:)(?=[\w.\[-])")
"""``name:password@`` in front of a host without a scheme: of a registry, of a proxy. An image's digest is none."""
_OPAQUE = lazy_pattern(r"(?=\S*[a-z])(?=\S*[A-Z])(?=\S*\d)[\w+/=.-]{24,}|[A-Za-z0-9]{32,}")
"""Looks as if a machine had drawn it."""
_ASSIGNED = lazy_pattern(r"(?<![\w.-])([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s\"']+)")
_OF_VLLM = ("VLLM_", "CUDA_", "NCCL_", "TORCH", "PYTORCH_")
"""Beginnings of variables that may change how vLLM runs; what others are set to is not read."""
_NAMES = ("name", "key", "header", "variable")
"""Fields that name what stands beside them."""
_PAIR = ("name", "value")
_MOST_LEVELS = 100
"""Levels of a value that are looked into."""


def is_secret_name(name: str) -> bool:
    """Whether a setting, flag or variable of this name may hold a secret: ``--api-key``, ``HF_TOKEN``, ``sslCert``.

    Not so ``max_num_batched_tokens``, ``long-prefill-token-threshold``, ``num_key_value_heads`` or ``eos_token_id``.
    """
    parts = [part.lower() for part in _PART.findall(name[:200])]
    if not parts:
        return False
    return (
        any(part in _WHOLE or any(word in part for word in _WITHIN) for part in parts)
        or parts[-1].endswith(_LAST)
        or parts[-1] in _LAST_WHOLE
        or any(pair in _PAIRS for pair in pairwise(parts))
    )


def hidden(name: str, value: Any) -> Any:
    """The ``value`` of a setting called ``name``, with every secret in it replaced; lists and mappings are walked."""
    return _hidden(name, value, _MOST_LEVELS)


def _hidden(name: str, value: Any, levels: int) -> Any:
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return value
    if levels == 0:
        return HIDDEN
    if is_secret_name(name) or (isinstance(value, str) and name.lower().endswith("tokens") and not value.isdecimal()):
        return [HIDDEN] if isinstance(value, list | tuple) else HIDDEN
    if isinstance(value, Mapping):
        return _hidden_fields(value, levels)
    if isinstance(value, list | tuple):
        return _hidden_list(value, levels)
    return _hidden_json(value, levels) if isinstance(value, str) else value


def _hidden_fields(value: Mapping[Any, Any], levels: int) -> dict[Any, Any]:
    """A mapping without secrets. A field may be named by another: {name: HF_TOKEN, value: ...}, {Key:, Val:}."""
    values = {key for key in value if str(key).lower().startswith("val")}
    names = {key for key, each in value.items() if values and str(key).lower() in _NAMES and isinstance(each, str)}
    named = next((value[key] for key in value if key in names and is_secret_name(value[key])), "")
    kept: dict[Any, Any] = {}
    for key, each in value.items():
        shown = hidden_text(key) if isinstance(key, str) else key
        if named and key in names:
            kept[shown] = hidden_text(each)
        else:
            kept[shown] = _hidden(named if named and key in values else str(key), each, levels - 1)
    return kept


def _hidden_list(values: Sequence[Any], levels: int) -> list[Any]:
    """Words of a command, a name and its value, or anything else."""
    if len(values) == len(_PAIR) and isinstance(values[0], str) and is_secret_name(values[0]):
        return [hidden_text(values[0]), _hidden(values[0], values[1], levels - 1)]
    kept: list[Any] = []
    for before, each in zip((None, *values), values, strict=False):
        name, equals, given = before.partition("=") if isinstance(before, str) else ("", "", "")
        is_value = name.startswith("-") and not (equals and given) and is_secret_name(name)
        is_value = is_value and not (isinstance(each, str) and each.startswith("-"))
        kept.append(_hidden(str(before) if is_value else "", each, levels - 1))
    return kept


def _hidden_json(text: str, levels: int) -> str:
    """A text, which may be JSON, which may hold texts that are JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return hidden_text(text)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return hidden_text(text)
    kept = _hidden("", said, levels - 1)
    return text if kept == said else json.dumps(kept)


def hidden_text(text: str) -> str:
    """``text`` with secrets replaced: behind their names, in front of the host of a URL, and by what they look like."""
    text = _HEADER.sub(lambda found: f"{found[1]}{HIDDEN}", text)
    parts: list[str] = []
    at = 0
    for found in _NAME.finditer(text):
        if found.start() < at or not is_secret_name(found[0]):
            continue
        value = _QUOTES_VALUE.match(text, found.end())
        if value is None or (text[found.end()].isspace() and (found[0][0].isalnum() or found[0][0] == "_")):
            continue
        parts += [text[at : value.start(1)], HIDDEN]
        at = value.end(1)
    return hidden_users("".join((*parts, text[at:])))


def hidden_users(text: str) -> str:
    """``text`` without names and passwords in front of hosts, and without what looks like a secret.

    For messages, which name settings that are no secrets: names of settings decide nothing.
    """
    if "@" in text:
        if "://" in text:
            text = _RUN.sub(lambda found: _without_user(found[0]), text)
        text = _USER.sub(f"{HIDDEN}@", text)
    return _LOOKS_SECRET.sub(HIDDEN, text)


def hidden_identity(name: str, value: str, *, is_person: bool) -> str:
    """What the column ``name`` of a log identifies a person or a thing by; a digest where that may be a key.

    Equal keys have equal digests, so that requests of one user or session still belong together. Of a person
    (``is_person``) whatever a machine may have drawn is one; requests and sessions are named like that anyway.
    """
    is_key = is_secret_name(name) and not name.lower().endswith(("_id", "_alias", "-id", ".id"))
    if is_key or hidden_text(value) != value or (is_person and _OPAQUE.fullmatch(value)):
        return f"key-{blake2b(value.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"
    return value


def _without_user(run: str) -> str:
    """A URL without the name and the password in front of its host."""
    begin, end = run.find("://") + len("://"), run.rfind("@")
    user = run[begin:end]
    is_user = begin >= len("://") and end > begin and (":" in user or "/" not in user)
    return f"{run[:begin]}{HIDDEN}{run[end:]}" if is_user else run


def hidden_beginning(text: str) -> str:
    """The beginning of a ``text`` that cannot be taken apart, for a message: no secret, and no value of a variable.

    It ends with the first name that may be followed by a secret, since it is not known where that one would end.
    """
    text = text[:1000]
    for found in _NAME.finditer(text):
        if is_secret_name(found[0]) and text[found.end() :].strip():
            text = f"{text[: found.end()]} {HIDDEN}"
            break
    return _ASSIGNED.sub(lambda match: f"{match[1]}={HIDDEN}", hidden_text(text))


def hidden_words(words: Sequence[str], known: Container[str] | None = None) -> list[str]:
    """Words of a command line, with the values of secret flags replaced; of any that are not among the ``known`` ones.

    A flag that is mistyped may have been a secret one.
    """
    kept: list[str] = []
    follows = False
    for word in words:
        name, _, value = word.partition("=")
        is_flag = name.startswith("-")
        hides = is_secret_name(name) or (known is not None and is_flag and name not in known)
        if not is_flag and follows:
            kept.append(HIDDEN)
            continue
        kept.append(f"{name}={HIDDEN}" if hides and value else hidden_text(word))
        follows = is_flag and hides and not value
    return kept


def hidden_setting(value: str) -> str:
    """The text of a setting, which may be JSON, with every secret in it replaced."""
    return _hidden_json(value, _MOST_LEVELS)


def hidden_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables by name; values are kept of those alone that may change how vLLM runs and are no secret."""
    return {
        name: str(hidden(name, value)) if name.startswith(_OF_VLLM) else HIDDEN for name, value in environment.items()
    }


# ---------------------------------------------------------------------------------------------------------------------
# Foreign text as it can be shown and written: ids, file names and query results may hold anything.


def plain(text: str) -> str:
    """``text`` with a mark in the place of every character that steers a terminal or turns the line around."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def plain_lines(text: str) -> str:
    """``text`` of several lines, made printable as :func:`plain` does; line feeds stay."""
    return "\n".join(map(plain, text.split("\n")))


def valid_text(text: str) -> str:
    """``text`` as UTF-8 can hold it: a lone surrogate, as of a file name that is no UTF-8, becomes '?'."""
    return text.encode("utf-8", "replace").decode()


def with_valid_text(value: Any) -> Any:
    """``value``, of lists and dictionaries, with every text in it made valid."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {with_valid_text(key): with_valid_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_valid_text(item) for item in value]
    return value
