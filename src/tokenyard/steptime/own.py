"""Latency models of one's own data: a table of measured steps, a regressor, another model's terms scaled, noise.

What a step is like is said by names: the fields of :class:`StepWork` (``num_tokens``, ``num_sampled``, ``num_decodes``,
``decode_context``, ``num_prefills``, ``prefill_tokens``, ``prefill_context``, ``prefill_pairs``), and ``context``, all
tokens in the cache that its requests have. In a table ``prefill`` and ``decode`` are ``prefill_tokens`` and
``num_decodes``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from math import log
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tokenyard.arguments import is_number
from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError, near_names
from tokenyard.steptime.model import (
    LatencyModel,
    StepShape,
    StepWork,
    TermedLatency,
    Transfer,
    TransferDirection,
    host_seconds,
    require_seconds,
    step_seconds,
    transfer_seconds,
)

__all__ = ["Noisy", "Predicted", "Predicts", "ScaledTerms", "Table"]

FEATURES = (*StepWork._fields, "context")
_ALSO = {"prefill": "prefill_tokens", "decode": "num_decodes", "decodes": "num_decodes", "tokens": "num_tokens"}
_UNITS = {"seconds": 1.0, "s": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6}


class Predicts(Protocol):
    """A regressor, as scikit-learn and its like have them."""

    def predict(self, rows: Any) -> Any:
        """An answer for each row."""


def features_of(shape: StepShape, names: Sequence[str]) -> list[float]:
    """Return what a step is like, by names of :data:`FEATURES`."""
    work = shape.work()
    context = work.decode_context - work.num_decodes + work.prefill_context
    return [float(context if name == "context" else getattr(work, name)) for name in names]


def _feature(field: str, name: object) -> str:
    """The name of a feature. Raises ConfigError for one that there is not."""
    found = _ALSO.get(str(name), str(name))
    if found not in FEATURES:
        near = near_names(found, FEATURES, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(field, name, f"{meant}use some of: {', '.join(FEATURES)}")
    return found


class _Own:
    """What models of one's own data have in common."""

    def __init__(self, host: float, transfer: Transfer | None) -> None:
        require_seconds("host_seconds", host)
        self.host_seconds = host
        self._transfer = transfer or Transfer()

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self._transfer.seconds(num_bytes, direction)


class Table(_Own):
    """Steps that were measured: a step takes what those most like it took, the nearer the more it counts.

    ``path``: a CSV file with a column of times (``ms``, ``seconds`` or ``us``) and one or more that say what each step
    was like (see the module). Distances are in standard deviations of each column.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        neighbours: int = 5,
        host_seconds: float = 0.0,
        transfer: Transfer | None = None,
    ) -> None:
        """ConfigError for a file that cannot be read as that."""
        super().__init__(host_seconds, transfer)
        require_int("neighbours", neighbours, 1)
        self.path = Path(path)
        self.features, rows = _read(self.path)
        self._rows, self._seconds = rows[:, :-1], rows[:, -1]
        spread = self._rows.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._count = min(neighbours, len(rows))

    def __repr__(self) -> str:
        return f"<Table {self.path.name}: {len(self._seconds):,} steps by {', '.join(self.features)}>"

    def step_seconds(self, shape: StepShape) -> float:
        """Seconds of one step: the mean of its nearest neighbours, weighted by the inverse of their distance."""
        asked = np.array(features_of(shape, self.features))
        squares = (((self._rows - asked) / self._spread) ** 2).sum(axis=1)
        near = np.argpartition(squares, self._count - 1)[: self._count]
        weights = 1.0 / (np.sqrt(squares[near]) + 1e-6)
        return float(self._seconds[near] @ weights / weights.sum())


def _read(path: Path) -> tuple[tuple[str, ...], np.ndarray[Any, np.dtype[np.float64]]]:
    """The features of a table, and its rows with the seconds behind them."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("latency", str(path), f"cannot be read: {error}") from None
    names = list(rows[0]) if rows else []
    times = [name for name in names if name in _UNITS]
    if len(times) != 1 or len(names) < 2:
        fix = f"give a CSV with one column of times ({', '.join(_UNITS)}) and at least one of {', '.join(FEATURES)}"
        raise ConfigError("latency", str(path), fix)
    others = [name for name in names if name != times[0]]
    features = tuple(_feature("latency", name) for name in others)
    try:
        values = np.array([[float(row[name]) for name in (*others, times[0])] for row in rows])
    except (TypeError, ValueError):
        line = next(i for i, row in enumerate(rows, 2) if not all(_is_number(row[name]) for name in names))
        raise ConfigError("latency", f"{path}:{line}", "give a number in every column") from None
    if not np.isfinite(values).all() or (values[:, -1] < 0).any():
        raise ConfigError("latency", str(path), "give finite numbers, and times that are not negative")
    values[:, -1] *= _UNITS[times[0]]
    return features, values


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


