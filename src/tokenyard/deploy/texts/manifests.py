"""Manifests that start vLLM: containers of Kubernetes and Compose, what ConfigMaps and labels say."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenyard.deploy.start_facts import SEVERAL_GPUS, HeaderNote, Nodes, Said
from tokenyard.deploy.texts.commands import (
    SHELLS,
    ContainerCommand,
    Expander,
    device_of_image,
    may_hold_vllm,
    script_started,
    version_of_image,
    with_mounts,
    words_started,
)
from tokenyard.deploy.texts.data import KNOWN, at, items_at
from tokenyard.deploy.vllm_serve.shell import MOST_CHARACTERS, ShellError, commands
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS, gpu_of_device, gpu_of_instance
from tokenyard.quick_dataclass import dataclass
from tokenyard.redaction import hidden_beginning

# ---------------------------------------------------------------------------------------------------------------------
# How many GPUs a text gives to what it starts, and what a Slurm script asks for.

_LINE = re.compile(r"^[ \t]*#SBATCH[ \t]+(-[^\n#]{1,400})", re.MULTILINE)
_COMMAND = re.compile(r"(?<![\w-])(?:srun|salloc|sbatch)[ \t]+(-[^\n|;&]{1,2000})")
_FOLDED = re.compile(r"\\[ \t]*\n[ \t]*")
_SHORT = re.compile(r"-\w")
_KIND = re.compile(r"[A-Za-z][\w.-]*")
_PER_NODE = ("--gres", "--gpus-per-node")
_OF_ALL = ("--gpus", "-G")
_MOST_MACHINES = 1 << 10


def gpus_of_service(service: Mapping[str, Any]) -> Said | None:
    """The number that Compose reserves for a service; None for all of them."""
    for each in items_at(service, "deploy", "resources", "reservations", "devices"):
        ids, count = at(each, "device_ids"), at(each, "count")
        if isinstance(ids, list) and ids:
            return Said(str(len(ids)), "device_ids of the service")
        if str(count).isdecimal():
            return Said(str(count), "count of the service's devices")
    return None


def gpu_of_slurm_command(text: str) -> str | None:
    """The kind of GPU that a command of Slurm's asks for (``srun --gres=gpu:a100:4 vllm serve ...``), as it says it."""
    for found in _COMMAND.finditer(_FOLDED.sub(" ", text)):
        kind, _ = _gpus_asked_for(_options_of(found[1].split()))
        if kind is not None:
            return kind
    return None


def _options_of(words: Sequence[str]) -> dict[str, str]:
    """The options in front of the program that a command starts, or of a line of a script."""
    options: dict[str, str] = {}
    rest = deque(words)
    while rest and rest[0].startswith("-"):
        name, has_value, value = rest.popleft().partition("=")
        if not has_value and _SHORT.match(name) and len(name) > 2:
            name, value = name[:2], name[2:]
        elif not has_value and rest and not rest[0].startswith("-"):
            value = rest.popleft()
        options.setdefault(name, value)
    return options


def _gpus_asked_for(options: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Their kind, and how many on each machine."""
    kind, gpus = None, None
    for name in (*_PER_NODE, *_OF_ALL):
        for each in options.get(name, "").split(","):
            what, *said = each.removeprefix("gres/").split(":") if name == "--gres" else ("gpu", *each.split(":"))
            if what != "gpu":
                continue
            kind = kind or next((part for part in said if _KIND.fullmatch(part)), None)
            if name in _PER_NODE and gpus is None:
                gpus = next((int(part) for part in said if part.isdecimal()), None)
    return kind, gpus


def machines_of_slurm(text: str) -> tuple[str | None, str | None, Nodes | None]:
    """The kind of GPU that ``#SBATCH`` lines ask for, as they name it, what they ask of a machine, and the machines."""
    options: dict[str, str] = {}
    for line in _LINE.findall(text):
        options = {**_options_of(line.split()), **options}
    kind, gpus = _gpus_asked_for(options)
    wanted = options.get("--constraint", options.get("-C"))
    nodes = options.get("--nodes", options.get("-N", "1"))
    machines = int(nodes) if nodes.isdecimal() and int(nodes) < _MOST_MACHINES else 1
    if machines == 1:
        return kind, wanted, None
    return kind, wanted, Nodes(machines, gpus, "--nodes of the Slurm script")


# ---------------------------------------------------------------------------------------------------------------------
# Documents of Kubernetes that scale another one: a HorizontalPodAutoscaler, KEDA's ScaledObject.

_SCALERS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas", 1),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount", 100),
}
"""Kinds, their fields, and the most that counts where they name none."""

