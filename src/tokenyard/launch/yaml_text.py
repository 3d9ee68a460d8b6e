"""YAML that somebody else wrote: its documents, never more of them than the text is long."""

from __future__ import annotations

from typing import Any

__all__ = ["MOST_CHARACTERS", "YAMLError", "yaml_documents"]

MOST_CHARACTERS = 1 << 18
"""Of a manifest, or of a file of flags."""

_DEEPEST = 100
"""Brackets within brackets."""


class YAMLError(ValueError):
    """A text is no YAML, or asks for more than its length."""


def yaml_documents(text: str) -> list[Any]:
    """The documents of ``text``. Raises YAMLError, which quotes nothing of it: nobody knows what is secret there.

    An alias is refused: a few of them, one in the other, make a text of gigabytes.
    """
    if len(text) > MOST_CHARACTERS:
        problem = (
            f"has {len(text):,} characters, and no more than {MOST_CHARACTERS:,} are read: give the one that is meant"
        )
        raise YAMLError(problem)
    import yaml  # noqa: PLC0415 - takes time that a plain line need not spend

    class Loader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, *arguments: Any) -> None:
            if self.flow_level >= _DEEPEST:
                raise YAMLError(f"is not YAML that can be read: it is nested deeper than {_DEEPEST} levels")
            super().fetch_flow_collection_start(*arguments)

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types
                line = event.start_mark.line + 1
                raise YAMLError(f"has an alias (*name, line {line}): write the value in its place")
            return super().compose_node(parent, index)

    try:
        return list(yaml.load_all(text, Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise YAMLError(f"is not YAML: {_plain(error.problem)}{where}") from None
    except YAMLError:
        raise
    except RecursionError:
        raise YAMLError("is not YAML that can be read: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise YAMLError(f"is not YAML: a value is not what it is said to be ({type(error).__name__})") from None


def _plain(problem: str | None) -> str:
    """What is wrong, without names of anchors and tags that stand in the text."""
    said = (problem or "it cannot be read").split("'")[0].strip()
    return said if len(said) > len("found") else "a character or a tag is out of place"
