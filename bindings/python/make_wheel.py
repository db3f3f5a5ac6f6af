#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of the package `stator` with the program and its libraries inside (PEP 427). Standard library only; the same input
gives the same bytes.

usage: bindings/python/make_wheel.py --binary build/release/bin/stator --version 0.1.0 --out DIR
"""

import argparse
import base64
import hashlib
import os
import pathlib
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import libraries  # noqa: E402

TIME = (2026, 1, 1, 0, 0, 0)


def contents(binary: pathlib.Path, version: str, scratch: pathlib.Path) -> dict[str, tuple[bytes, bool]]:
    """Path in the wheel → (bytes, executable)."""
    files = {}
    for path in sorted((ROOT / "bindings/python/stator").glob("*.py")):
        files[f"stator/{path.name}"] = (path.read_bytes(), False)
    files["stator/VERSION"] = (version.encode() + b"\n", False)
    libraries.stripped(binary, scratch / "stator")
    files["stator/bin/stator"] = ((scratch / "stator").read_bytes(), True)
    for name, path in sorted(libraries.needed(binary).items()):
        if not libraries.is_libc(name):
            files[f"stator/lib/{name}"] = (path.read_bytes(), False)
    files |= kv_package(binary.resolve().parents[1] / "lib" / "libstator_kv.so.1", scratch)
    for path in sorted((ROOT / "models/demo").rglob("*")):
        if path.is_file():
            files[f"stator/models/demo/{path.relative_to(ROOT / 'models/demo')}"] = (path.read_bytes(), False)
    info = f"stator-{version}.dist-info"
    readme = (ROOT / "bindings/python/README.md").read_text()
    files[f"{info}/METADATA"] = (f"Metadata-Version: 2.1\nName: stator\nVersion: {version}\nSummary: LLM inference engines as one service\n"
                                 f"License: Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n{readme}".encode(), False)
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: stator\nRoot-Is-Purelib: false\nTag: py3-none-{platform_tag()}\n".encode(), False)
    files[f"{info}/entry_points.txt"] = (b"[console_scripts]\nstator = stator._binary:main\n", False)
    files[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    return files


def kv_package(library: pathlib.Path, scratch: pathlib.Path) -> dict[str, tuple[bytes, bool]]:
    """stator_kv with its library; what that needs beyond the system's lies in stator/lib."""
    if not library.exists():
        print(f"without stator_kv: there is no {library} (cmake --build --preset release --target stator_kv_c)", file=sys.stderr)
        return {}
    files = {f"stator_kv/{path.name}": (path.read_bytes(), False) for path in sorted((ROOT / "bindings/python/stator_kv").glob("*.py"))}
    libraries.stripped(library, scratch / library.name)
    files[f"stator_kv/lib/{library.name}"] = ((scratch / library.name).read_bytes(), True)
    for name, path in sorted(libraries.needed(library).items()):
        if not libraries.is_libc(name):
            files[f"stator/lib/{name}"] = (path.read_bytes(), False)
    return files


def platform_tag() -> str:
    """By the C library that the program was built with: older ones do not have what it needs."""
    major, minor = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]
    return f"manylinux_{major}_{minor}_{os.uname().machine}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        files = contents(options.binary, options.version, pathlib.Path(scratch))
    record = f"stator-{options.version}.dist-info/RECORD"
    lines = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
             for name, (data, _) in files.items()]
    files[record] = ("\n".join([*lines, f"{record},,"]).encode() + b"\n", False)
    wheel = options.out / f"stator-{options.version}-py3-none-{platform_tag()}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, (data, executable) in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(wheel)


if __name__ == "__main__":
    main()