_EACH_NODE = HeaderNote(
    "DaemonSet", "one on each node", "how many nodes there are is not said: --replicas gives their number"
)


def unlisted(documents: Sequence[Any]) -> list[Any]:
    """``documents``, with those that a ``List`` holds in its place."""
    found: list[Any] = []
    for each in documents:
        items = at(each, "items") if at(each, "kind") == "List" else None
        found += items if isinstance(items, list) else [each]
    return found


def scalers_of(documents: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The ``documents`` that scale another one."""
    return [each for each in documents if at(each, "kind") in _SCALERS and isinstance(at(each, "spec"), Mapping)]


def scaled(started: ContainerCommand, document: Any, scalers: Sequence[Mapping[str, Any]]) -> ContainerCommand:
    """What ``document`` starts, with the replicas that one of the ``scalers`` gives it; those of others are named."""
    name = _name(at(document, "metadata"))
    if at(document, "kind") == "DaemonSet":
        started = replace(started, notes=(*started.notes, _EACH_NODE))
    for scaler in scalers:
        spec, kind = scaler["spec"], scaler["kind"]
        target = _name(spec.get("scaleTargetRef"))
        if target != name:
            note = HeaderNote(kind, target, "scales something else, and is not read")
            started = replace(started, notes=(*started.notes, note))
            continue
        least, most, otherwise = _SCALERS[kind]
        was = "" if started.replicas is None else f", not {started.replicas.value}, {started.replicas.where}"
        replicas = range_of(spec.get(least), spec.get(most, otherwise), f"{least} and {most} of the {kind}{was}")
        started = replace(started, replicas=replicas or started.replicas)
    return started


def range_of(least: Any, most: Any, where: str) -> Said | None:
    """``1..3``, at least one, said ``where``; None where neither is a number."""
    low, high = count_of(least), count_of(most)
    if low is None and high is None:
        return None
    first = max(1, int(low or 1))
    last = max(first, int(high or 0))
    return Said(str(first) if first == last else f"{first}..{last}", where)


def _name(reference: Any) -> str | None:
    name = at(reference, "name")
    return None if name is None else str(name)


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Which GPU labels and instance types of clouds name.

_PRODUCT: Sequence[str] = KNOWN["product_labels"]
"""Labels whose value is a GPU, known here or not."""
_INSTANCE: Sequence[str] = KNOWN["instance_labels"]
_OTHER_NAMES = {"nvidia-tesla-a100": "a100-40gb", "nvidia-l4": "l4", "nvidia-a100-80gb": "a100-80gb"}
_A100 = re.compile(r"a100[_-]?(40|80)(?:gb?)?")
"""Matches an A100 as clusters name it: a100_80."""
_ANY = ("gpu", "accelerator")
_SLICE_LABELS = ("cloud.google.com/gke-gpu-partition-size", "nvidia.com/mig.config")
_SLICE = re.compile(r"nvidia\.com/(mig-[0-9]{1,2}g\.[0-9]{1,4}gb[\w.]{0,20})")
_OTHER_DEVICES = re.compile(
    r"amd\.com/gpu|google\.com/tpu|aws\.amazon\.com/neuron|habana\.ai/|gpu\.intel\.com/|huawei\.com/"
)
_SHARED_LABELS = ("cloud.google.com/gke-gpu-sharing-strategy", "cloud.google.com/gke-max-shared-clients-per-gpu")
_SHARED = HeaderNote("gpu", "shared", "others run on it too: times and memory here are those of a GPU of one's own")
_WHOLE = ("", "all-disabled")
_MOST = 200


def gpu_named(text: str) -> str | None:
    """Our name of a GPU that a label, a driver or a log names; None for one that is not known here."""
    short = text.strip().lower()[:_MOST]
    if short in GPUS:
        return short
    size = _A100.fullmatch(short)
    known = _OTHER_NAMES.get(short) if size is None else f"a100-{size[1]}gb"
    if known is None:
        gpu = gpu_of_device(re.sub(r"[_\s-]+", " ", short))
        known = None if gpu is None else gpu.name
    return known


def gpu_of_labels(labels: Iterable[tuple[str, str]]) -> Said | None:
    """The GPU that labels of nodes ask for; None if none does. Where they name several, the value names all."""
    found: dict[str, str] = {}
    for label, value in labels:
        where = f"{label}={value[:_MOST]}"
        if label in _SLICE_LABELS and value not in _WHOLE:
            return Said(f"MIG {value[:_MOST]}", f"{where}: a slice of a GPU")
        if label in _PRODUCT:
            found.setdefault(gpu_named(value) or value[:_MOST], where)
        elif label in _INSTANCE:
            machine = gpu_of_instance(value)
            if machine is not None:
                found.setdefault(machine.name, where)
        elif any(word in label.lower() for word in _ANY):
            gpu = gpu_named(value)
            if gpu is not None:
                found.setdefault(gpu, where)
    if not found:
        return None
    return Said(SEVERAL_GPUS.join(found), ", ".join(found.values()))


def gpu_of_resources(resources: Any) -> Said | None:
    """What ``limits`` or ``requests`` ask for that no label tells: a slice of a GPU, or a device of another kind."""
    for name in _resources(resources):
        is_slice = _SLICE.fullmatch(name)
        if is_slice is not None:
            return Said(is_slice[1], f"{name} of the resources: a slice of a GPU")
        if _OTHER_DEVICES.match(name):
            return Said(name[:_MOST], "the resources")
    return None


def is_gpu_shared(labels: Iterable[tuple[str, str]], resources: Any) -> bool:
    """Whether several containers take turns on a GPU."""
    return any(
        label in _SHARED_LABELS or (label in _PRODUCT and value.endswith("-SHARED")) for label, value in labels
    ) or any(name.startswith("nvidia.com/gpu.shared") for name in _resources(resources))


def _gpus(resources: Any) -> int | None:
    counts = (count_of(at(resources, each, "nvidia.com/gpu")) for each in ("limits", "requests"))
    return next((int(count) for count in counts if count is not None), None)


def _resources(resources: Any) -> Iterator[str]:
    for each in ("limits", "requests"):
        asked = at(resources, each)
        yield from (str(name) for name, count in asked.items() if count) if isinstance(asked, Mapping) else ()


def labels_of_pod(pod: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The labels that nodes of a pod must have: its nodeSelector, and what its affinity requires."""
    labels: list[tuple[str, str]] = []
    selector = pod.get("nodeSelector")
    if isinstance(selector, Mapping):
        labels += [(str(name), str(value)) for name, value in selector.items() if isinstance(value, str | int)]
    required = at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return labels + labels_of_terms(at(required, "nodeSelectorTerms"))


def labels_of_terms(terms: Any) -> list[tuple[str, str]]:
    """Labels of ``nodeSelectorTerms``: those that must have one of the values that are named."""
    labels: list[tuple[str, str]] = []
    for term in terms if isinstance(terms, list) else ():
        for each in items_at(term, "matchExpressions"):
            values = items_at(each, "values") if at(each, "operator") == "In" else []
            labels += [(str(each.get("key")), str(value)) for value in values if isinstance(value, str)]
    return labels


# ---------------------------------------------------------------------------------------------------------------------
# What Compose writes in the place of variables: ``${NAME:-default}`` and the like.
#
# Their values stand in ``.env`` or in the shell; here a default is taken, and what has none stays as it is written.

_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]{0,200}):?([-+])([^{}$]{0,4000})\})")
"""A dollar sign that is meant; a variable with what stands in its place. One with a variable within is left alone."""
_MOST_LEVELS = 60


