# SPDX-License-Identifier: Apache-2.0
"""Which shared libraries a program needs, and the stripped program itself: for packages that carry both."""

import pathlib
import re
import shutil
import subprocess

# Of the C library: what every system has, and what must be the system's own.
LIBC = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux", "libresolv.so", "linux-vdso", "libnss_", "libutil.so")


def needed(binary: pathlib.Path) -> dict[str, pathlib.Path]:
    """File name → file, of all libraries the dynamic loader takes, the loader included."""
    text = subprocess.run(["ldd", str(binary)], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line) or re.match(r"\s*(/\S+/(\S+)) \(", line)
        if match:
            path = pathlib.Path(match.group(2) if "=>" in line else match.group(1))
            found[pathlib.Path(match.group(1)).name] = path
        elif "not found" in line:
            raise SystemExit(f"{binary}: {line.strip()}")
    return found


def is_libc(name: str) -> bool:
    return name.startswith(LIBC)


def stripped(binary: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(binary, target)
    subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)
    target.chmod(0o755)
