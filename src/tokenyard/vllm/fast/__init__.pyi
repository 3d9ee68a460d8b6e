# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.vllm.fast.scheduler import AsyncFastScheduler as AsyncFastScheduler, FastScheduler as FastScheduler
