#!/usr/bin/env python3
"""Fits how far engines stay behind the speed of light: efficiencies of kinds of work, waits in front of engines.

    stator configure estimate --csv MEASURED.csv --json --parts > parts.json
    fit_efficiency.py parts.json            # prints the tables of perf/efficiency_table.inc and configurator/queue_table.inc

Measured rows have silicon_ttft_ms and silicon_tpot_ms. One model per backend: 11 factors for decodes and 11 for prompts, one more
factor per GPU and per kind of model and precision, five of the queue per mode. Priors keep factors that the rows say little
about near their start. Needs numpy and scipy. --folds N prints errors of rows that were left out.
"""
import argparse
import json

import numpy as np
from scipy.optimize import least_squares

PARTS = 11
DECODE = [1.3, 0.2, 1.5, 0.2, 1.3, 1.4, 0.008, 1.25, 0.008, 0.3, 0.004]
CONTEXT = [1.4, 0.2, 1.6, 0.2, 1.8, 1.4, 0.008, 1.25, 0.008, 0.5, 0.05]
QUEUE = [1.0, 0.05, 1.0, 0.5, 10.0]
MODES = ["agg", "disagg"]
ROOFS = [0, 2, 4]  # of products, experts, attention


def family(row):
    kind = row["kind"]
    return f"{kind}:{row['lane']}"


class Fit:
    def __init__(self, rows, prior=0.05):
        self.systems = sorted({r["system"] for r in rows})
        self.families = sorted({family(r) for r in rows})
        self.prior = prior
        self.start = np.log(np.concatenate([DECODE, CONTEXT, QUEUE, QUEUE, np.ones(3 * (len(self.systems) + len(self.families)))]))

    def load(self, rows):
        n = len(self.systems)
        a = lambda f: np.array([f(r) for r in rows], dtype=float)
        return {
            "d": np.array([r["parts"]["decode"] for r in rows]),
            "m": np.array([r["parts"]["prompt"] for r in rows]),
            "others": a(lambda r: r["parts"]["others"]),
            "queued": a(lambda r: r["parts"]["queued"]),
            "batch": a(lambda r: r["parts"]["batch"]),
            "osl": a(lambda r: float(r["osl"])),
            "mode": np.array([MODES.index(r["mode"]) for r in rows]),
            "s": np.array([self.systems.index(r["system"]) for r in rows]),
            "f": np.array([self.families.index(family(r)) if family(r) in self.families else 0 for r in rows]) + n,
            "busy": a(lambda r: r["parts"].get("busy_scale", 0)),
            "ttft": a(lambda r: float(r["silicon_ttft_ms"])),
            "itl": a(lambda r: float(r["silicon_tpot_ms"])),
        }

    def predict(self, x, t):
        p = np.exp(x)
        d, c, q = p[:PARTS], p[PARTS : 2 * PARTS], p[2 * PARTS : 2 * PARTS + 10].reshape(2, 5)[t["mode"]]
        more = p[2 * PARTS + 10 :].reshape(3, -1)
        decode = t["d"] @ d * more[0][t["s"]] * more[0][t["f"]]
        added = t["m"] @ c * more[1][t["s"]] * more[1][t["f"]]
        itl = decode + added * t["others"]
        agg = t["mode"] == 0
        busy = np.where(agg, (t["batch"] - 1) * added / (added + itl * t["osl"]), t["busy"] * added / (itl * t["osl"]))
        busy = np.minimum(busy, 0.95)
        wait = q[:, 1] * t["queued"] * added + q[:, 3] * added * busy / (1 - busy)
        ttft = (q[:, 0] * added + q[:, 2] * decode + q[:, 4] + wait) * more[2][t["s"]] * more[2][t["f"]]
        return ttft, itl

    def run(self, rows):
        t = self.load(rows)

        def residuals(x):
            ttft, itl = self.predict(x, t)
            return np.concatenate([ttft / t["ttft"] - 1, itl / t["itl"] - 1, self.prior * (x - self.start)])

        # Nothing is faster than light: what multiplies arithmetic and traffic stays above 1 before the factors of GPU and model.
        low, high = np.full(len(self.start), -9.0), np.full(len(self.start), 9.0)
        for part in ROOFS:
            low[part] = low[PARTS + part] = 0.0
        factors = slice(2 * PARTS + 10, None)
        low[factors], high[factors] = np.log(0.4), np.log(4.0)
        start = np.clip(self.start, low + 1e-6, high - 1e-6)
        self.x = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, max_nfev=150).x
        return self

    def errors(self, rows):
        t = self.load(rows)
        ttft, itl = self.predict(self.x, t)
        return np.abs(ttft / t["ttft"] - 1), np.abs(itl / t["itl"] - 1)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("parts")
    args.add_argument("--folds", type=int, default=0)
    args.add_argument("--prior", type=float, default=0.05)
    args = args.parse_args()
    rows = [r for r in json.load(open(args.parts)) if "parts" in r]
    out = {}
    for backend in sorted({r["backend"] for r in rows}):
        mine = [r for r in rows if r["backend"] == backend]
        for fold in range(args.folds):
            test = [r for i, r in enumerate(mine) if i % args.folds == fold]
            train = [r for i, r in enumerate(mine) if i % args.folds != fold]
            ttft, itl = Fit(train, args.prior).run(train).errors(test)
            print(f"// {backend} fold {fold}: ttft {ttft.mean():.3f} itl {itl.mean():.3f}")
        fit = Fit(mine, args.prior).run(mine)
        ttft, itl = fit.errors(mine)
        print(f"// {backend}: {len(mine)} rows, ttft {ttft.mean():.3f} (median {np.median(ttft):.3f}), itl {itl.mean():.3f} (median {np.median(itl):.3f})")
        out[backend] = fit
    number = lambda v: f"{v:.4g}"
    print("// efficiency_table.inc")
    for backend, fit in out.items():
        p = np.exp(fit.x)
        print(f'{{"{backend}", {{{", ".join(map(number, p[:PARTS]))}}},\n {{{", ".join(map(number, p[PARTS : 2 * PARTS]))}}}}},')
    print("// factor_table.inc")
    for backend, fit in out.items():
        more = np.exp(fit.x)[2 * PARTS + 10 :].reshape(3, -1)
        for i, name in enumerate(fit.systems + fit.families):
            print(f'{{"{backend}", "{name}", {number(more[0][i])}, {number(more[1][i])}, {number(more[2][i])}}},')
    print("// queue_table.inc")
    for backend, fit in out.items():
        q = np.exp(fit.x)[2 * PARTS : 2 * PARTS + 10].reshape(2, 5)
        for mode, row in zip(MODES, q):
            print(f'{{"{backend}", "{mode}", {{{", ".join(map(number, row))}}}}},')


if __name__ == "__main__":
    main()
