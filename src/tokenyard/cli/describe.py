"""``tokenyard describe``: a description of a model by vLLM's own classes, which ``--model`` takes."""

from __future__ import annotations

import msgspec

from tokenyard.cli.support.console import errors, print_json, results
from tokenyard.cli.support.flags.known import DescribeCommand
from tokenyard.errors import ConfigError
from tokenyard.models.described import model_in_words
from tokenyard.models.named import config_called


def execute(flags: DescribeCommand) -> int:
    """Describe the model and write the file: 0 if vLLM's planner says the same of it, 1 if something differs."""
    if not flags.json and flags.output.exists() and not flags.overwrite:
        raise ConfigError("output", str(flags.output), "exists already: name another file, or give --overwrite")
    found = config_called(flags.model)
    name, raw = found.name, found.raw
    from tokenyard.vllm.describing import described_by_vllm  # noqa: PLC0415 - nothing here needs a vLLM but this

    description = described_by_vllm(raw, name=name, gpu=flags.gpu, dtype=flags.dtype)
    words = model_in_words(description.model)
    if flags.json:
        print_json(words | {"differences": list(description.differences)})
        return int(bool(description.differences))
    flags.output.write_bytes(msgspec.json.format(msgspec.json.encode(words), indent=1))
    model = description.model
    parameters = f"{model.num_parameters / 1e9:,.2f} billion parameters"
    results().print(f"{name}: {model.num_layers} layers, {parameters}, {model.notes[0]}", markup=False)
    for difference in description.differences:
        errors().print(f"tokenyard: warning: {difference}", markup=False, soft_wrap=True)
    results().print(
        f"Written to {flags.output}: tokenyard run chat --model {flags.output}", soft_wrap=True, markup=False
    )
    return int(bool(description.differences))
