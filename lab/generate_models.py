"""Writes docs/models.md: every decoder of vLLM's registry, what is modelled of it, and how that was proved.

Its words are those of ``pages/models.md``.
``--check``: nothing is written; 1 if the page is not what would be.
"""

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
from planner.largest import compared  # noqa: E402
from planner.limited import compared as sized  # noqa: E402
from planner.limited import compared_videos as shown  # noqa: E402
from tokenyard.errors import ConfigError  # noqa: E402
from tokenyard.models.images.largest import LARGEST  # noqa: E402
from tokenyard.models.images.limited import heeds_sizes  # noqa: E402
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
from tokenyard.models.reading.row import ArchitectureRow  # noqa: E402
from tokenyard.models.reading.table import ROWS  # noqa: E402
from tokenyard.models.reading.versions import (  # noqa: E402
    dropped_before,
    versions_looked_into,
    versions_with_classes,
)
from tokenyard.models.spec import ModelSpec  # noqa: E402

PAGE = REPO / "docs" / "models.md"
RECORDED = REPO / "tests" / "unit" / "models" / "registry.json.gz"
DRAFTS = RECORDED.with_name("drafts.json.gz")
PUBLIC = RECORDED.with_name("public_configs.json")
IMAGES = RECORDED.with_name("image_tokens.json.gz")
VIDEOS = RECORDED.with_name("largest_videos.json.gz")
LIMITED = RECORDED.with_name("limited_items.json.gz")
ITEMS = RECORDED.with_name("items.json.gz")
TEMPLATE = REPO / "lab" / "pages" / "models.md"
_KINDS = {
    "text": "text generation", "multimodal": "multimodal", "transformers": "by transformers' own code",
    "pooling": "pooling",
}  # fmt: skip


def page() -> str:
    """The whole page."""
    around = recorded(RECORDED)
    entries = around["architectures"]
    exact = [entry for entry in entries if entry["architecture"] in ROWS]
    left = [entry for entry in entries if entry["architecture"] not in ROWS]
    total, done = Counter(entry["kind"] for entry in entries), Counter(entry["kind"] for entry in exact)
    counts = [f"{done[kind]} of {total[kind]} ({what})" for kind, what in _KINDS.items() if total[kind]]
    named = {name for name in ROWS if name not in {entry["architecture"] for entry in entries}}
    return TEMPLATE.read_text(encoding="utf-8").format(
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
                why = re.sub(r": (use one of|docs/models.md lists|--ignore-unmodelled).*", "", row["why"])
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


def main(arguments: list[str]) -> int:
    """Write or check; both fail for a row that differs from vLLM."""
    around = recorded(RECORDED)
    made = page()
    wrong = [
        f"{entry['architecture']}: {next(differences(entry, around))}"
        for entry in around["architectures"]
        if entry["architecture"] in ROWS and any(differences(entry, around))
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    if "--check" not in arguments:
        PAGE.write_text(made)
    elif made != PAGE.read_text():
        print("docs/models.md is not up to date: run lab/generate_models.py", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
