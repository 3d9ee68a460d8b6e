"""One random scenario through a pair."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

from lockstep.compare import Difference, DiffersError
from lockstep.pair import EndedWaitsError, NeverServedError, Pair, WaitsForEverError
from recorder import drive
from recorder.host import Host, SchedulerArguments, build_host, model_runner, scheduler_arguments
from recorder.plan import Engine, Plan, Scenario
from tokenyard.errors import ConfigError
from tokenyard.vllm.fast.scheduler import FastScheduler
from tokenyard.vllm.fast.settings import EncoderRoom

__all__ = ["Outcome", "run_plan"]

_MAX_TICKS = 1_000
"""A scenario that takes longer is stuck: the recorder waits five times as long."""


class Outcome(NamedTuple):
    """How a scenario went: exactly one of the three is there, or none if both agreed to its end."""

    steps: int
    """Calls of ``schedule()`` that were compared."""
    difference: Difference | None = None
    refused: str | None = None
    """Why FastScheduler does not serve this configuration, or one of the requests."""
    gave_up: str | None = None
    """What vLLM's own scheduler raised, or how it got stuck."""


def _ours(engine: Engine, arguments: SchedulerArguments) -> FastScheduler:
    room = EncoderRoom(engine.max_num_encoder_input_tokens or 0, engine.encoder_cache_size or 0)

    class WithEncoder(FastScheduler):
        """vLLM derives the room from a multi-modal model, which this one is not."""

        @staticmethod
        def encoder_room(vllm_config: Any, mm_registry: Any) -> EncoderRoom:
            return room

    with model_runner(second=False):  # vLLM's is told so as well: 0.27 and 0.28 take the second for context parallelism
        return WithEncoder(**arguments._asdict())


def run_plan(scenario: Scenario, plan: Plan) -> Outcome:
    """Drive both schedulers through ``plan``, which is used up."""
    try:
        arguments = scheduler_arguments(scenario.engine)
        host = build_host(scenario.engine, arguments=arguments)
    except Exception as error:  # noqa: BLE001 - vLLM does not start with it
        return Outcome(0, gave_up=f"{type(error).__name__}: {error}")
    if scenario.engine.encoder_decoder:
        return Outcome(0, refused="an encoder-decoder model")
    try:
        ours = _ours(scenario.engine, arguments)
    except ConfigError as refused:
        return Outcome(0, refused=str(refused))
    host.scheduler = pair = Pair(host.scheduler, ours, scenario.seed)
    return _driven(host, pair, plan, scenario)


def _driven(host: Host, pair: Pair, plan: Plan, scenario: Scenario) -> Outcome:
    """How the tick loop ends."""
    try:
        drive.MAX_TICKS = _MAX_TICKS
        drive.Recording(host, plan, scenario).run()
    except NeverServedError as refused:
        return Outcome(pair.steps, refused=f"a request that can never be served: {refused}")
    except WaitsForEverError:
        return Outcome(pair.steps, gave_up="nothing runs and waiting sessions hold the blocks: vLLM goes in circles")
    except EndedWaitsError:
        return Outcome(pair.steps, gave_up="a request that has ended stays in a queue of vLLM's, which fails at it")
    except DiffersError as differs:
        return Outcome(pair.steps, difference=differs.difference)
    except Exception as error:  # noqa: BLE001 - whose it is, the traceback says
        last = traceback.extract_tb(error.__traceback__)
        what = f"{type(error).__name__}: {error}"
        if any("tokenyard" in frame.filename and "/vllm/" in frame.filename for frame in last):
            return Outcome(pair.steps, difference=Difference("ours raised", None, what + "\n" + traceback.format_exc()))
        return Outcome(pair.steps, gave_up=what)
    return Outcome(pair.steps)
