"""A scheduler as an environment of Gymnasium: an agent bounds every step, and sees what comes of it.

    env = SchedulingEnv(workload, deployment)
    observation, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

A step of the environment is a step of the scheduler. The action is what a policy may say with ``StepBounds``: how many
requests run, how many tokens of prompts are computed, and whether those that decode are held. The replay runs in a
thread of its own and stands still while the agent decides: an episode of the same workload and actions is the same.
So a copy (``copy.deepcopy(env)``) is another replay that has taken the same actions: a tree of them can be searched.

Once this module is imported ``gymnasium.make("tokenyard/Scheduling-v0", workload=..., deployment=...)`` makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.config import MAX_COUNT
from tokenyard.core.sched.candidate import StepBounds
from tokenyard.core.sched.observer import SchedulerState
from tokenyard.core.sched.policy import Policy
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.policies.baselines import decodes
from tokenyard.questions.run import RunResult, run
from tokenyard.workload.record import Workload

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:  # pragma: no cover - the tests have it
    raise MissingExtraError("gymnasium", "gym") from None

Observation = npt.NDArray[np.float32]
OBSERVED = ("running", "decoding", "waiting", "free_blocks", "longest_wait_s", "step_s")
"""What an observation holds, in this order: requests, requests, requests, a share of the blocks, seconds, seconds."""
_MOST = 1e6
"""More requests or seconds than that are shown as that."""
_SHARES = np.linspace(0.0, 1.0, 5)
"""Tokens of the step that prompts may have."""


class AgentView:
    """The state of the scheduler before a step is decided, as the agent sees it."""

    __slots__ = ("now", "observation", "state", "step_s", "waited_s")

    def __init__(self, state: SchedulerState, now: float, last: float) -> None:
        self.state = state
        """The scheduler's state before the step: it is read by ``observe`` alone, and later shows another moment."""
        self.now = now
        self.step_s = now - last
        """Seconds since the last step was decided."""
        num = len(state.running) + len(state.waiting) + len(state.skipped_waiting)
        self.waited_s = num * self.step_s
        """Request-seconds spent since the last step, by all requests that run or wait."""
        self.observation: Observation = np.zeros(0, np.float32)


Observe = Callable[[AgentView], Observation]
"""Makes the observation of a step."""
Reward = Callable[[AgentView], float]


def less_time(seen: AgentView) -> float:
    """Minus the request-seconds of a step: their sum over an episode is minus the sum of all end-to-end latencies."""
    return -seen.waited_s


_NOT_COPIED = ("_seen", "_decisions", "_thread", "_taken")


class _Ended(BaseException):
    """The episode is over before its workload is."""


class _Decision(msgspec.Struct, frozen=True):
    """What the agent says of a step."""

    seats: int
    prefill_tokens: int
    holds_decodes: bool
    """Whether requests that decode wait while a prompt is computed."""


class _Asks(Policy):
    """Hands the state to the agent, and waits for what it says."""

    reads_tokens = False

    def __init__(
        self,
        seen: SimpleQueue[AgentView | RunResult | BaseException],
        decisions: SimpleQueue[_Decision | None],
        observe: Observe,
    ) -> None:
        self._seen, self._decisions, self._observe = seen, decisions, observe
        self._last = 0.0

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        view = AgentView(self.context.state, now, self._last)
        view.observation = np.asarray(self._observe(view), np.float32)
        self._seen.put(view)
        self._last = now
        decision = self._decisions.get()
        if decision is None:
            raise _Ended
        running = self.context.state.running
        decoding = frozenset(each.request_id for each in running if decision.holds_decodes and decodes(each))
        return StepBounds(
            seats=decision.seats,
            prefill_tokens=decision.prefill_tokens,
            holds=decoding if len(decoding) < len(running) else (),
            detail="agent",
        )


def six_numbers(view: AgentView) -> Observation:
    """Return the numbers that :data:`OBSERVED` names."""
    state, now = view.state, view.now
    running, waiting = state.running, [*state.waiting, *state.skipped_waiting]
    longest = max((now - each.arrival_time for each in waiting), default=0.0)
    numbers = (
        len(running),
        sum(map(decodes, running)),
        len(waiting),
        state.num_free_blocks / state.num_total_blocks,
        longest,
        view.step_s,
    )
    return np.minimum(np.array(numbers, np.float32), np.float32(_MOST))


