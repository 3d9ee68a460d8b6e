"""Print the page `models.md` of the site: every decoder of vLLM's registry, and the proof of what is modelled."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from tests.support.planner_answers import differences, is_proof, model_of, num_built, recorded  # noqa: E402 - needs the path

from planner.items import prompts  # noqa: E402
from planner.largest import compared  # noqa: E402 - of scripts
from planner.limited import compared as sized  # noqa: E402
from planner.limited import compared_videos as shown  # noqa: E402
from tokenyard.errors import ConfigError  # noqa: E402
from tokenyard.models.images.largest import LARGEST, heeds_sizes  # noqa: E402
from tokenyard.models.images.rules import ImageRule  # noqa: E402
from tokenyard.models.images.table import image_rule  # noqa: E402
from tokenyard.models.images.videos import KNOWN, video_rule  # noqa: E402
from tokenyard.models.inputs import known_items, sharing_architectures  # noqa: E402
from tokenyard.models.layers import LayerSpec, MoE  # noqa: E402
from tokenyard.models.mixers import (  # noqa: E402
    Attends,
    CompressedAttention,
    Indexer,
    LatentAttention,
    Mixer,
    PagedConvolution,
    SoftmaxAttention,
    StateSpace,
)
from tokenyard.models.named import MODELS  # noqa: E402
from tokenyard.models.reading.read import (  # noqa: E402
    dropped_before,
    versions_looked_into,
    versions_with_classes,
)
from tokenyard.models.reading.row import ArchitectureRow  # noqa: E402
from tokenyard.models.reading.table import ROWS  # noqa: E402
from tokenyard.models.spec import ModelSpec  # noqa: E402

RECORDED = REPO / "tests" / "unit" / "models" / "registry.json.gz"
DRAFTS = RECORDED.with_name("drafts.json.gz")
PUBLIC = RECORDED.with_name("public_configs.json")
IMAGES = RECORDED.with_name("image_tokens.json.gz")
VIDEOS = RECORDED.with_name("largest_videos.json.gz")
LIMITED = RECORDED.with_name("limited_items.json.gz")
ITEMS = RECORDED.with_name("items.json.gz")
_TEXT = """# Models

<!-- Written by lab/generate_models.py: do not edit. -->

{counts}

*Exact* means: groups, block sizes, number of blocks and capacity of the KV cache are those of vLLM {vllm}'s planner,
and weights are within 1.2 % of what its model class holds on a rank. vLLM itself was asked:
`lab/record_registry.py` builds every decoder of its registry on torch's `meta` device under a pretended H100, from
the configuration class in `transformers` {transformers}, with the class's defaults and with two sets of sizes drawn by
a seed, for 1, 2 and 8 GPUs and three amounts of memory. An architecture is read only if all of that is equal;
`tests/unit/models/test_registry.py` repeats the comparison. A row in `src/tokenyard/models/reading/families` says which
fields of a `config.json` fill which piece.

A field of a file that no row and no rule knows is an error that names it, unless vLLM's code for the architecture does
not name it (`field_names.json`, from the sources) or was seen not to read it (`unread.json`);
`--ignore-unmodelled` goes on without it. A field that a file leaves out is what the configuration class fills in
(`class_defaults.json`, from `transformers` {transformers}; all in `src/tokenyard/models/recorded`). A folder with
Mistral's `params.json` alone is read as the `config.json` that vLLM makes of it.

## Quantised checkpoints

