#!/usr/bin/env python3
"""Print the page `vllm-flags.md` of the site, from the table of flags (src/tokenyard/deploy/vllm_serve)."""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.deploy.vllm_serve.flags import VERSIONS, FlagEffect, VLLMFlag, flag_table, span_of

__all__ = ["document"]

TITLES = {
    FlagEffect.USED: "Used",
    FlagEffect.NOT_MODELLED: "Not modelled",
    FlagEffect.NO_EFFECT: "Without effect on a replay",
}
HEAD = """\
# Flags of `vllm serve`

What each flag of `vllm serve --help` does to a replay. `tokenyard run`, `compare` and `split` take all of them, one by
one, in a file (`--config FILE.yaml`), or as a whole line that is pasted:

```console
$ tokenyard run log.jsonl --gpu h100 --serve "vllm serve Qwen/Qwen3-8B --max-model-len 32k --max-num-seqs 64"
```

They are read as vLLM reads them: short forms (`-tp 2`), `--no-...` and `--disable-...`, `8k` (8,000) and `8K` (8,192),
JSON and its fields one by one (`--speculative-config.method eagle3`), `_` for `-`, and the beginning of a flag where no
other flag begins so (`--max-num-seq 64`, and likewise flags of Tokenyard's own). A pasted line is taken as a shell
takes it; [manifests, units and start-up logs](deployments.md#what-starts-your-server) are read too. Flags beside the
line win over it, and it wins over the file. Keys, tokens and passwords are replaced by `***` as they are read.

A flag that is **used** sets something of the replay. One **without effect** changes neither memory, nor time, nor
decisions. One that is **not modelled** changes one of them, and the replay does not know how: it is an error that names
the flag, unless it has the value that vLLM takes anyway (`--compilation-config` with `FULL_AND_PIECEWISE`, `-O3`), or
asks for what another flag does (`cudagraph_capture_sizes` in it); with `--ignore-unmodelled` the replay goes on without
it. The report's header lists the flags of all three kinds, and `--json` has them as `header.used`,
`header.without_effect` and `header.ignored`.

Of the environment, in front of a pasted line or of this command, `VLLM_ALLOW_LONG_MAX_MODEL_LEN` is obeyed, and
`VLLM_USE_V2_MODEL_RUNNER` (0.33) and `VLLM_USE_RAY_V2_EXECUTOR_BACKEND` (before) where they decide whether steps are
scheduled ahead; the header names other variables of vLLM's as ignored.

`make differential-config` draws lines of such flags, models and GPUs, and compares what vLLM's own configuration makes
of them with what a replay takes.

The lists are recorded from vLLM {versions} by `lab/record_vllm_flags.py`; this page is made by
`scripts/generate_vllm_flags.py`, from
`src/tokenyard/deploy/vllm_serve/flags.toml`. Defaults are those of the version that
`--vllm-version` names.
"""


def document() -> str:
    """The page."""
    return "\n".join([HEAD.format(versions=f"{VERSIONS[0]} to {VERSIONS[-1]}"), *_parts()])


def _parts() -> Iterator[str]:
    recorded = [flag for flag in flag_table() if flag.versions]
    counts = {version: sum(version in flag.versions for flag in recorded) for version in VERSIONS}
    for effect, title in TITLES.items():
        flags = sorted((flag for flag in recorded if flag.effect is effect), key=lambda flag: flag.name)
        latest = sum(VERSIONS[-1] in flag.versions for flag in flags)
        yield f"## {title}\n\n{latest} of the {counts[VERSIONS[-1]]} flags of vLLM {VERSIONS[-1]}.\n"
        yield "| flag | what it does |\n| --- | --- |"
        yield from (_row(flag) for flag in flags)
        yield ""
    older = sorted((flag for flag in flag_table() if not flag.versions), key=lambda flag: flag.name)
    yield "## Of older versions\n\nThey stand in recipes still. vLLM " + VERSIONS[-1] + " refuses them.\n"
    yield "| flag | what it did | here |\n| --- | --- | --- |"
    yield from (f"| `{flag.flag}` | {flag.why} | {TITLES[flag.effect].lower()} |" for flag in older)
    yield ""


def _row(flag: VLLMFlag) -> str:
    names = ", ".join(f"`{name}`" for name in (flag.flag, *(name for name in flag.other_names if name.count("-") < 2)))
    only = "" if flag.versions == VERSIONS else f" ({span_of(flag.versions)})"
    return f"| {names} | {flag.why}{only} |"


if __name__ == "__main__":
    print(document())
