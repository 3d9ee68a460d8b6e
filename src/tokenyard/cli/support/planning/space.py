"""What a plan may choose from: as asked, or what people change first."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tokenyard.cli.support.flags import Plan
from tokenyard.cli.support.planning.asked import Subject
from tokenyard.cli.support.planning.settings import changed, is_load
from tokenyard.cli.support.planning.sides import check_split, read_shapes
from tokenyard.cli.support.planning.subjects import WorkloadSubject
from tokenyard.errors import ConfigError
from tokenyard.sim.sweep.row import Setting
from tokenyard.sim.sweep.variants import Grid, read_grid

__all__ = ["COSTLY", "space_of", "with_one_gpu"]

DEFAULT = (
    "max_num_seqs=64,128,256,512",
    "max_num_batched_tokens=2048,4096,8192,16384",
    "long_prefill_token_threshold=0,1024",
)
"""32 variants."""
COSTLY = frozenset(("gpu", "split", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "replicas"))
"""Settings by which variants cost more or less."""


def with_one_gpu(flags: Plan) -> tuple[Plan, tuple[str, ...]]:
    """The flags with the first of several GPUs, and all of them."""
    gpus = tuple(name.strip() for name in flags.hardware.gpu.split(","))
    if not all(gpus):
        raise ConfigError("gpu", flags.hardware.gpu, "give names with commas between them, for example h100,h200")
    return replace(flags, hardware=replace(flags.hardware, gpu=gpus[0])), gpus


def space_of(flags: Plan, gpus: tuple[str, ...], subject: Subject) -> Grid:
    """The settings to choose from, and their values. Raises ConfigError."""
    texts = [text for texts in flags.space for text in texts]
    grid = read_grid(texts or DEFAULT, partial(subject.convert, flag="--set"), "--set")
    dimensions: list[tuple[str, tuple[Setting, ...]]] = list(grid.dimensions)
    shapes = read_shapes(text for texts in flags.split for text in texts)
    if shapes:
        if any(name == "split" for name, _ in dimensions):
            raise ConfigError("--set", "split", "--split names some as well: give one of them")
        subject.convert("split", shapes[0], "--split")
        dimensions.insert(0, ("split", shapes))
    if len(gpus) > 1:
        if any(name == "gpu" for name, _ in dimensions):
            raise ConfigError("--set", "gpu", "--gpu names several as well: give one of them")
        dimensions.insert(0, ("gpu", tuple(dict.fromkeys(gpus))))
    for name, values in dimensions:
        if is_load(name):
            fix = "another workload is no choice of a server's: give it as a flag, or vary it with tokenyard sweep"
            raise ConfigError("--set", name, fix)
        for value in values:
            subject.convert(name, value, "--set")
            if name == "split" and value is not None and isinstance(subject, WorkloadSubject):
                run = changed(subject.run, {name: value})
                check_split(run, run.apart)
    return Grid(dimensions)