class Predicted(_Own):
    """Step times of any regressor with ``predict``: a row of ``features`` in, a time out; ``unit`` says of what.

    What it says below zero counts as zero: a model of small steps may go astray there.
    """

    def __init__(
        self,
        model: Predicts,
        features: Sequence[str] = ("prefill_tokens", "num_decodes", "context"),
        *,
        unit: str = "seconds",
        host_seconds: float = 0.0,
        transfer: Transfer | None = None,
    ) -> None:
        """ConfigError for what predicts nothing, and for names that there are not."""
        super().__init__(host_seconds, transfer)
        if not callable(getattr(model, "predict", None)):
            raise ConfigError("model", model, "give an object with predict(rows), as scikit-learn has them")
        if unit not in _UNITS:
            raise ConfigError("unit", unit, f"use one of: {', '.join(_UNITS)}")
        self.features = tuple(_feature("features", name) for name in features)
        self._model, self._unit = model, _UNITS[unit]

    def __repr__(self) -> str:
        return f"<Predicted by {type(self._model).__name__} from {', '.join(self.features)}>"

    def step_seconds(self, shape: StepShape) -> float:
        """Seconds of one step."""
        (said,) = np.asarray(self._model.predict([features_of(shape, self.features)]), np.float64).ravel()
        return max(float(said) * self._unit, 0.0)


class ScaledTerms:
    """``model`` with some of the terms of its steps scaled: ``{"attention": 0.5}``.

    It takes a model that says what it spends a step on (:class:`TermedLatency`: ``calibrated`` does).
    """

    def __init__(self, model: LatencyModel, factors: Mapping[str, float]) -> None:
        """ConfigError for a model without terms, and for a term that it has not."""
        if not isinstance(model, TermedLatency):
            raise ConfigError("model", model, "give one that says its terms, as Deployment(...).resolve().latency does")
        self.model, self.factors = model, dict(factors)
        known = list(model.terms(StepWork(2, 2, 1, 1, 1, 1, 0, 1.0)))
        for name, factor in self.factors.items():
            if name not in known:
                raise ConfigError("factors", name, f"is no term of this model: use some of {', '.join(known)}")
            if not is_number(factor):
                raise ConfigError("factors", factor, f"give a number from 0 on for {name}")

    @property
    def host_seconds(self) -> float:
        return host_seconds(self.model) * self.factors.get("host", 1.0)

    def step_seconds(self, shape: StepShape) -> float:
        """Seconds of one step: the sum of its terms, each times its factor."""
        terms = self.model.terms(self.model.work_of(shape))
        return float(sum(float(value) * self.factors.get(name, 1.0) for name, value in terms.items()))

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.model, num_bytes, direction)


def _lognormal(dice: np.random.Generator, sigma: float) -> float:
    spread = log(1.0 + sigma * sigma)
    return float(dice.lognormal(-spread / 2, spread**0.5))


def _gamma(dice: np.random.Generator, sigma: float) -> float:
    return float(dice.gamma(1.0 / sigma**2, sigma**2))


def _normal(dice: np.random.Generator, sigma: float) -> float:
    return max(float(dice.normal(1.0, sigma)), 0.0)


_DISTRIBUTIONS: Mapping[str, Callable[[np.random.Generator, float], float]] = {
    "lognormal": _lognormal,
    "gamma": _gamma,
    "normal": _normal,
}


class Noisy:
    """``model`` whose steps take each a drawn multiple of their time, with mean 1 and standard deviation ``sigma``.

    ``distribution``: ``lognormal``, ``gamma``, or ``normal`` (cut off at 0). Draws are independent, step by step. A
    question draws anew for each of its seeds, so that intervals over seeds contain the machine's own.
    """

    def __init__(
        self, model: LatencyModel | str, sigma: float, *, seed: int = 0, distribution: str = "lognormal"
    ) -> None:
        """ConfigError for a spread or a distribution that cannot be."""
        if isinstance(model, str):
            fix = "give a model, not a name: Deployment(...).resolve().latency, or load_latency()"
            raise ConfigError("model", model, fix)
        if not is_number(sigma, above=True):
            raise ConfigError("sigma", sigma, "give a number above 0: 0.05 for five percent")
        if distribution not in _DISTRIBUTIONS:
            raise ConfigError("distribution", distribution, f"use one of: {', '.join(_DISTRIBUTIONS)}")
        require_int("seed", seed, 0)
        self.model, self.sigma, self.seed, self.distribution = model, float(sigma), seed, distribution
        self._dice = np.random.default_rng(seed)
        self._draw = _DISTRIBUTIONS[distribution]

    def __repr__(self) -> str:
        return f"<Noisy: {self.model!r}, {self.distribution} with {self.sigma:g}, seed {self.seed}>"

    def seeded(self, seed: int) -> Noisy:
        """Return the same with dice of its own and of ``seed``: what a replay of this seed draws."""
        drawn = int(np.random.SeedSequence([self.seed, seed]).generate_state(1)[0]) % (1 << 31)
        return Noisy(self.model, self.sigma, seed=drawn, distribution=self.distribution)

    @property
    def host_seconds(self) -> float:
        return host_seconds(self.model)

    def step_seconds(self, shape: StepShape) -> float:
        """Seconds of one step: the host's part as it is, the rest times a draw."""
        whole = step_seconds(self.model, shape)
        host = min(self.host_seconds, whole)
        return host + (whole - host) * self._draw(self._dice, self.sigma)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.model, num_bytes, direction)
