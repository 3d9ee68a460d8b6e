"""ConfigMaps of Kubernetes that stand in the same file as what refers to them.

envFrom: [{configMapRef: {name: settings}}]
env: [{name: SEQS, valueFrom: {configMapKeyRef: {name: settings, key: MAX_SEQS}}}]
command: [bash, /scripts/start.sh]          where start.sh is a key of a map, which is mounted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenyard.errors import ConfigError

__all__ = ["with_config_maps"]

_DEEPEST = 60
"""Levels of a manifest that are looked into."""
_WORDS = ("command", "args")
_STARTS = "vllm"
_MOST = 20_000
"""Values of ConfigMaps, counted wherever they are written in."""
_PER_VALUE = 100
"""Characters of a script that count as one value."""

_Maps = Mapping[str, Mapping[str, str]]


def with_config_maps(documents: Sequence[Any]) -> list[Any]:
    """``documents`` with the values of their own ConfigMaps in the place of what refers to them.

    References to others stay. A name counts whatever its namespace is. Raises ConfigError for more than is read.
    """
    maps = dict(each for document in documents for each in _maps_in(document))
    return [_Writer(maps).written(document, _DEEPEST) for document in documents] if maps else list(documents)


def _maps_in(document: Any) -> Iterator[tuple[str, Mapping[str, str]]]:
    if isinstance(document, list):
        for each in document:
            if isinstance(each, Mapping):
                yield from _maps_in(each)
    elif isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items")
        yield from _maps_in(items) if isinstance(items, list) else ()
    elif isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
        metadata, data = document.get("metadata"), document.get("data")
        if isinstance(metadata, Mapping) and isinstance(data, Mapping):
            values = {str(key): each for key, each in data.items() if isinstance(each, str)}
            yield str(metadata.get("name")), values


class _Writer:
    def __init__(self, maps: _Maps) -> None:
        self._maps = maps
        self._scripts = {key: text for each in maps.values() for key, text in each.items() if _STARTS in text}
        self._left = _MOST

    def written(self, value: Any, levels: int) -> Any:
        if levels == 0:
            return value
        if isinstance(value, list):
            return [self.written(each, levels - 1) for each in value]
        if not isinstance(value, Mapping):
            return value
        written = {name: self.written(each, levels - 1) for name, each in value.items()}
        if isinstance(value.get("envFrom"), list):
            self._write_all(written)
        if isinstance(written.get("env"), list):
            written["env"] = [self._one(each) for each in written["env"]]
        if isinstance(value.get("image"), str):
            self._write_script(written)
        return written

    def _write_script(self, container: dict[str, Any]) -> None:
        """The script that a container runs, where it is a key of a map."""
        for name in _WORDS:
            words = container.get(name)
            for word in words if isinstance(words, list) else ():
                script = self._scripts.get(word.rpartition("/")[2]) if isinstance(word, str) else None
                if script is not None:
                    self._spend(1 + len(script) // _PER_VALUE)
                    container.update(command=["sh", "-c", script], args=[])
                    return

    def _write_all(self, container: dict[str, Any]) -> None:
        """The maps that ``envFrom`` names, in front of ``env``, which counts more."""
        found: list[dict[str, str]] = []
        others = []
        for source in container["envFrom"]:
            reference = source.get("configMapRef") if isinstance(source, Mapping) else None
            values = self._map(reference)
            if values is None:
                others.append(source)
                continue
            self._spend(len(values))
            prefix = str(source.get("prefix") or "")
            found += ({"name": f"{prefix}{name}", "value": each} for name, each in values.items())
        own = container.get("env")
        container["env"] = [*found, *(own if isinstance(own, list) else ())]
        container["envFrom"] = others

    def _one(self, variable: Any) -> Any:
        source = variable.get("valueFrom") if isinstance(variable, Mapping) else None
        reference = source.get("configMapKeyRef") if isinstance(source, Mapping) else None
        value = (self._map(reference) or {}).get(str(reference.get("key"))) if isinstance(reference, Mapping) else None
        if value is None:
            return variable
        self._spend(1)
        return {"name": variable.get("name"), "value": value}

    def _map(self, reference: Any) -> Mapping[str, str] | None:
        return self._maps.get(str(reference.get("name"))) if isinstance(reference, Mapping) else None

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise ConfigError("serve", "ConfigMap", f"more than {_MOST:,} of their values are referred to")
