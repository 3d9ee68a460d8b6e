"""``tokenyard agents``: what agents' jobs gain by order, pins, DRAM and admission."""

from __future__ import annotations

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import errors, print_json, results, say_notes
from tokenyard.cli.support.flags.replays import AgentsCommand
from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.questions.agents import AGENT_POLICIES, ask
from tokenyard.questions.compare import MOST_SEEDS
from tokenyard.questions.printing.agents import print_agents


def execute(flags: AgentsCommand) -> int:
    """Replay every cell and print what they come to; always 0 if it ends."""
    require_int("seeds", flags.seeds, 1, MOST_SEEDS)
    first = flags.arrivals.seed
    with errors().status("reading the workload") as status:
        found = ask(
            scenario_of(flags),
            policies=AGENT_POLICIES if flags.policies is None else [each.strip() for each in flags.policies.split(",")],
            dram_gib=None if flags.dram_gib is None else _sizes(flags.dram_gib),
            seeds=range(first, first + flags.seeds),
            dram_price=flags.dram_price,
            jobs=flags.processes,
            output=flags.output,
            progress=lambda done, total: status.update(f"replay {done:,} of {total:,} done"),
            on_read=say_notes,
        )
    print_json(found) if flags.json else print_agents(found, results(), full=flags.full, header=flags.header)
    return 0


def _sizes(text: str) -> list[float]:
    if text == "none":
        return []
    try:
        return [float(size) for size in text.split(",")]
    except ValueError:
        fix = "give sizes in GiB with commas between them, 64,256; none: no DRAM"
        raise ConfigError("dram_gib", text, fix) from None
