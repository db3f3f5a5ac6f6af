# SPDX-License-Identifier: Apache-2.0
"""Which shared libraries a program needs, and the stripped program itself: for packages that carry both."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys

# Of the C library: what every system has, and what must be the system's own.
LIBC = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux", "libresolv.so", "linux-vdso", "libnss_", "libutil.so")


def loaded_on_use(binary: pathlib.Path) -> list[str]:
    """Names of the libraries the program loads when it first needs them: the notes of
    https://uapi-group.org/specifications/specs/elf_dlopen_metadata/."""
    copy = ["objcopy", "-O", "binary", "--only-section=.note.dlopen", str(binary), "/dev/stdout"]
    notes = subprocess.run(copy, check=True, capture_output=True).stdout
    names = []
    while notes:
        owner, size, _ = struct.unpack_from("<III", notes)
        text = 12 + (owner + 3) // 4 * 4
        names += [name for entry in json.loads(notes[text : text + size].rstrip(b"\0")) for name in entry["soname"]]
        notes = notes[text + (size + 3) // 4 * 4 :]
    return names


def needed(binary: pathlib.Path) -> dict[str, pathlib.Path]:
    """File name → file, of all libraries the dynamic loader takes at the start or later, the loader included."""
    found = needed_at_start(binary)
    if on_use := loaded_on_use(binary):
        cache = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
        for name in on_use:
            match = re.search(rf"^\s*{re.escape(name)} .*=> (/\S+)", cache, re.M)
            if not match:
                raise SystemExit(f"{binary}: {name} is not installed")
            found |= {name: pathlib.Path(match.group(1))} | needed_at_start(pathlib.Path(match.group(1)))
    return found


def needed_at_start(binary: pathlib.Path) -> dict[str, pathlib.Path]:
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


if __name__ == "__main__":  # the files, a line each
    for name, path in needed(pathlib.Path(sys.argv[1])).items():
        if not is_libc(name):
            print(path)
