#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policies of `stator planner` on whole traces: traces × loads × start-up times, against the reference's rules and fixed sizes.

    bench/planner_grid.py conversation_trace.jsonl toolagent_trace.jsonl --output grid.json
    bench/planner_grid.py trace.jsonl --loads 1 --start-ups 60 --binary build/release/bin/stator

Prints a Markdown table; --output keeps every figure. A fixed size does not depend on the start-up time, so it is run once per load.
"""

import argparse
import json
import pathlib
import subprocess
import sys

MISS_GOALS = ("--ttft", "2000", "--itl", "25")


def dry_run(options, trace, *arguments):
    done = subprocess.run([options.binary, "planner", "--dry-run", trace, "--max-workers", "512", "--report-json", "-", *options.goals,
                           *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{trace} {arguments}: {done.stderr}")
    report = json.loads(done.stdout)
    return {key: report[key] for key in ("requests", "sla_misses", "gpu_seconds", "scaling_events", "workers_mean", "workers_max",
                                         "tick_ms_max") if key in report}


def best_static(statics, misses):
    """The smallest fixed size with no more misses than that; the one with fewest misses if none has."""
    enough = [each for each in statics if each["sla_misses"] <= misses]
    return min(enough, key=lambda each: each["gpu_seconds"]) if enough else min(statics, key=lambda each: each["sla_misses"])


def print_verdicts(rows):
    """In how many cells mpc beats the reference, and the fixed size with as few misses."""
    of = {(row["trace"], row["load"], row["start_up"], row["policy"]): row for row in rows}
    counts = dict.fromkeys(("cells", "fewer misses", "fewer GPU-seconds", "both", "at most a fifth of the events",
                            "15 % fewer GPU-seconds than the fixed size with no more misses"), 0)
    for (trace, load, start_up, policy), mpc in of.items():
        reference = of.get((trace, load, start_up, "reference"))
        if policy != "mpc" or reference is None:
            continue
        misses, cost = mpc["sla_misses"] < reference["sla_misses"], mpc["gpu_seconds"] < reference["gpu_seconds"]
        statics = [row for row in rows if row["trace"] == trace and row["load"] == load and row["policy"].startswith("static")]
        verdicts = (True, misses, cost, misses and cost, 5 * mpc["scaling_events"] <= reference["scaling_events"],
                    bool(statics) and mpc["gpu_seconds"] <= 0.85 * best_static(statics, mpc["sla_misses"])["gpu_seconds"])
        for name, verdict in zip(counts, verdicts, strict=True):
            counts[name] += int(verdict)
    print("\n" + "; ".join(f"{name}: {count}" for name, count in counts.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--loads", default="0.2,1,5")
    parser.add_argument("--start-ups", default="0,60,120,180")
    parser.add_argument("--policies", default="mpc,reference")
    parser.add_argument("--statics", default="0.6,0.8,1,1.2,1.5", help="fixed sizes, as parts of the reference's mean size; empty: none")
    parser.add_argument("--binary", default="build/release/bin/stator")
    parser.add_argument("--goals", nargs="*", default=list(MISS_GOALS))
    parser.add_argument("--output")
    options = parser.parse_args()
    rows = []
    print("| Trace | Load | Start-up | Policy | Misses | GPU-s | Events |\n|---|---|---|---|---|---|---|")

    def show(row):
        rows.append(row)
        print(f"| {row['trace']} | ×{row['load']} | {row['start_up']} | {row['policy']} | {row['sla_misses']:,} | {row['gpu_seconds']:,.0f} | "
              f"{row['scaling_events']} |", flush=True)
        if options.output:
            pathlib.Path(options.output).write_text(json.dumps(rows, indent=1))

    for trace in options.traces:
        name = pathlib.Path(trace).stem
        for load in options.loads.split(","):
            sizes = []
            for start_up in options.start_ups.split(","):
                for policy in options.policies.split(","):
                    got = dry_run(options, trace, "--policy", policy, "--start-up", start_up, "--arrival-speedup", load)
                    sizes.append(got["workers_mean"])
                    show({"trace": name, "load": load, "start_up": start_up, "policy": policy, **got})
            usual = sum(sizes) / len(sizes)
            for size in sorted({max(1, round(usual * float(part))) for part in options.statics.split(",") if part}):
                got = dry_run(options, trace, "--policy", f"static:{size}", "--arrival-speedup", load)
                show({"trace": name, "load": load, "start_up": "-", "policy": f"static:{size}", **got})
    print_verdicts(rows)


if __name__ == "__main__":
    main()
