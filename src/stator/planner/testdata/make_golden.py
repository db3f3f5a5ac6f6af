#!/usr/bin/env python3
"""Writes forecasts.json: what filterpy and pmdarima forecast for 20 made-up series.

    python3 -m venv v && v/bin/pip install filterpy==1.4.5 pmdarima==2.1.1 && v/bin/python make_golden.py
"""
import json
import pathlib
import time
import warnings

import numpy as np
import pmdarima
from filterpy.kalman import KalmanFilter

LENGTH, FIRST = 96, 72  # one-step forecasts of the values from FIRST on


def series(kind: int, rng: np.random.Generator) -> np.ndarray:
    n, e = LENGTH, rng.normal(size=LENGTH)
    t = np.arange(n)

    def arma(phi, theta, scale=1.0):
        y = np.zeros(n)
        for i in range(n):
            y[i] = e[i] * scale + sum(p * y[i - k - 1] for k, p in enumerate(phi) if i > k)
            y[i] += sum(q * e[i - k - 1] * scale for k, q in enumerate(theta) if i > k)
        return y

    made = [
        lambda: 50 + arma([0.7], []),
        lambda: 50 + arma([0.9], [], 3),
        lambda: 30 + arma([], [0.6], 2),
        lambda: 40 + arma([0.5, -0.3], [], 4),
        lambda: 100 + np.cumsum(e),
        lambda: 100 + np.cumsum(e * 5) + 2 * t,
        lambda: 20 + e,
        lambda: 60 + arma([0.6], [0.4], 5),
        lambda: 10 + 0.5 * t + e,
        lambda: 80 + 20 * np.sin(t / 6) + e * 2,
        lambda: 200 + np.cumsum(np.cumsum(e * 0.2)),
        lambda: np.where(t < 48, 20, 60) + e * 2,
        lambda: rng.poisson(12, n).astype(float),
        lambda: rng.poisson(30 + 15 * np.sin(t / 10)).astype(float),
        lambda: np.exp(3 + arma([0.8], [], 0.2)),
        lambda: 100 + np.cumsum(arma([0.5], [], 2)),
        lambda: 50 + arma([1.2, -0.4], [], 2),
        lambda: 50 + arma([0.4], [-0.3, 0.2], 3),
        lambda: rng.poisson(np.maximum(5, 40 + np.cumsum(e * 2))).astype(float),
        lambda: 70 + np.cumsum(arma([], [-0.5], 3)),
    ]
    return np.round(made[kind](), 4)


def kalman(values: np.ndarray, steps: int) -> list[float]:
    f = KalmanFilter(dim_x=2, dim_z=1)
    f.F, f.H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    f.Q, f.R, f.P = np.diag([1.0, 0.1]), np.array([[10.0]]), np.eye(2) * 1000.0
    f.x = np.array([[values[0]], [0.0]])
    for value in values[1:]:
        f.predict()
        f.update(np.array([[value]]))
    out = []
    for _ in range(steps):
        f.predict()
        out.append(float(f.x[0, 0]))
    return out


def arima(values: np.ndarray) -> tuple[float, float]:
    """Mean absolute one-step error, and milliseconds per forecast."""
    begin, errors, model = time.perf_counter(), [], None
    for end in range(FIRST, LENGTH):
        if model is None:
            model = pmdarima.auto_arima(values[:end], seasonal=False, suppress_warnings=True, error_action="ignore")
        else:
            model.update(values[end - 1 : end])
        errors.append(abs(float(model.predict(1)[0]) - values[end]))
    return float(np.mean(errors)), (time.perf_counter() - begin) * 1e3 / (LENGTH - FIRST)


def main() -> None:
    warnings.filterwarnings("ignore")
    rows = []
    for kind in range(20):
        values = series(kind, np.random.default_rng(100 + kind))
        loss, ms = arima(values)
        rows.append({"series": values.tolist(), "first": FIRST, "kalman": kalman(values, 3), "arima_loss": loss, "arima_ms": ms})
        print(kind, loss, ms)
    path = pathlib.Path(__file__).parent / "forecasts.json"
    path.write_text("[" + ",\n".join(json.dumps(row) for row in rows) + "]\n")


if __name__ == "__main__":
    main()
