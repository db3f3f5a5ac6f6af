# SPDX-License-Identifier: Apache-2.0
"""Where the binary is, and how to run it."""

from __future__ import annotations

import os
import pathlib
import sys

_HERE = pathlib.Path(__file__).resolve().parent


def binary_path() -> str:
    """The program: the one of STATOR_BINARY, else the one inside the package."""
    return os.environ.get("STATOR_BINARY") or str(_HERE / "bin" / "stator")


def demo_model() -> str:
    """The folder of the demo model inside the package."""
    return str(_HERE / "models" / "demo")


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """What the program has to find in its environment: its libraries lie beside it."""
    env = dict(os.environ, **(extra or {}))
    libraries = _HERE / "lib"
    if not os.environ.get("STATOR_BINARY") and libraries.is_dir():
        before = env.get("LD_LIBRARY_PATH", "")
        env["LD_LIBRARY_PATH"] = f"{libraries}:{before}" if before else str(libraries)
    return env


def version() -> str:
    try:
        return (_HERE / "VERSION").read_text().strip()
    except OSError:
        return "0"


def main() -> None:
    """The command `stator` of an installed package."""
    os.execve(binary_path(), [binary_path(), *sys.argv[1:]], environment())