def is_compose(document: Any) -> bool:
    """Whether a document is a file of Compose."""
    services = at(document, "services")
    return isinstance(services, Mapping) and any(isinstance(each, Mapping) for each in services.values())


def interpolated(service: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[HeaderNote, ...]]:
    """A service with the defaults of its variables, and notes about them."""
    names: dict[str, str] = {}
    written = {name: _written(each, names, _MOST_LEVELS) for name, each in service.items()}
    why = "their defaults in the file are taken: what .env or the shell sets is not read"
    return written, (HeaderNote("variables of Compose", ", ".join(names), why),) if names else ()


def _written(value: Any, names: dict[str, str], levels: int) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable_value(found, names), value)
    if levels and isinstance(value, list):
        return [_written(each, names, levels - 1) for each in value]
    if levels and isinstance(value, Mapping):
        return {name: _written(each, names, levels - 1) for name, each in value.items()}
    return value


def _variable_value(found: re.Match[str], names: dict[str, str]) -> str:
    name, kind, text = found.groups()
    if name is None:
        return "$"
    names[name] = name
    return text if kind == "-" else ""


# ---------------------------------------------------------------------------------------------------------------------
# ConfigMaps of Kubernetes that stand in the same file as what refers to them.
#
# envFrom: [{configMapRef: {name: settings}}] env: [{name: SEQS, valueFrom: {configMapKeyRef: {name: settings, key:
# MAX_SEQS}}}] command: [bash, /scripts/start.sh]          where start.sh is a key of a map, which is mounted

