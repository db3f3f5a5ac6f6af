#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits how far engines stay behind the speed of light, or behind kernels measured alone, and how long requests wait in front of them.

    fit_efficiency.py silicon_sample.csv --binary build/release/bin/stator [--database DIR] --write
    fit_efficiency.py silicon_sample.csv --binary build/release/bin/stator --hold-out rows|models|gpus

Measured rows have silicon_ttft_ms and silicon_tpot_ms. One model per backend: 11 factors for decodes and 11 for prompts; a factor per GPU, per kind
of model and precision, and per shape of model; powers of how an engine is cut; the queue per mode. Priors keep what rows say little about near its
start. Rows that do not say how many engines served them are left out; afterwards a rule for that number is fitted to them alone. --hold-out
fits without a part of the rows and prints the errors on it. --write replaces the tables of perf/detail and configurator/detail.
Needs numpy and scipy.
"""

import argparse
import csv
import io
import json
import pathlib
import subprocess

import numpy as np
from scipy.optimize import least_squares

PARTS = 11
DECODE = [1.3, 0.2, 1.5, 0.2, 1.3, 1.4, 0.008, 1.25, 0.008, 0.3, 0.004]
CONTEXT = [1.4, 0.2, 1.6, 0.2, 1.8, 1.4, 0.008, 1.25, 0.008, 0.5, 0.05]
QUEUE = [1.0, 0.05, 1.0, 0.5, 10.0]
BACKENDS = ["sglang", "trtllm", "vllm"]
ROOFS = [0, 2, 4]  # of products, experts, attention
# The least of each part, as perf/efficiency.cc has it: nothing is faster than light, but kernels overlap and are faster than alone.
LEAST = np.array([1, 0, 0.6, 0, 0.6, 0.5, 0, 0, 0, 0, 0])
OVERLAP = 0.4
CUTS = 4  # powers of tp, dp, experts' ranks with dp, the same without
POWERS = 4  # of the queue
WORKERS = [1, 2, 4, 8, 16, 32]  # that are tried where a row does not say it
# Chosen by --hold-out models: with weaker ones a model of which no row was fitted is off by several times.
PRIOR_PART, PRIOR, PRIOR_SHAPE, PRIOR_POWER = 3.0, 1.0, 2.0, 20.0
ROOT = pathlib.Path(__file__).resolve().parents[2]


def number(row, column):
    return float(row.get(column) or 1) or 1.0


def side(row, decodes):
    return "" if row["mode"] != "disagg" else "decode_" if decodes else "prefill_"


def says_workers(row):
    return row["mode"] != "disagg" or bool(row["decode_num_workers"])


def concurrency(row):
    found = row["silicon_data_source"].split("silicon_concurrency=")
    return float(found[1].split(";")[0]) if len(found) > 1 else 0.0


class Fit:
    def __init__(self, rows, least=LEAST):
        self.least = least
        self.systems = sorted({r["system"] for r in rows})
        self.families = sorted({r["parts"]["family"] for r in rows})
        self.shapes = sorted({r["parts"]["shape"] for r in rows})
        n = self.names = len(self.systems) + len(self.families) + len(self.shapes)
        self.at = {}
        start, weight = [], []

        def add(name, values, prior):
            self.at[name] = slice(len(start), len(start) + len(values))
            start.extend(values)
            weight.extend(np.broadcast_to(prior, len(values)))

        add("decode", np.log(DECODE), PRIOR_PART)
        add("context", np.log(CONTEXT), PRIOR_PART)
        add("queue", np.tile(np.log(QUEUE), 2), PRIOR)
        add("factors", np.zeros(3 * n), np.tile([PRIOR] * (n - len(self.shapes)) + [PRIOR_SHAPE] * len(self.shapes), 3))
        add("decode_cut", np.zeros(CUTS), PRIOR_POWER)
        add("context_cut", np.zeros(CUTS), PRIOR_POWER)
        add("decode_power", [0], PRIOR_POWER)
        add("scale", [0, 0], PRIOR_POWER)  # of disaggregated decodes and prompts
        add("powers", np.zeros(2 * POWERS), PRIOR_POWER)
        self.start, self.weight = np.array(start, float), np.array(weight, float)

    def load(self, rows):
        column = lambda f: np.array([f(r) for r in rows], dtype=float)
        parts = [r["parts"] for r in rows]

        def cut(row, decodes):
            tp, dp, ep = (np.log(number(row, side(row, decodes) + name)) for name in ("tp_size", "attention_dp_size", "moe_ep_size"))
            return [tp, dp, ep if dp > 0 else 0, 0 if dp > 0 else ep]

        def one_hot(names, values, unseen):
            out = np.zeros((len(rows), len(names)))
            for line, value in zip(out, values, strict=True):
                line[names.index(value) if value in names else slice(None)] = 1 if value in names else unseen
            return out

        t = {
            "decode": np.array([p["decode"] for p in parts]),
            "prompt": np.array([p["prompt"] for p in parts]),
            "others": np.array([p["others"] for p in parts]),
            "queued": np.array([p["queued"] for p in parts], dtype=float),
            "batch": np.array([p["batch"] for p in parts], dtype=float),
            "osl": column(lambda r: float(r["osl"])),
            "mode": np.array([int(r["mode"] == "disagg") for r in rows]),
            "decode_cut": np.array([cut(r, True) for r in rows]),
            "context_cut": np.array([cut(r, False) for r in rows]),
            "ttft": column(lambda r: float(r["silicon_ttft_ms"])),
            "itl": column(lambda r: float(r["silicon_tpot_ms"])),
            "hot": np.hstack([one_hot(self.systems, [r["system"] for r in rows], 1 / len(self.systems)),
                              one_hot(self.families, [p["family"] for p in parts], 1 / len(self.families)),
                              one_hot(self.shapes, [p["shape"] for p in parts], 0)]),
        }
        isl = column(lambda r: float(r["isl"]))
        t["powers"] = np.stack([np.log((t["queued"] + 1) / 20), np.log(isl / 1024), np.log(t["osl"] / 1024),
                                np.log(np.maximum(1, t["queued"]) * isl / 22268)], 1)
        return t

    def predict(self, x, t):
        get = lambda name: x[self.at[name]]
        queue = np.exp(get("queue")).reshape(2, 5)[t["mode"]]
        factors = get("factors").reshape(3, self.names)
        apart = t["mode"] == 1
        scale = get("scale")

        def times(parts, base, factor):
            return (parts * np.maximum(self.least, np.exp(base)[None, :] * np.exp(factor)[:, None])).sum(1)

        decode = times(t["decode"], get("decode"), t["hot"] @ factors[0] + t["decode_cut"] @ get("decode_cut")) * np.exp(
            get("decode_power") * np.log(t["batch"] / 20) + scale[0] * apart)
        added = times(t["prompt"], get("context"), t["hot"] @ factors[1] + t["context_cut"] @ get("context_cut")) * np.exp(scale[1] * apart)
        itl = decode + added * t["others"]
        busy = np.minimum(0.95, (t["queued"] + apart) * added / (added + itl * t["osl"]))
        wait = queue[:, 1] * t["queued"] * added + queue[:, 3] * added * busy / (1 - busy)
        ttft = (queue[:, 0] * added + queue[:, 2] * decode + queue[:, 4] + wait) * np.exp(
            t["hot"] @ factors[2] + (t["powers"] * get("powers").reshape(2, POWERS)[t["mode"]]).sum(1))
        return ttft, itl

    def run(self, rows):
        t = self.load(rows)

        def residuals(x):
            ttft, itl = self.predict(x, t)
            return np.concatenate([ttft / t["ttft"] - 1, itl / t["itl"] - 1, self.weight * (x - self.start)])

        # Nothing is faster than light: what multiplies arithmetic and traffic stays above 1 before the factors of GPU and model.
        low, high = np.full(len(self.start), -9.0), np.full(len(self.start), 9.0)
        for name in ("decode", "context"):
            for part in ROOFS:
                low[self.at[name]][part] = 0.0
        low[self.at["factors"]], high[self.at["factors"]] = np.log(0.25), np.log(4.0)
        for name in ("decode_cut", "context_cut", "decode_power", "scale", "powers"):
            low[self.at[name]], high[self.at[name]] = -0.6, 0.6
        # Apart, a hand-over takes its time, too: the better of two beginnings.
        results = []
        for fixed_ms in (QUEUE[4], 200.0):
            start = np.clip(self.start, low + 1e-6, high - 1e-6)
            start[self.at["queue"].start + 9] = np.log(fixed_ms)
            results.append(least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, max_nfev=60))
        self.x = min(results, key=lambda each: each.cost).x
        return self

    def errors(self, rows):
        t = self.load(rows)
        ttft, itl = self.predict(self.x, t)
        return np.abs(ttft / t["ttft"] - 1), np.abs(itl / t["itl"] - 1)


class FleetGuess:
    """Engines of each side where rows do not say them: (concurrency / (per_gpu · GPUs)) ^ power, at least 1."""

    def __init__(self, fit, by_workers):
        """`by_workers[w]`: rows with w decode engines and one for prompts."""
        rows = by_workers[0]
        tables = [fit.load(each) for each in by_workers]
        load = np.array([concurrency(r) for r in rows])
        gpus = {decodes: np.array([number(r, side(r, decodes) + "tp_size") * number(r, side(r, decodes) + "attention_dp_size") for r in rows])
                for decodes in (True, False)}
        rule = lambda decodes, per_gpu, power: np.clip((np.maximum(load, 1e-9) / (per_gpu * gpus[decodes])) ** power, 1, 64)
        grid = [(k, p) for k in (0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 32, 64) for p in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1)]

        def table(workers, prefills):
            x = np.log2(np.clip(workers, 1, WORKERS[-1]))
            low = np.minimum(np.floor(x).astype(int), len(WORKERS) - 2)
            part = (x - low)[:, None]
            out = dict(tables[0])
            stack = np.stack([each["decode"] for each in tables])
            lines = np.arange(len(rows))
            out["decode"] = stack[low, lines] * (1 - part) + stack[low + 1, lines] * part
            out["batch"] = np.maximum(1, tables[0]["batch"] / workers)
            dp = np.array([number(r, "prefill_attention_dp_size") for r in rows])
            out["queued"] = np.maximum(0, load / (prefills * dp) - 1)
            isl = np.array([float(r["isl"]) for r in rows])
            out["powers"] = np.stack([np.log((out["queued"] + 1) / 20), np.log(isl / 1024), np.log(out["osl"] / 1024),
                                      np.log(np.maximum(1, out["queued"]) * isl / 22268)], 1)
            return out

        scales = np.exp(np.linspace(np.log(0.4), np.log(2.5), 25))

        def best(predict, measured):
            """The rule, and the factor on what is predicted with it, that are off least."""
            error = lambda predicted: np.minimum(2, np.abs(predicted / measured - 1)).mean()
            tried = [(error(scale * predicted), rule_of, scale) for rule_of in grid for predicted in [predict(rule_of)] for scale in scales]
            return min(tried)[1:]

        ones = np.ones(len(rows))
        itl = lambda each: fit.predict(fit.x, table(rule(True, *each), ones))[1]
        self.decode, self.itl_scale = best(itl, tables[0]["itl"])
        workers = rule(True, *self.decode)
        ttft = lambda each: fit.predict(fit.x, table(workers, rule(False, *each)))[0]
        self.prefill, self.ttft_scale = best(ttft, tables[0]["ttft"])
        self.ttft = np.abs(self.ttft_scale * ttft(self.prefill) / tables[0]["ttft"] - 1).mean()
        self.itl = np.abs(self.itl_scale * itl(self.decode) / tables[0]["itl"] - 1).mean()


def estimate(options, rows, database=None):
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    command = [options.binary, "configure", "estimate", "--csv", "-", "--json", "--parts"] + (["--database", database] if database else [])
    done = subprocess.run(command, input=text.getvalue(), capture_output=True, text=True, check=True)
    return [r for r in json.loads(done.stdout) if "parts" in r]


def report(name, fit, rows):
    ttft, itl = fit.errors(rows)
    print(f"{name}: {len(rows)} rows, ttft {ttft.mean():.3f} (median {np.median(ttft):.3f}), itl {itl.mean():.3f} (median {np.median(itl):.3f})", flush=True)


def hold_out(kind, rows):
    """Errors on rows that were not fitted: a third at random, or all of one model or GPU at a time."""
    for backend in BACKENDS:
        mine = [r for r in rows if r["backend"] == backend]
        random = np.random.RandomState(7).permutation(len(mine)) % 3
        key = {"rows": lambda i: int(random[i]), "models": lambda i: mine[i]["parts"]["shape"], "gpus": lambda i: mine[i]["system"]}[kind]
        sums = []
        for group in sorted({key(i) for i in range(len(mine))}):
            test = [r for i, r in enumerate(mine) if key(i) == group]
            train = [r for i, r in enumerate(mine) if key(i) != group]
            fit = Fit(train).run(train)
            report(f"{backend} without {group}", fit, test)
            sums.append(np.array(fit.errors(test)))
        print(f"{backend} held out by {kind}: ttft {np.hstack(sums)[0].mean():.3f} itl {np.hstack(sums)[1].mean():.3f}", flush=True)


def braces(values):
    """At most 100 columns wide."""
    text = "{" + ", ".join(f"{v:.4g}" for v in values) + "}"
    cut = text.rfind(", ", 0, 90)
    return text if len(text) <= 95 else text[: cut + 1] + "\n  " + text[cut + 2 :]


HEAD = """// SPDX-License-Identifier: Apache-2.0
#pragma once

