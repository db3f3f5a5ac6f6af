#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time from exec of `stator serve MODEL` to its ready line, and its resident memory at rest."""

import os
import time

import measure


def add_options(parser):
    parser.add_argument("--runs", type=int, default=5, help="median of so many [5]")
    parser.add_argument("--server-flag", action="append", default=[], help="more flags of serve")


def measure_startup(options):
    seconds, megabytes, answer_seconds, answer_megabytes = [], [], [], []
    for _ in range(options.runs):
        with measure.Server(options, options.server_flag) as server:
            seconds.append(server.startup_s)
            megabytes.append(server.rss_kib() * 1024 / 1e6)
            started = time.monotonic()
            server.post({"model": server.model_name(), "max_tokens": 16,
                         "messages": [{"role": "user", "content": "What is Stator?"}]})
            answer_seconds.append(time.monotonic() - started)
            answer_megabytes.append(server.rss_kib() * 1024 / 1e6)
    measure.detail(options, f"ready after {', '.join(f'{s:.3f}' for s in seconds)} s; resident "
                   f"{', '.join(f'{m:.1f}' for m in megabytes)} MB")
    measure.detail(options, f"a first answer of 16 tokens took {measure.median(answer_seconds):.3f} s; "
                   f"resident after it {measure.median(answer_megabytes):.1f} MB")
    note = f"machine load {os.getloadavg()[0]:.1f}"
    return [measure.Bar("start to ready", measure.median(seconds), 1.0, "s", note=note),
            measure.Bar("resident memory at rest", measure.median(megabytes), 150, "MB", note=note)]


if __name__ == "__main__":
    measure.main(measure_startup, measure.parse_arguments(__doc__, add_options))