_WORDS = ("command", "args")
_STARTS = "vllm"
_CONFIG_MAPS_MOST = 20_000
"""Values of ConfigMaps, counted wherever they are written in."""
_PER_VALUE = 100
"""Characters of a script that count as one value."""

_Maps = Mapping[str, Mapping[str, str]]


def with_config_maps(documents: Sequence[Any]) -> list[Any]:
    """``documents`` with the values of their own ConfigMaps in the place of what refers to them.

    References to others stay. A name counts whatever its namespace is. Raises ConfigError for more than is read.
    """
    maps = dict(each for document in documents for each in _maps_in(document))
    return [_Writer(maps).written(document, _MOST_LEVELS) for document in documents] if maps else list(documents)


def _maps_in(document: Any) -> Iterator[tuple[str, Mapping[str, str]]]:
    if isinstance(document, list):
        for each in document:
            if isinstance(each, Mapping):
                yield from _maps_in(each)
    elif isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items")
        yield from _maps_in(items) if isinstance(items, list) else ()
    elif isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
        metadata, data = document.get("metadata"), document.get("data")
        if isinstance(metadata, Mapping) and isinstance(data, Mapping):
            values = {str(key): each for key, each in data.items() if isinstance(each, str)}
            yield str(metadata.get("name")), values


class _Writer:
    def __init__(self, maps: _Maps) -> None:
        self._maps = maps
        self._scripts = {key: text for each in maps.values() for key, text in each.items() if _STARTS in text}
        self._left = _CONFIG_MAPS_MOST

    def written(self, value: Any, levels: int) -> Any:
        if levels == 0:
            return value
        if isinstance(value, list):
            return [self.written(each, levels - 1) for each in value]
        if not isinstance(value, Mapping):
            return value
        written = {name: self.written(each, levels - 1) for name, each in value.items()}
        if isinstance(value.get("envFrom"), list):
            self._write_all(written)
        if isinstance(written.get("env"), list):
            written["env"] = [self._one(each) for each in written["env"]]
        if isinstance(value.get("image"), str):
            self._write_script(written)
        return written

    def _write_script(self, container: dict[str, Any]) -> None:
        """The script that a container runs, where it is a key of a map."""
        for name in _WORDS:
            words = container.get(name)
            for word in words if isinstance(words, list) else ():
                script = self._scripts.get(word.rpartition("/")[2]) if isinstance(word, str) else None
                if script is not None:
                    self._spend(1 + len(script) // _PER_VALUE)
                    container.update(command=["sh", "-c", script], args=[])
                    return

    def _write_all(self, container: dict[str, Any]) -> None:
        """The maps that ``envFrom`` names, in front of ``env``, which counts more."""
        found: list[dict[str, str]] = []
        others = []
        for source in container["envFrom"]:
            values = self._map(at(source, "configMapRef"))
            if values is None:
                others.append(source)
                continue
            self._spend(len(values))
            prefix = str(source.get("prefix") or "")
            found += ({"name": f"{prefix}{name}", "value": each} for name, each in values.items())
        own = container.get("env")
        container["env"] = [*found, *(own if isinstance(own, list) else ())]
        container["envFrom"] = others

    def _one(self, variable: Any) -> Any:
        reference = at(variable, "valueFrom", "configMapKeyRef")
        value = (self._map(reference) or {}).get(str(at(reference, "key")))
        if value is None:
            return variable
        self._spend(1)
        return {"name": variable.get("name"), "value": value}

    def _map(self, reference: Any) -> Mapping[str, str] | None:
        return self._maps.get(str(reference.get("name"))) if isinstance(reference, Mapping) else None

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise ConfigError("serve", "ConfigMap", f"more than {_CONFIG_MAPS_MOST:,} of their values are referred to")


# ---------------------------------------------------------------------------------------------------------------------
# Containers of Kubernetes and of Compose that start vLLM.
#
#     containers: [{command: [...], args: [...], env: [...]}]      Kubernetes, at any depth
#     services: {name: {command: ..., environment: ...}}           Compose
#     args: [...], or the bare list, in YAML or JSON                what a user copied out of either
#
# What stands there takes the place of an image's command, or follows its entry point (``vllm serve``).

_CONTAINERS_WORDS = ("entrypoint", "command", "args")
_REPLICAS: Mapping[str, str] = KNOWN["replicas"]
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]{0,200})\)")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a container."""

    replicas: Said | None = None
    pod: Mapping[str, Any] | None = None
    machines: int = 1
    """The machines of a group, of which one starts vLLM."""
    machines_said: str = ""
    is_compose: bool = False


