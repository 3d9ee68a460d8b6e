"""What a replay is given, checked: workload, configuration, and policy, router, observer or connector by name, class,
object or factory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from tokenyard.arguments import given_kind
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.params import has_member
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.core.sched.policy import Policy
from tokenyard.errors import ConfigError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.summary import AfterWarmup
from tokenyard.policies.named import PolicyMaker, made_by, policy_maker
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim.named_routers import router_maker
from tokenyard.sim.routers import Fleet, Router
from tokenyard.sim.transfers import SimulatedConnector
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.pace import VirtualClock
from tokenyard.trace.start import describe_run
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# The four things that every replay is given, looked at before anything is made of them.

_ORDER = "a replay takes workload, config, cache_config, latency, in this order"


def check_arguments(workload: object, config: object, cache_config: object, latency: object) -> None:
    """Raise ConfigError for arguments that are something else, or in another order."""
    if not isinstance(workload, Workload):
        fix = f"give a Workload: load_workload() makes one of a name or a file, WorkloadBuilder in Python; {_ORDER}"
        raise ConfigError("workload", workload, fix)
    for field, value, kind in (
        ("config", config, SchedulerConfig),
        ("cache_config", cache_config, CacheConfig),
    ):
        if not isinstance(value, kind):
            raise ConfigError(field, value, f"give a {kind.__name__}: {_ORDER}")
    if isinstance(latency, type) or not has_member(latency, "step_seconds"):
        fix = (
            "give a latency model, an object with step_seconds(): load_latency() makes one of a name (docs/latency.md)"
        )
        raise ConfigError("latency", latency, fix)


def check_kinds(**given: tuple[object, type]) -> None:
    """Raise ConfigError for what is neither None nor of the class beside it, in the name of the argument."""
    for field, (value, kind) in given.items():
        if value is not None:
            given_kind(field, value, kind, f"give a {kind.__name__}, or leave it out")


# ---------------------------------------------------------------------------------------------------------------------
# What a replay is given to decide and to watch, in every form that it may have: one rule for all replays.
#
#               a name                  a class             an object             a function
#     policy    registered, FILE.py:C   one per engine      for one engine        makes one per engine
#     router    shipped, FILE.py:C      one                 for one replay        makes one, with or without the Fleet
#     observer                          one per engine      watches every engine  makes one per engine
#     connector                         made by its make()  KVTransfer            makes a SimulatedConnector
#
# Whatever is none of these is a ConfigError that says what would be.


class MakesConnector(Protocol):
    """What ``kv_transfer`` is: :class:`KVTransfer`, or one of your own."""

    def make(self, cache: CacheConfig, clock: VirtualClock, latency: LatencyModel) -> SimulatedConnector:
        """The connector of one engine, and what moves its blocks on the clock."""


PolicyChoice: TypeAlias = str | Policy | Callable[[], Policy]
"""A name, ``FILE.py:CLASS``, a class, an object for one engine, or a function that makes one."""
RouterChoice: TypeAlias = str | Router | Callable[[Fleet], Router] | Callable[[], Router]
"""A name, ``FILE.py:CLASS``, a class, an object for one replay, or a function that makes one."""
ObserverChoice: TypeAlias = StepObserver | ReportBuilder | Callable[[], StepObserver]
"""An object, a class, a function that makes one, or a ``ReportBuilder``."""
ConnectorChoice: TypeAlias = (
    MakesConnector | type[MakesConnector] | Callable[[CacheConfig, VirtualClock, LatencyModel], SimulatedConnector]
)
"""A ``KVTransfer``, an object or class with its ``make``, or a function with the arguments of ``make``."""


# ---- policies


def policy_maker_of(choice: PolicyChoice) -> PolicyMaker:
    """Makes the policy of each engine."""
    if isinstance(choice, str):
        return policy_maker(choice)
    if isinstance(choice, Policy):
        return _Once(choice)
    if not callable(choice) or (isinstance(choice, type) and not issubclass(choice, Policy)):
        fix = "give a name, a class derived from tokenyard.Policy, an object of one, or a function that makes one"
        raise ConfigError("policy", choice, fix)
    return partial(_made_policy, choice)


def _made_policy(make: Callable[[], Policy]) -> Policy:
    made = made_by(make, "policy", _name_of(make) or repr(make))
    if not isinstance(made, Policy):
        raise ConfigError("policy", made, f"{_name_of(make)} has to make an object of a class derived from Policy")
    return made


class _Once:
    """Returns an object to the one engine that it can serve."""

    def __init__(self, policy: Policy) -> None:
        self._left: list[Policy] = [policy]
        self._name = type(policy).__name__

    def __call__(self) -> Policy:
        if not self._left:
            fix = "an object serves one engine: give the class, a function that makes one, or a name"
            raise ConfigError("policy", self._name, fix)
        return self._left.pop()


def policy_choices(policies: Sequence[PolicyChoice] | Mapping[str, PolicyChoice]) -> dict[str, PolicyMaker]:
    """Makers of policies that are compared, by what they are called."""
    makers: dict[str, PolicyMaker] = {}
    for label, choice in policy_labels(policies).items():
        if isinstance(choice, Policy):
            raise ConfigError("policies", label, "an object serves one replay: give the class, or a function")
        makers[label] = policy_maker(choice, "policies") if isinstance(choice, str) else _any(choice)
    return makers


def policy_labels(policies: Sequence[PolicyChoice] | Mapping[str, PolicyChoice]) -> dict[str, PolicyChoice]:
    """Policies by what they are called: names and classes by themselves, the others by a mapping."""
    if isinstance(policies, str) or not isinstance(policies, Mapping | Sequence):
        fix = 'give several, ["fcfs", MyPolicy], or a dictionary of what each is called'
        raise ConfigError("policies", policies, fix)
    if isinstance(policies, Mapping):
        named: list[tuple[str, PolicyChoice]] = list(policies.items())
    else:
        named = [(_label(each), each) for each in policies]
    labels = [label for label, _ in named]
    if not labels or len(set(labels)) < len(labels):
        raise ConfigError("policies", ",".join(labels), "name at least one, and none twice")
    return dict(named)


def _any(choice: PolicyChoice) -> PolicyMaker:
    maker = policy_maker_of(choice)
    maker()
    return maker


def _label(choice: PolicyChoice) -> str:
    name = choice if isinstance(choice, str) else _name_of(choice)
    if name is None:
        fix = 'it has no name of its own: give a dictionary, {"what it is called": the policy}'
        raise ConfigError("policies", choice, fix)
    return name


def policy_name(choice: PolicyChoice) -> str:
    """What to call a policy in a report."""
    return choice if isinstance(choice, str) else _name_of(choice) or "a function"


def _name_of(make: object) -> str | None:
    """What a class or a function is called; None for one without a name."""
    if isinstance(make, partial):
        inner = _name_of(make.func)
        said = [*map(repr, make.args), *(f"{name}={value!r}" for name, value in make.keywords.items())]
        return None if inner is None else f"{inner}({', '.join(said)})"
    if isinstance(make, Policy):
        return type(make).__name__
    name = getattr(make, "__name__", "<")
    return None if name.startswith("<") else name


# ---- routers


def router_of(choice: RouterChoice, fleet: Fleet) -> Router:
    """The router of one replay of the fleet."""
    if isinstance(choice, str):
        return router_maker(choice)(fleet)
    if isinstance(choice, Router):
        return choice
    if not callable(choice) or (isinstance(choice, type) and not issubclass(choice, Router)):
        fix = "give a name, a class derived from tokenyard.sim.Router, an object of one, or a function that makes one"
        raise ConfigError("router", choice, fix)
    make: Callable[..., Any] = choice
    call = partial(make, fleet) if _takes_one(make) else make
    made = made_by(call, "router", getattr(make, "__name__", repr(make)))
    if not isinstance(made, Router):
        raise ConfigError("router", made, "the function has to make an object of a class derived from Router")
    return made


def _takes_one(make: Callable[..., Any]) -> bool:
    """Whether it has to be called with an argument: the fleet."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


