"""How many replicas there should be: Kubernetes' HorizontalPodAutoscaler, on the requests that wait.

Every ``sync`` seconds        desired = ceil(waiting requests of all replicas / target)
within ``tolerance`` of it    nothing changes
up                            at once, at most doubled or 4 more in 15 s
down                          to the most that was desired within the last ``window`` seconds

Facts of Kubernetes' documentation (Horizontal Pod Autoscaling: algorithm details, configurable scaling behavior, with
their defaults) for a metric with an average value as its target, which is how KEDA's Prometheus scaler hands it
``vllm:num_requests_waiting``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil, inf

from tokenyard.config import require_int
from tokenyard.errors import ConfigError

__all__ = ["Autoscaler", "Autoscaling"]

_MOST_REPLICAS = 1024
_MORE_PER_PERIOD = 4
_PERIOD = 15.0
"""Seconds in which replicas may double, or be so many more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """What a deployment is scaled by. Raises ConfigError."""

    least: int
    most: int
    startup: float = 120.0
    """Seconds from the decision until a new replica takes requests."""
    target: float = 5.0
    """Requests that wait, per replica."""
    sync: float = 15.0
    """Seconds between two decisions."""
    window: float = 300.0
    """Seconds that fewer replicas have to be enough, before there are fewer."""
    tolerance: float = 0.1
    """Share by which the requests that wait may be off the target without a change."""

    def __post_init__(self) -> None:
        require_int("replicas", self.least, 1, _MOST_REPLICAS)
        require_int("replicas", self.most, 1, _MOST_REPLICAS)
        if self.most < self.least:
            raise ConfigError("replicas", f"{self.least}..{self.most}", "give the fewest first, for example 1..8")
        if not 0 <= self.startup < inf:
            raise ConfigError("startup", self.startup, "give a time, not negative")
        if not 0 < self.target < inf:
            raise ConfigError("scale_target", self.target, "give a number of requests above 0")
        if not 0 < self.sync < inf or not 0 <= self.window < inf or not 0 <= self.tolerance < 1:
            raise ConfigError("sync", (self.sync, self.window, self.tolerance), "give seconds, and a share below 1")

    @property
    def is_fixed(self) -> bool:
        """There are always as many."""
        return self.least == self.most


class Autoscaler:
    """The rule, with what it remembers."""

    def __init__(self, settings: Autoscaling) -> None:
        self._settings = settings
        self._desired: deque[tuple[float, int]] = deque()
        """When so many were desired, within the window."""
        self._begun: deque[tuple[float, int]] = deque()
        """When so many were added, within the period."""

    def desired(self, now: float, waiting: int, current: int) -> int:
        """Replicas that there should be, where ``current`` are (those included that start) and ``waiting`` wait."""
        settings = self._settings
        wanted = ceil(waiting / settings.target)
        if abs(waiting / (current * settings.target) - 1) <= settings.tolerance:
            wanted = current
        wanted = min(max(wanted, settings.least), settings.most)
        self._desired.append((now, wanted))
        while self._desired[0][0] < now - settings.window:
            self._desired.popleft()
        if wanted > current:
            return self._limited(now, wanted, current)
        return min(current, max(each for _, each in self._desired))

    def _limited(self, now: float, wanted: int, current: int) -> int:
        """Not more than may be added in a period."""
        while self._begun and self._begun[0][0] <= now - _PERIOD:
            self._begun.popleft()
        before = current - sum(number for _, number in self._begun)
        most = max(2 * before, before + _MORE_PER_PERIOD)
        reached = max(min(wanted, most), current)
        if reached > current:
            self._begun.append((now, reached - current))
        return reached