def containers_started(document: Any) -> list[ContainerCommand]:
    """What the containers of vLLM in a document start; others are ignored. Raises ConfigError."""
    around = _Around(is_compose=is_compose(document))
    found = (_started_in(container, around) for container, around in _containers(document, around, _MOST_LEVELS))
    return [each for each in found if each is not None]


def _containers(value: Any, around: _Around, levels: int) -> Iterator[tuple[Mapping[str, Any], _Around]]:
    """Mappings that say what to run, at any depth, with what stands around them."""
    if levels == 0:
        return
    if isinstance(value, list):
        if value and all(is_word(each) for each in value):
            yield {"args": value}, around
            return
        for each in value:
            yield from _containers(each, around, levels - 1)
    elif isinstance(value, Mapping):
        if any(isinstance(value.get(name), list | str) for name in _CONTAINERS_WORDS) or isinstance(
            value.get("image"), str
        ):
            yield value, around
            return
        around = _within(_with_replicas(around, value), value)
        for each in value.values():
            if isinstance(each, Mapping) or (isinstance(each, list) and any(isinstance(one, Mapping) for one in each)):
                yield from _containers(each, around, levels - 1)


def _within(around: _Around, value: Mapping[str, Any]) -> _Around:
    """The containers with what the mapping around them says: the pod, the machines of a group."""
    size = count_of(value.get("size")) if "workerTemplate" in value else None
    if size is not None:
        around = replace(around, machines=int(size), machines_said="size of the LeaderWorkerSet")
    size = count_of(at(value, "multinode", "nodeCount"))
    if size is not None:
        around = replace(around, machines=int(size), machines_said="multinode.nodeCount of the component")
    if isinstance(value.get("containers"), list) or isinstance(value.get("nodeSelector"), Mapping):
        around = replace(around, pod=value)
    return around


def _with_replicas(around: _Around, value: Any) -> _Around:
    for name, where in _REPLICAS.items() if isinstance(value, Mapping) else ():
        count = count_of(value.get(name))
        if count is not None:
            return replace(around, replicas=Said(count, where))
    return around


def _scaled(around: _Around, container: Mapping[str, Any]) -> _Around:
    """The command with the replicas of a service of Compose; ``scale`` is the older name."""
    if "deploy" in container:
        return _with_replicas(around, container["deploy"])
    count = count_of(container.get("scale"))
    return around if count is None else replace(around, replicas=Said(count, "scale of the service"))