// Written by bench/planning/fit_efficiency.py.

"""


def write(fits, guesses):
    """`fits[kind][backend]`, kind "kLight" or "kMeasured"."""
    bases, factors, queues, fleets = [], [], [], []
    for kind, by_backend in fits.items():
        for backend, fit in by_backend.items():
            get = lambda name, fit=fit: fit.x[fit.at[name]]
            bases.append(f'{{PartsOf::{kind}, "{backend}",\n {braces(np.exp(get("decode")))},\n {braces(np.exp(get("context")))},\n '
                         f'{braces(get("decode_cut"))},\n {braces(get("context_cut"))}, {get("decode_power")[0]:.4g}}},')
            for name, line in zip(fit.systems + fit.families + fit.shapes, np.exp(get("factors").reshape(3, -1)).T, strict=True):
                factors.append(f'{{PartsOf::{kind}, "{backend}", "{name}", {", ".join(f"{v:.4g}" for v in line)}}},')
            scale = np.exp(get("scale"))
            for mode, queue, powers in zip(("agg", "disagg"), np.exp(get("queue")).reshape(2, 5), get("powers").reshape(2, POWERS), strict=True):
                queues.append(f'{{perf::PartsOf::{kind}, "{backend}", "{mode}",\n '
                              f'{braces([*queue, *(scale if mode == "disagg" else (1, 1)), *powers])}}},')
    for backend, guess in guesses.items():
        fleets.append(f'{{"{backend}", {braces(guess.prefill)}, {braces(guess.decode)}, {guess.ttft_scale:.4g}, {guess.itl_scale:.4g}}},')
    table = lambda kind, name, lines: f"inline constexpr std::array<{kind}, {len(lines)}> {name} = {{{{\n" + "\n".join(lines) + "\n}};\n"
    (ROOT / "src/stator/perf/detail/efficiency_tables.h").write_text(
        HEAD + '#include <array>\n#include <string_view>\n\n#include "stator/perf/engine_model.h"\n\nnamespace stator::perf::detail {\n\n'
        "struct EfficiencyBase {\n  PartsOf parts;\n  std::string_view backend;\n  PassParts decode, context;\n"
        "  /// Powers of tp, dp, and experts' ranks with dp and without.\n  std::array<double, 4> decode_cut, context_cut;\n  double decode_power;\n};\n"
        "/// Of one GPU, of one kind of model and precision of its experts, or of one shape of model.\n"
        "struct EfficiencyFactor {\n  PartsOf parts;\n  std::string_view backend, name;\n  double decode, context, first_token;\n};\n\n// clang-format off\n"
        + table("EfficiencyBase", "kEfficiencyBases", bases) + table("EfficiencyFactor", "kEfficiencyFactors", factors)
        + "// clang-format on\n\n}  // namespace stator::perf::detail\n")
    (ROOT / "src/stator/configurator/detail/queue_tables.h").write_text(
        HEAD + '#include <array>\n#include <string_view>\n\n#include "stator/configurator/serving_point.h"\n\nnamespace stator::configurator::detail {\n\n'
        "struct QueueRow {\n  perf::PartsOf parts;\n  std::string_view backend, mode;\n  QueueModel queue;\n};\n"
        "/// Engines of one side: (requests at once / (per_gpu · GPUs of an engine)) ^ power.\nstruct WorkersRule {\n  double per_gpu, power;\n};\n"
        "/// `ttft` and `itl`: what such deployments were measured to take over what the model says.\n"
        "struct FleetRow {\n  std::string_view backend;\n  WorkersRule prefill, decode;\n  double ttft, itl;\n};\n\n// clang-format off\n"
        + table("QueueRow", "kQueues", queues) + table("FleetRow", "kFleets", fleets) + "// clang-format on\n\n}  // namespace stator::configurator::detail\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample")
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/stator"))
    parser.add_argument("--database", help="folder systems/data of AIConfigurator: factors over measured kernels too")
    parser.add_argument("--hold-out", choices=("rows", "models", "gpus"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with open(options.sample, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    complete = [r for r in rows if says_workers(r)]
    light = estimate(options, complete)
    measured = estimate(options, complete, options.database) if options.database else light
    if options.hold_out:
        hold_out(options.hold_out, measured)
        return
    fits = {"kLight": {}, "kMeasured": {}}
    guesses = {}
    for backend in BACKENDS:
        for kind, of in (("kLight", light), ("kMeasured", measured)):
            mine = [r for r in of if r["backend"] == backend]
            fits[kind][backend] = Fit(mine, LEAST * (OVERLAP if kind == "kMeasured" else 1)).run(mine)
            report(f"{backend} {kind}", fits[kind][backend], mine)
    silent = [r for r in rows if not says_workers(r)]
    tried = [estimate(options, [{**r, "decode_num_workers": w, "prefill_num_workers": 1} for r in silent]) for w in WORKERS]
    for backend in BACKENDS:
        mine = [[r for r in each if r["backend"] == backend] for each in tried]
        if not mine[0]:
            guesses[backend] = guesses["trtllm"]
            continue
        guesses[backend] = guess = FleetGuess(fits["kLight"][backend], mine)
        print(f"{backend}: {len(mine[0])} rows without numbers of engines, decode {guess.decode}, prefill {guess.prefill}: "
              f"ttft {guess.ttft:.3f} itl {guess.itl:.3f}")
    if options.write:
        write(fits, guesses)


if __name__ == "__main__":
    main()
