# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.vllm.emulated.executor import EmulatedExecutor as EmulatedExecutor
from tokenyard.vllm.fast import FastScheduler as FastScheduler, AsyncFastScheduler as AsyncFastScheduler
from tokenyard.vllm.continuum import (
    ContinuumScheduler as ContinuumScheduler,
    AsyncContinuumScheduler as AsyncContinuumScheduler,
)
from tokenyard.vllm.tracing.schedulers import (
    TracingScheduler as TracingScheduler,
    AsyncTracingScheduler as AsyncTracingScheduler,
)
