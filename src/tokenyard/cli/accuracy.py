"""``tokenyard accuracy``: measured points and runs in, what is predicted for them, and how far off that is."""

from __future__ import annotations

from rich.markup import escape
from rich.progress import Progress

from tokenyard.cli.support.console import errors, print_json, results
from tokenyard.cli.support.flags.known import AccuracyCommand
from tokenyard.questions.accuracy.ask import accuracy, recorded_runs
from tokenyard.questions.accuracy.points import HOW_TO_GET, PACKAGE, installed_points
from tokenyard.questions.printing.accuracy import left_out_table, print_accuracy, show_run
from tokenyard.steptime.constants import shipped_constants


def execute(flags: AccuracyCommand) -> int:
    """Compare and print; always 0 if it ends. Without a file: with the public points, where they are installed."""
    if not flags.files and installed_points() is None:
        return _tell_what_ships(flags)
    console = errors()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("points")
        found = accuracy(
            flags.files,
            model=flags.model,
            gpu=flags.gpu,
            tensor_parallel_size=flags.tensor_parallel_size,
            data_parallel_size=flags.data_parallel_size,
            enable_expert_parallel=flags.enable_expert_parallel,
            max_num_batched_tokens=flags.max_num_batched_tokens,
            kv_cache_dtype=flags.kv_cache_dtype,
            vllm_version=flags.vllm_version,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    print_json(found) if flags.json else print_accuracy(found, results())
    return 0


def _tell_what_ships(flags: AccuracyCommand) -> int:
    """What the constants say of themselves, and where the points are that they were fitted to."""
    constants, runs = shipped_constants(), recorded_runs()
    if flags.json:
        held_out = constants.data["errors"]
        print_json({"source": constants.provenance, "held_out": held_out, "runs": runs, "points": list(HOW_TO_GET)})
        return 0
    console = results()
    console.print(f"No file is named, and {PACKAGE} is not installed. These errors were found when the constants")
    console.print("were fitted, on points that the fit had not seen (docs/accuracy.md), of the mean TPOT and TTFT:\n")
    console.print(left_out_table(constants))
    console.print("\nWhole runs whose requests were measured one by one (vLLM 0.19, published with LLMServingSim),")
    console.print("means and percentiles in ms, and the errors of single requests beside themselves:\n")
    for run in runs:
        show_run(run, console)
    console.print(f"\nStep times: {escape(constants.provenance)}", soft_wrap=True)
    console.print("\nTo compare with the public points, row by row:", highlight=False)
    for line in HOW_TO_GET:
        console.print(f"  {escape(line)}", soft_wrap=True, highlight=False)
    return 0