# ---- latency models


def latency_of(choice: object) -> LatencyModel:
    """Return the latency model that an object is, or that a class makes. ConfigError for anything else."""
    made = made_by(choice, "latency", choice.__name__) if isinstance(choice, type) else choice
    if not has_member(made, "step_seconds"):
        raise ConfigError("latency", choice, "give a name, FILE.py:NAME, or an object or a class with step_seconds()")
    return made  # type: ignore[return-value]  # it has the method


# ---- observers


def observer_of(
    choice: ObserverChoice | Sequence[ObserverChoice] | None,
    config: SchedulerConfig,
    cache: CacheConfig,
    *,
    engines: int = 1,
    warmup: float = 0.0,
) -> StepObserver | None:
    """The observer of one of so many engines; several are one. Reports leave out the first ``warmup`` seconds."""
    if choice is None:
        return None
    choices: Sequence[ObserverChoice]
    choices = choice if isinstance(choice, list | tuple) else [cast("ObserverChoice", choice)]

    def recorder(builder: ReportBuilder) -> StepObserver:
        sink = AfterWarmup(builder, warmup) if warmup else builder
        return TraceRecorder(None, sink, start=describe_run(config, cache, host="replay"))

    return together([_observer(each, recorder, engines) for each in choices])


def named_observers(
    choice: ObserverChoice | Sequence[ObserverChoice] | Mapping[str, ObserverChoice] | None,
) -> tuple[ObserverChoice | Sequence[ObserverChoice] | None, dict[str, object]]:
    """Return the observers, those that were given by name made, and these by their names."""
    if not isinstance(choice, Mapping):
        return choice, {}
    made: dict[str, Any] = {}
    for name, each in choice.items():
        is_one = isinstance(each, StepObserver | ReportBuilder) or not callable(each)
        made[name] = each if is_one else made_by(cast("Callable[[], StepObserver]", each), "observer", name)
    return list(made.values()), made