def count_of(value: Any) -> str | None:
    """A whole number, or a text of one, as a text."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number or (isinstance(value, str) and _NUMBER.fullmatch(value)) else None


def is_word(value: Any) -> bool:
    """Whether a value of YAML is one word of a command line."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _started_in(container: Mapping[str, Any], around: _Around | None = None) -> ContainerCommand | None:
    """What one container starts; None if it is not vLLM's. Raises ConfigError."""
    around = around or _Around()
    notes: tuple[HeaderNote, ...] = ()
    if around.is_compose:
        container, notes = interpolated(container)
    around = _scaled(around, container)
    environment = environment_of(container.get("env") or container.get("environment"))
    image = _image(container)
    said = [word for name in _CONTAINERS_WORDS for word in shell_words(container.get(name))]
    words, written = _resolved(said, environment), " ".join(said)
    environment = {name: value for name, value in environment.items() if f"$({name})" not in written}
    found = _run(words, environment, image, says_nothing="image" not in container)
    if found is None:
        return None
    mounts = container.get("volumes")
    found = with_mounts(found, [each for each in mounts if isinstance(each, str)] if isinstance(mounts, list) else [])
    labels, resources = [] if around.pod is None else labels_of_pod(around.pod), container.get("resources")
    gpu = device_of_image(image) or gpu_of_resources(resources) or found.gpu or gpu_of_labels(labels)
    gpus = _gpus(resources)
    given = gpus_of_service(container) if gpus is None else Said(str(gpus), "nvidia.com/gpu of the resources")
    nodes = Nodes(around.machines, gpus, around.machines_said) if around.machines > 1 else None
    shared = (_SHARED,) if is_gpu_shared(labels, resources) else ()
    return replace(
        found,
        version=found.version or version_of_image(image),
        gpu=gpu,
        replicas=around.replicas,
        nodes=nodes,
        gpus=found.gpus or given,
        notes=(*found.notes, *notes, *_notes(container), *shared),
    )


def _image(container: Mapping[str, Any]) -> str:
    """The image; values of a chart write name and tag apart."""
    image, name, tag = (container.get(key) for key in ("image", "repository", "tag"))
    if isinstance(image, str):
        return image
    return "" if not isinstance(name, str) else f"{name}:{tag}" if is_word(tag) else name


def _run(words: list[str], environment: dict[str, str], image: str, *, says_nothing: bool) -> ContainerCommand | None:
    if words and words[0].rsplit("/", 1)[-1] in SHELLS:
        script = next((word for word in reversed(words) if "vllm" in word), None)
        return None if script is None else script_started(script, "serve", environment)
    is_vllm = may_hold_vllm(image)
    if not words and not is_vllm:
        return None
    found = words_started(words, "serve", environment)
    if found is not None and (not words[0].startswith("--") or is_vllm or says_nothing):
        return found
    is_vllm = is_vllm or any("vllm" in word and not word.startswith("--") for word in words)
    says_nothing = says_nothing and any(word.startswith("--") for word in words)
    return ContainerCommand(words=words, environment=environment) if words and (is_vllm or says_nothing) else None


def _resolved(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """The word with the variables that Kubernetes expands, ``$(NAME)``, as far as they are set here."""
    size = 0
    resolved: list[str] = []
    for word in words:
        parts = _REFERENCE.split(word)
        parts[1::2] = [environment.get(name, f"$({name})") for name in parts[1::2]]
        size += sum(map(len, parts))
        if size > MOST_CHARACTERS:
            fix = f"stands for more than {MOST_CHARACTERS:,} characters, its variables written out"
            raise ConfigError("serve", hidden_beginning(word), fix)
        resolved.append("".join(parts))
    return resolved


def shell_words(value: Any) -> list[str]:
    """The words of ``command`` or ``args``: a list, or a text that is split as a shell does. Raises ConfigError."""
    if isinstance(value, str):
        try:
            expander = Expander()
            return [word for command in commands(value) for word in expander.words(command)]
        except ShellError as error:
            raise ConfigError("serve", hidden_beginning(value), str(error)) from None
    return [str(each).strip() for each in value if is_word(each)] if isinstance(value, list) else []


def environment_of(value: Any) -> dict[str, str]:
    """Kubernetes' list of names and values, Compose's mapping, or its list of assignments."""
    if isinstance(value, Mapping):
        return {str(name): str(each) for name, each in value.items() if is_word(each) or isinstance(each, bool)}
    found = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping) and is_word(each.get("value")):
            found[str(each.get("name"))] = str(each["value"])
        elif isinstance(each, str) and "=" in each:
            name, _, said = each.partition("=")
            found[name] = said
    return found


def _notes(container: Mapping[str, Any]) -> Iterator[HeaderNote]:
    for name in ("envFrom", "env_file"):
        if container.get(name):
            yield HeaderNote(name, "variables", "they are set elsewhere, and are not read")
