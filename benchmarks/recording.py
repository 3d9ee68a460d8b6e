"""What recording costs: CPU time of a step with a trace written over that of the same step without, in turns.

    python benchmarks/recording.py [--rounds 3] [--only TEXT]          (make bench-recording)

``thread`` counts the thread that steps, ``whole`` also the one that writes. Traces are those of ``tokenyard run``.
"""

from __future__ import annotations

import argparse
import statistics

from measure import measure
from our_side import OurEngine, TracedEngine
from tokenyard.compiled import which_core
from workload import SCENARIOS, LongPrompt

__all__ = ["main"]


def main() -> None:
    """Print the ratios: medians over the rounds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    arguments = parser.parse_args()
    print(f"{which_core()} core, medians of {arguments.rounds} rounds")
    for scenario in SCENARIOS:
        if isinstance(scenario, LongPrompt) or arguments.only not in scenario.name:
            continue
        taken = [measure(scenario, {"plain": OurEngine, "traced": TracedEngine}) for _ in range(arguments.rounds)]
        plain = statistics.median(each["plain"].seconds["step"] for each in taken)
        ratios = {
            name: statistics.median(each["traced"].seconds[what] / each["plain"].seconds[what] for each in taken)
            for name, what in (("thread", "step_thread"), ("whole", "step"))
        }
        said = "   ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())
        print(f"{scenario.name:18} step {plain * 1e6:7.0f} us   {said}", flush=True)


if __name__ == "__main__":
    main()