A format is that of each matrix: by groups and targets (compressed-tensors), patterns (GPTQModel's `dynamic`,
AutoRound's `extra_config`, ModelOpt, Quark), words (AWQ) or whole names (FP8), as vLLM reads them. Where matrices of a
module differ, it weighs the mean of them. `lab/planner/quantized.py` puts settings as published files have them
into known models, and `tests/unit/models/test_quantized.py` compares with vLLM 0.33.0. Encoders are quantised where
vLLM quantises them (`towers.json`, by `lab/record_towers.py`); of GPTQ and AWQ, where vLLM looks at a file's
tensors, they count as left alone. torchao's integers and floats of four and eight bits are read as vLLM 0.33.0 holds
them with torchao 0.18: linear layers alone, experts as they are. Formats that vLLM 0.33.0 refuses, of them
bitsandbytes, are read as earlier versions take them, or are errors (GGUF, HQQ, AQLM ...).

`lab/compare_configs.py FILE ...` says of any `config.json` whether weights, groups, blocks and capacity are those
of an installed vLLM.

## Layers that predict further tokens

Checkpoints of some models hold layers for multi-token prediction (MTP), with copies of embedding and output head at
times. vLLM passes over them unless `--speculative-config` asks for `mtp`, and so do the weights of a header here: the
files of DeepSeek V4 Flash weigh 3.4 GiB more than it says. Where they draft, all of them count, weights and KV, with
the model's own embedding and head. `lab/record_drafts.py` has asked vLLM {vllm} about {predicting}.

## Models that pool

Embeddings, scores and labels (`--runner pooling`): names that are also decoders' (`LlamaForCausalLM`,
`Qwen2ForCausalLM`) have the decoder's row, and vLLM leaves their output head out; the others are counted as pooling.
What sees a prompt both ways keeps nothing of it: its KV cache has no group and one block. Replays end each request with
its prompt ([pooling](features.md#pooling)).

## Tokens of an image

`tokenyard.image_tokens("qwen2.5-vl-7b", 1280, 720)` is 1,196: the embeddings that an image becomes, by the model's own
rule. Limits of pixels and tiles are those of a `processor_config.json` beside the `config.json` that has a section
`image_processor`, else of a `preprocessor_config.json`, as transformers reads them; else those of the family's
published checkpoints. A value there that cannot be is refused by every command.
`lab/record_image_tokens.py` has asked the processing classes of vLLM {image_vllm} for images of drawn
sizes, three times a family, with other limits each time:
{image_total};
`tests/unit/models/test_image_tokens.py` repeats it. The largest image, by which vLLM makes an encoder's budget and
cache, is equal as well where vLLM says it without a checkpoint's files ({image_largest} times).

| family | rule | sizes asked | exact | largest image |
| --- | --- | --: | --: | --: |
{images}

These are embeddings: tokens around an image and at the ends of its rows (Pixtral, Gemma, InternVL, Qwen) stand beside
them in the prompt. Where the ends are embeddings too they count (Molmo 2, Ovis 2.5). The largest image of Step 3 has
the tokens around its windows in it: vLLM's budget has. Not covered are families whose number of tokens only a
checkpoint's own code knows (MiniCPM-V up to 4.5, MiniCPM-o, Phi-3-vision, HunYuan VL and others).

`tokenyard.video_tokens("qwen3-vl-8b", 1280, 720, 16)` is 7,040: the embeddings of a video of so many frames. Known are
{videos}; {video_total}.

Where videos may come in, vLLM makes an encoder's budget and cache as large as the largest it plans for, and so does a
replay of images: 114,688 embeddings for Qwen2.5-VL's 131,072 tokens of context, where an image has 16,384 at most.
`--limit-mm-per-prompt '{{"video": 0}}'` leaves it at that. Known are {planned}: {planned_total}
(`lab/record_image_tokens.py`, and `lab/record_largest_videos.py` where a frame has embeddings of its own).
A section `video_processor` of `processor_config.json` counts, else `video_preprocessor_config.json`, else
`preprocessor_config.json`; what they leave out is as the processor's class has it. Molmo 2's frames are planned for
only where such a file says how many there are: classes and checkpoints differ. A video of GLM-4V
is chosen by the volume of its frames; GLM-4.6V's processor has a number of its own, in which words for times count
as four tokens each, which only a checkpoint's
tokenizer could say. Of the others that read videos the largest picture is taken; for what
vLLM plans a checkpoint's own processor and tokenizer would have to be there, or it was not asked: {unplanned}.

Time and memory of an encoder's work are estimated ([step times](latency.md#calibrated)) where its row of the table says
how many patches (of sound: frames) become an embedding and which of them see each other: those of {timed}
architectures. Tiles and stretches of sound are filled up, as vLLM fills them (Whisper's 30 seconds, a picture of
Gemma 4); a picture of DeepSeek-OCR goes through both towers. Where a model sees and hears, items of a workload are
pictures. Known are vLLM's parameters of every layer and of every tower: `tests/unit/models/test_encoders.py` compares
them with vLLM 0.33's own modules on the meta device (`lab/record_encoders.py`). Not estimated are {untimed}: towers
of convolutions, of experts, and such as compute more tiles than their embeddings tell. Where nothing is kept free
for an encoder, since its tower or its largest input is not known, `tokenyard run`, its header and `tokenyard headroom`
say so among what they assumed.

`--mm-encoder-tp-mode data` is heeded where vLLM's class heeds it (of {sharing} architectures): every GPU holds the
tower, with what joins it to the decoder but for Llama 4's and Isaac's, and items are shared out as vLLM shares them.
What a GPU's weights come to then was compared as well. Other classes share out weights all the same, and the header
says so.

vLLM measures memory with as many of the largest pictures or videos as the encoder's budget holds: the encoder computes
them, then the decoder runs a step beside their embeddings. The more counts: patches times what the widest moment of a
layer holds (three vectors, and the MLP's or the attention's), with the embeddings, or those and the step. A header's
memory, `tokenyard headroom` and the blocks have it; `--limit-mm-per-prompt '{{"video": 0}}'` makes it smaller, and so
do sizes (`'{{"image": {{"count": 2, "width": 512, "height": 512}}, "video": {{"num_frames": 8}}}}'`): vLLM measures
with a picture or a video no larger. Where its class builds one to know the largest, the budget shrinks as well; of
classes that know it by themselves the budget stays, but for Gemma 4's frames. {limited_total}
(`lab/record_limited_items.py`); classes that heed no sizes of pictures: {unlimited}. Lengths of sound, and sizes of
classes that were not asked, are ignored, and the header says so.
`--language-model-only`, inputs that are all forbidden and `--skip-mm-profiling` leave nothing. It is an estimate, and
may be half as much again ([a log](deployments.md#memory-against-logs)).

## Items in a prompt

vLLM takes as many pictures, videos and sounds in a prompt as `--limit-mm-per-prompt` says, 999 where it says nothing,
and never more than the model's class takes: {limited}. All others of {item_models} take any number. A request of a
workload with more is refused, and an encoder is measured with no more. `lab/record_items.py` has asked vLLM
{item_vllm} about lines and counts: {item_total}.{item_errors}

## Models that are not here

A decoder that the table does not have is read by the fields that most files have; a field beyond them that may matter
is an error. Where `model.safetensors.index.json` or safetensors files lie beside its `config.json`, their bytes have
to be what the fields come to, and say what encoders weigh. The header of a report says what was taken for what.

Beside an installed vLLM, `tokenyard describe MODEL` writes a description of what its classes build, on a machine with
or without a GPU: layers, weights, and what every layer keeps; `--model model.json` takes it. It compares the
description with vLLM's planner for one and two GPUs, and ends with 1 where something differs.

`tests/vllm/test_describe.py` does so within whatever vLLM it is run. These were described at full size within
0.22.1, 0.27.1 and 0.33.0, when the table had none of them: Zamba2 2.7B, StarCoder, Ultravox on Llama 3.2 1B,
HunyuanOCR, Ovis2 1B and Moondream. Weights and blocks were vLLM's in all eighteen, and each file was replayed.

`--model owner/name` also finds what lies in the cache of the Hugging Face hub (`HF_HUB_CACHE`, `HF_HOME`). A file
that is there, in the cache or in a folder of that name, counts before what the name is known for; a folder that is not
there has the shape that its last part is known for, and the header says so.

## Public files, as they are

`lab/read_configs.py FOLDER ...` reads every `config.json` under a folder whole and without a flag. Of three public
repositories that hold many (those of mlc-llm are entries of its
`model_preset.py`, without the four fields that it adds):

{public}

Those that are not read:

| file | why |
| --- | --- |
{unread}

## Exact

| architecture | known by name | what is modelled | plans compared |
| --- | --- | --- | --: |
{exact}

## Read, but not in vLLM {vllm}'s registry

{removed}

## Versions of vLLM that have a class

A `--vllm-version` without a class for the model is refused with the versions that have one: by transformers' code,
which vLLM may fall back to, a model's memory and time are others. `lab/record_architectures.py` has read the
registries of {all_versions} versions; {differ} architectures are not in all:

| architectures | vLLM |
| --- | --- |
{by_version}

{gone} are of before.

## Not read, and why

| architecture | kind | why |
| --- | --- | --- |
{left}
"""
_KINDS = {
    "text": "text generation", "multimodal": "multimodal", "transformers": "by transformers' own code",
    "pooling": "pooling",
}  # fmt: skip


def document() -> str:
    """The page."""
    around = recorded(RECORDED)
    entries = around["architectures"]
    exact = [entry for entry in entries if entry["architecture"] in ROWS]
    left = [entry for entry in entries if entry["architecture"] not in ROWS]
    total, done = Counter(entry["kind"] for entry in entries), Counter(entry["kind"] for entry in exact)
    counts = [f"{done[kind]} of {total[kind]} ({what})" for kind, what in _KINDS.items() if total[kind]]
    named = {name for name in ROWS if name not in {entry["architecture"] for entry in entries}}
    return _TEXT.format(
        predicting=", ".join(f"`{name}`" for name in _asked_for_drafts()),
        counts=f"Exact for vLLM {around['versions']['vllm']}: {', '.join(counts)}.",
        **around["versions"],
        exact="\n".join(map(_exact, exact)),
        **_images(),
        **_items(),
        **_by_version(),
        public="\n".join(_public()),
        unread="\n".join(_unread()),
        removed=", ".join(f"`{name}`" for name in sorted(named)) + ": compared with recordings of vLLM 0.22.",
        left="\n".join(_left(entry, around) for entry in left),
    )


def _images() -> dict[str, str]:
    """The table of what vLLM counted for images, and what is said of it."""
    found = json.loads(gzip.decompress(IMAGES.read_bytes()))
    rows, asked, equal, largest = [], 0, 0, 0
    for name, cases in sorted(found["families"].items()):
        rules = [image_rule(case["config"], case["processor"]) for case in cases]
        same = sum(
            _tokens(rule, wide, high) == tokens
            for rule, case in zip(rules, cases, strict=True)
            for wide, high, tokens in case["images"]
        )
        sizes = sum(len(case["images"]) for case in cases)
        asked, equal = asked + sizes, equal + same
        largest += sum(
            case["largest"] == rule.planned for rule, case in zip(rules, cases, strict=True) if case["largest"]
        )
        kind = (
            (type(rules[0]).__doc__ or "")
            .partition(":")[0]
            .partition(" (")[0]
            .rstrip(".")
            .replace("\n   ", "")
            .replace("``", "")
        )
        rows.append(f"| `{name}` | {kind[0].lower()}{kind[1:]} | {sizes} | {same} | {rules[0].planned:,} |")
    videos = [
        _video(case, *each) == each[3]
        for name in KNOWN
        for case in found["families"][name]
        for each in map(tuple, case["video"]["videos"])
    ]
    planned = [
        max(LARGEST[name].num_tokens(image, length, has_images=bool(has_images)), image) == max(video, image)
        for name, cases in found["families"].items()
        for case in cases
        for length, has_images, image, video in case.get("planned", ())
    ]
    by_frame = json.loads(gzip.decompress(VIDEOS.read_bytes()))["families"]
    planned += [
        ours == theirs for name, cases in by_frame.items() for case in cases for ours, theirs in compared(name, case)
    ]
    small = json.loads(gzip.decompress(LIMITED.read_bytes()))["families"]
    limited, shortened = (
        [a == b for name, cases in small.items() for case in cases for a, b in asked(name, case)]
        for asked in (sized, shown)
    )
    return {
        "videos": ", ".join(f"`{name}`" for name in KNOWN),
        "timed": str(len(_timed())),
        "sharing": str(len(sharing_architectures())),
        "limited_total": f"{sum(limited):,} of {len(limited):,} pictures of drawn sizes are vLLM's, and"
        f" {sum(shortened):,} of {len(shortened):,} videos",
        "unlimited": ", ".join(f"`{name}`" for name in small if heeds_sizes(name) is False),
        "untimed": ", ".join(f"`{name}`" for name in _untimed()),
        "planned": ", ".join(f"`{name}`" for name in sorted(LARGEST)),
        "unplanned": ", ".join(f"`{name}`" for name in _unplanned()),
        "planned_total": f"{sum(planned):,} of {len(planned):,} contexts and limits come to vLLM's number",
        "video_total": f"{sum(videos):,} of {len(videos):,} drawn videos are counted, or refused, as by vLLM",
        "images": "\n".join(rows),
        "image_vllm": found["versions"]["vllm"],
        "image_total": f"{equal:,} of {asked:,} sizes, of {len(rows)} families, come to the same number",
        "image_largest": str(largest),
    }


def _unplanned() -> list[str]:
    """Architectures that are read, see videos and have no largest one here."""
    shown = [name for name, most in known_items().items() if most.get("video", 0) != 0]
    return sorted(name for name in shown if name in ROWS and ROWS[name].towers and name not in LARGEST)


def _items() -> dict[str, str]:
    """How many pictures, videos and sounds a prompt may have, and what vLLM said of it."""
    found = json.loads(gzip.decompress(ITEMS.read_bytes()))
    same = [each.theirs == each.ours for each in prompts(found["architectures"])]
    by_limit: dict[str, list[str]] = {}
    for name, most in known_items().items():
        said = ", ".join(f"{count} of {kind}" for kind, count in sorted(most.items()) if count is not None)
        by_limit.setdefault(said, []).append(f"`{name}`")
    limited = [f"{said} ({', '.join(names)})" for said, names in sorted(by_limit.items()) if said]
    errors = [f"`{name}` ({each['error'][:60]})" for name, each in found["architectures"].items() if "error" in each]
    return {
        "limited": "; ".join(limited),
        "item_models": str(len(known_items())),
        "item_vllm": found["versions"]["vllm"],
        "item_total": f"{sum(same):,} of {len(same):,} prompts are taken or refused by both",
        "item_errors": f" It could not be asked about {', '.join(errors)}." if errors else "",
    }


def _by_version() -> dict[str, str]:
    """Which versions have which architectures, of those that not all have."""
    read, groups = versions_looked_into(), dict[tuple[str, ...], list[str]]()
    for name, versions in versions_with_classes().items():
        groups.setdefault(tuple(versions), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {_span(versions, read)} |" for versions, names in sorted(groups.items())]
    return {
        "all_versions": str(len(read)),
        "differ": str(sum(map(len, groups.values()))),
        "by_version": "\n".join(rows),
        "gone": ", ".join(f"`{name}` (until {last})" for name, last in dropped_before().items()),
    }


def _span(versions: tuple[str, ...], read: Sequence[str]) -> str:
    if len(versions) != read.index(versions[-1]) - read.index(versions[0]) + 1:
        return ", ".join(versions)
    first, last = versions[0], versions[-1]
    return f"since {first}" if last == read[-1] else f"until {last}" if first == read[0] else f"{first} to {last}"


def _timed() -> list[str]:
    """Architectures of the table whose towers say how many patches become an embedding."""
    return sorted(name for name, row in ROWS.items() if row.towers and not _is_untimed(row))


def _untimed() -> list[str]:
    """Models whose towers do not."""
    return sorted(name for name, row in ROWS.items() if row.towers and _is_untimed(row))


def _is_untimed(row: ArchitectureRow) -> bool:
    through = [each for each in row.towers if each.kind == "vision"] or row.towers
    return any(each.patches == 0 for each in through)


def _tokens(rule: ImageRule, wide: int, high: int) -> int | None:
    try:
        return rule.num_tokens(wide, high)
    except ConfigError:
        return None


def _video(case: dict[str, Any], wide: int, high: int, frames: int, _: int | None) -> int | None:
    try:
        return video_rule(case["config"], case["video"]["processor"]).num_tokens(wide, high, frames)
    except ConfigError:
        return None


def _public() -> Iterator[str]:
    for repository, rows in json.loads(PUBLIC.read_text()).items():
        read = [row for row in rows if "why" not in row]
        kinds = len({row["architecture"] for row in read})
        yield f"* {repository}: {len(read)} of {len(rows)} files, of {kinds} architectures."


def _unread() -> Iterator[str]:
    for rows in json.loads(PUBLIC.read_text()).values():
        for row in rows:
            if "why" in row:
                why = re.sub(r": (use one of|the table of models lists|--ignore-unmodelled).*", "", row["why"])
                yield f"| `{row['file'].rpartition('/')[2]}` | {_cell(why)} |"


def _asked_for_drafts() -> list[str]:
    """Architectures whose layers that predict vLLM built."""
    cases = recorded(DRAFTS)["architectures"]
    return [name for name in cases if any("error" not in case for case in cases[name])]


def _exact(entry: dict[str, Any]) -> str:
    name = entry["architecture"]
    known = [each for each in MODELS if MODELS[each].architecture == name]
    examples = ", ".join(f"`{each}`" for each in known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")
    models = [model_of(case, name) for case in entry["cases"]] or [MODELS[known[0]]]
    return f"| `{name}` | {examples} | {_modelled(models)} | {3 * num_built(entry) or 'of the named models'} |"


def _modelled(models: list[ModelSpec]) -> str:
    """The pieces of these models, each once."""
    layers = [layer for model in models for layer, _ in model.layer_counts]
    mixers = dict.fromkeys(_mixer(mixer) for layer in layers for mixer in layer.mixers)
    mlps = dict.fromkeys(_mlp(layer) for layer in layers if layer.mlp is not None)
    towers = dict.fromkeys(f"{encoder.kind} tower" for model in models for encoder in model.encoders)
    return "; ".join(part for part in (", ".join(mixers), ", ".join(mlps), ", ".join(towers)) if part)


def _picks(indexer: Indexer | None) -> str:
    return "" if indexer is None else " with an indexer" + " and a ring" * (indexer.ring is not None)


def _mixer(mixer: Mixer) -> str:
    if isinstance(mixer, StateSpace):
        return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", type(mixer).__name__).capitalize()
    if isinstance(mixer, LatentAttention):
        return "latent attention" + _picks(mixer.indexer)
    if isinstance(mixer, CompressedAttention):
        return "a window" + " and compressed vectors" * bool(mixer.ratio) + " with an indexer" * bool(mixer.indexer)
    if isinstance(mixer, PagedConvolution):
        return "short convolutions beside attention"
    assert isinstance(mixer, SoftmaxAttention)
    picks = _picks(mixer.indexer)
    where = {
        Attends.FULL: "",
        Attends.BOTH_WAYS: " both ways",
        Attends.SLIDING_WINDOW: " in a window",
        Attends.CHUNKED: " in chunks",
    }
    return "attention" + where.get(mixer.attends, " over an encoder") + " with shared KV" * mixer.shares_kv + picks


def _mlp(layer: LayerSpec) -> str:
    if not isinstance(layer.mlp, MoE):
        return "dense MLP"
    return "experts" + " and a shared one" * bool(layer.mlp.shared_width)


def _left(entry: dict[str, Any], around: dict[str, Any]) -> str:
    return f"| `{entry['architecture']}` | {_KINDS[entry['kind']]} | {_why(entry)} |"


def _why(entry: dict[str, Any]) -> str:
    """What is missing: a class, a model that vLLM can build here, or a row."""
    error = re.sub(r"/tmp/\w+", "the folder", entry.get("error") or "").partition(" [type=")[0]
    if is_proof(entry):
        return "no row yet: vLLM's answers are recorded"
    if entry["cases"]:
        return f"no row: vLLM built {num_built(entry)} of 9 here"
    if error.startswith("neither"):
        return "no configuration class in transformers or vLLM to draw from"
    return f"vLLM cannot build it here: {_cell(error[:160])}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_").replace("<", "&lt;").replace("*", "\\*")


def wrong_rows() -> list[str]:
    """Return the architectures whose rows differ from what vLLM answered, each with the first difference."""
    around = recorded(RECORDED)
    return [
        f"{entry['architecture']}: {next(differences(entry, around))}"
        for entry in around["architectures"]
        if entry["architecture"] in ROWS and any(differences(entry, around))
    ]


if __name__ == "__main__":
    print(document())
    sys.exit("\n".join(wrong_rows()))
