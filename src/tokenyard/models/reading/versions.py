"""Which versions of vLLM have a class for an architecture, where not all of them have.

``lab/record_architectures.py`` has read their registries. An architecture without a class may
run by the code of ``transformers``, whose memory and time are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenyard.models.recorded import recorded


def versions_with_classes() -> Mapping[str, list[str]]:
    """Architecture -> the versions that have a class for it, oldest first; none for those that all have."""
    found: dict[str, list[str]] = recorded("versions")["versions"]
    return found


def versions_looked_into() -> Sequence[str]:
    """The versions whose registries were read, oldest first."""
    found: list[str] = recorded("versions")["looked_into"]
    return found


def versions_instead(architecture: str, version: str) -> Sequence[str]:
    """The versions that have a class for an architecture, where ``version`` has none; nothing where it has, or where
    all have. A version whose registry was not read is as the newest that was.
    """
    read = versions_looked_into()
    have = versions_with_classes().get(architecture, read)
    return () if (version if version in read else read[-1]) in have else have


def versions_said(architecture: str) -> str:
    """A part of a sentence about an architecture that is not read here: which versions have a class, where some do."""
    have = versions_with_classes().get(architecture, ())
    return f" (vLLM {', '.join(have)} {'have' if len(have) > 1 else 'has'} a class for it)" if have else ""


def dropped_before() -> Mapping[str, str]:
    """The architectures that were dropped before the first version here, and the last version that had each."""
    found: dict[str, str] = recorded("versions")["gone"]
    return found
