"""Objects in the place of what a deployment names: policy, router, latency model, order of eviction, connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tokenyard.arguments import is_number
from tokenyard.core.params import has_member
from tokenyard.core.sched.policy import Policy
from tokenyard.errors import ConfigError
from tokenyard.patterns import lazy_pattern
from tokenyard.policies.eviction import EvictionChoice
from tokenyard.policies.named import made_by, policy_label
from tokenyard.sim.choices import ConnectorChoice, PolicyChoice, RouterChoice, policy_maker_of, policy_name, router_of
from tokenyard.sim.fleet import FleetEvent, FleetPolicy, check_events
from tokenyard.sim.routers import Router
from tokenyard.steptime.model import LatencyModel
from tokenyard.trace.config import TraceConfig

if TYPE_CHECKING:
    from tokenyard.deploy.spec import ReplaySpec

_NO_NAME = lazy_pattern(r"[^A-Za-z0-9.+-]+")
_MOST_LETTERS = 100


def latency_of(choice: object) -> LatencyModel:
    """Return the latency model that an object is, or that a class makes. ConfigError for anything else."""
    made = made_by(choice, "latency", choice.__name__) if isinstance(choice, type) else choice
    if not has_member(made, "step_seconds"):
        raise ConfigError("latency", choice, "give a name, FILE.py:NAME, or an object or a class with step_seconds()")
    return made  # type: ignore[return-value]  # it has the method


class Chosen(msgspec.Struct, frozen=True):
    """What decides and moves in the place of what the deployment names."""

    policy: PolicyChoice | None = None
    router: RouterChoice | None = None
    kv_transfer: ConnectorChoice | None = None
    eviction: EvictionChoice | None = None
    latency: LatencyModel | None = None
    fleet: FleetPolicy | type[FleetPolicy] | None = None
    events: Sequence[FleetEvent] = ()
    beside: Sequence[ReplaySpec] = ()
    kv_link_gb_per_s: float | None = None

    @classmethod
    def of(cls, objects: Mapping[str, Any]) -> Chosen:
        """Return what the objects of a deployment choose; its latency model is settled with it."""
        return cls(objects.get("scheduling_policy"), objects.get("router"), None, objects.get("eviction"))

    def on(self, spec: ReplaySpec) -> ReplaySpec:
        """The same replay with it. Raises ConfigError."""
        policy, router = self.policy, self.router
        spec = self._with_fleet(spec)
        if policy is not None:
            if isinstance(policy, Policy) and spec.num_engines > 1:
                raise ConfigError("policy", policy, "several engines need one each: give the class, or what makes one")
            start = msgspec.structs.replace(spec.start, policy=policy_name(policy))
            spec = replace(spec, policy=policy_maker_of(policy), start=start, trace=_named(spec.trace, policy))
        if router is not None:
            if not isinstance(router, Router) and not callable(router):
                router_of(router, spec.replays(skip_refused=False).fleet)
            spec = replace(spec, router=partial(router_of, router))
        if self.eviction is not None:
            spec = replace(spec, eviction=self.eviction)
        if self.latency is not None:
            spec = replace(spec, latency=latency_of(self.latency))
        return spec if self.kv_transfer is None else replace(spec, connector=self.kv_transfer)

    def _with_fleet(self, spec: ReplaySpec) -> ReplaySpec:
        """The same replay with further engines, what decides over all of them, and what happens to them."""
        if self.beside:
            if spec.autoscaling is not None and not spec.autoscaling.is_fixed:
                fix = "beside others a deployment has a fixed number of replicas: give replicas, or leave them out"
                raise ConfigError("autoscale", f"{spec.autoscaling.least}..{spec.autoscaling.most}", fix)
            own = replace(spec, autoscaling=None)
            spec = replace(own, beside=(*[own] * (spec.num_engines - own.num_engines), *self.beside))
        if self.fleet is None and not self.events:
            return spec
        link = self.kv_link_gb_per_s
        if link is not None and not is_number(link, above=True):
            raise ConfigError("kv_link_gb_per_s", link, "give a number above 0, or None: KV moves in no time")
        events = check_events(self.events, spec.num_engines)
        return replace(spec, fleet_policy=self.fleet, events=events, kv_link_gb_per_s=link)


def _named(trace: TraceConfig, policy: PolicyChoice) -> TraceConfig:
    """The trace, called as what decides is called, unless the environment gives it a name."""
    if TraceConfig.from_env().policy != TraceConfig().policy:
        return trace
    name = _NO_NAME.sub("_", policy_label(policy) if isinstance(policy, str) else policy_name(policy)).strip("_.+-")
    return replace(trace, policy=name[:_MOST_LETTERS] or trace.policy)