def together(observers: Sequence[StepObserver | None]) -> StepObserver | None:
    """The observers that there are, as one; None: there is none."""
    there = [each for each in observers if each is not None]
    return there[0] if len(there) == 1 else Observers(*there) if there else None


def _observer(choice: ObserverChoice, recorder: Callable[[ReportBuilder], StepObserver], engines: int) -> StepObserver:
    made: object = choice
    if callable(choice) and not isinstance(choice, StepObserver | ReportBuilder):
        made = made_by(choice, "observer", getattr(choice, "__name__", repr(choice)))
    if isinstance(made, StepObserver):
        return made
    if isinstance(made, ReportBuilder):
        if engines > 1 and made is choice:
            fix = "a report of several engines is joined of one for each: replay with rows=True, and ask for its report"
            raise ConfigError("observer", "ReportBuilder", fix)
        return recorder(made)
    fix = "give an object or a class derived from tokenyard.StepObserver, a ReportBuilder, or a list of them"
    raise ConfigError("observer", choice, fix)


# ---- connectors


def connector_of(choice: ConnectorChoice | None) -> MakesConnector | None:
    """What makes the connector of each engine; None: there is none."""
    if choice is None:
        return None
    if isinstance(choice, type) and callable(getattr(choice, "make", None)):
        return cast("MakesConnector", made_by(choice, "kv_transfer", choice.__name__))
    if callable(getattr(choice, "make", None)):
        return cast("MakesConnector", choice)
    if callable(choice) and not isinstance(choice, type):
        return _MadeBy(choice)
    fix = (
        "give KVTransfer(config=KVTransferConfig(...), bytes_per_block=...), an object with its make(), or a function "
        "that makes a SimulatedConnector of a cache, a clock and a latency model; a name alone does not say its size"
    )
    raise ConfigError("kv_transfer", choice, fix)


class _MadeBy:
    def __init__(self, make: Callable[[CacheConfig, VirtualClock, LatencyModel], SimulatedConnector]) -> None:
        self._make = make

    def make(self, cache: CacheConfig, clock: VirtualClock, latency: LatencyModel) -> SimulatedConnector:
        return self._make(cache, clock, latency)