class SchedulingEnv(gymnasium.Env[Observation, npt.NDArray[np.int64]]):  # type: ignore[misc, unused-ignore]
    """One engine under a workload.

    ``workload``: as for :func:`tokenyard.run`, or a function that makes one of a seed. The action is
    ``[seats, prompts, hold]``: 0 to ``max_num_seqs - 1`` for 1 to ``max_num_seqs`` seats, 0 to 4 quarters of a step's
    tokens for prompts, and 1 to hold those that decode while a prompt is computed. An episode ends with its workload.
    ``observe`` makes observations of a view, within ``observation_space``; both are given, or neither. ``reward`` is of
    the same view.
    Raises ConfigError for what cannot be replayed, MissingExtraError without Gymnasium.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        workload: str | Workload | Callable[[int], Workload],
        deployment: Deployment,
        *,
        observe: Observe | None = None,
        observation_space: spaces.Box | None = None,
        reward: Reward = less_time,
        **arrivals: Any,
    ) -> None:
        if (observe is None) is not (observation_space is None):
            fix = "give observe and observation_space together: what is seen, and within which bounds"
            raise ConfigError("observe", observe, fix)
        self._observe = observe or six_numbers
        self._workload, self._deployment, self._reward, self._arrivals = workload, deployment, reward, arrivals
        limits = deployment.resolve().scheduler
        self._tokens = limits.max_num_batched_tokens
        seats = limits.max_num_seqs
        most = np.array((seats, seats, _MOST, 1.0, _MOST, _MOST), np.float32)
        space: Any = observation_space or spaces.Box(np.zeros_like(most), most)
        self.observation_space = space
        self._choices = [seats, len(_SHARES), 2]
        self.action_space = spaces.MultiDiscrete(self._choices)
        self._seen: SimpleQueue[AgentView | RunResult | BaseException] = SimpleQueue()
        self._decisions: SimpleQueue[_Decision | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._episode: tuple[Any, dict[str, Any]] | None = None
        """The workload of the episode, and how it arrives."""
        self._taken: list[tuple[int, ...]] = []
        """Actions of the episode so far."""

    def __deepcopy__(self, memo: dict[int, Any]) -> SchedulingEnv:
        """Return an environment of its own at the same place: it has replayed the same actions."""
        copy = object.__new__(type(self))
        own = {name: value for name, value in vars(self).items() if name not in _NOT_COPIED}
        vars(copy).update(own)
        if self._np_random is not None:
            copy._np_random = deepcopy(self._np_random, memo)
        copy._seen, copy._decisions, copy._thread = SimpleQueue(), SimpleQueue(), None
        copy._taken = []
        if self._thread is not None and self._episode is not None:
            copy._begin(*self._episode)
            for action in self._taken:
                copy.step(np.array(action))
        return copy

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; ``seed`` is the workload's.

        Without one it is drawn, as Gymnasium wants it: the episodes after a reset with a seed are others, and are the
        same in every run.
        """
        super().reset(seed=seed)
        self.close()
        drawn = int(self.np_random.integers(MAX_COUNT)) if seed is None else seed
        workload, arrivals = self._workload, self._arrivals
        if callable(workload):
            workload = workload(drawn)
        elif isinstance(workload, str) and (seed is not None or "seed" not in arrivals):
            arrivals = arrivals | {"seed": drawn}
        return self._begin(workload, arrivals)

    def _begin(self, workload: Any, arrivals: dict[str, Any]) -> tuple[Observation, dict[str, Any]]:
        self._seen, self._decisions = SimpleQueue(), SimpleQueue()
        self._episode, self._taken = (workload, arrivals), []
        self._thread = Thread(target=self._replay, args=(workload, arrivals, self._seen, self._decisions), daemon=True)
        self._thread.start()
        first = self._seen.get()
        if not isinstance(first, AgentView):
            self._thread = None
            raise ConfigError("workload", workload, "it has no request") if isinstance(first, RunResult) else first
        return first.observation, {"now": first.now}

    def _replay(self, workload: Any, arrivals: dict[str, Any], seen: Any, decisions: Any) -> None:
        try:
            seen.put(run(workload, self._deployment, policy=lambda: _Asks(seen, decisions, self._observe), **arrivals))
        except _Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised again where the agent is
            seen.put(error)

    def step(self, action: npt.NDArray[np.int64]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Decide a step; the last observation of an episode is of zeros, and ``info["run"]`` is its RunResult."""
        if self._thread is None:
            raise ConfigError("action", action, "there is no episode: call reset() first")
        if not self.action_space.contains(np.asarray(action)):
            raise ConfigError("action", action, f"give [seats, prompts, hold] below {self._choices}")
        seats, prompts, hold = (int(each) for each in action)
        tokens = max(int(_SHARES[prompts] * self._tokens), 1)
        self._taken.append((seats, prompts, hold))
        self._decisions.put(_Decision(seats + 1, tokens, bool(hold)))
        after = self._seen.get()
        if isinstance(after, BaseException):
            self._thread = None
            raise after
        if isinstance(after, RunResult):
            self._thread = None
            nothing = np.zeros(self.observation_space.shape or (0,), np.float32)
            return nothing, 0.0, True, False, {"run": after}
        return after.observation, float(self._reward(after)), False, False, {"now": after.now}

    def close(self) -> None:
        """End the episode that is under way."""
        if self._thread is not None:
            self._decisions.put(None)
            self._thread.join()
            self._thread = None


gymnasium.register(id="tokenyard/Scheduling-v0", entry_point="tokenyard.gym:SchedulingEnv")
