#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file and every name of code that ARCHITECTURE.md and the READMEs of modules mention exists; run as the test `tidy.doc_names`.

A name is what stands in backticks without a space: `net/shard.h`, `Router::route`, `LoadLease`, `kv::BlockPool`. Names of flags, routes,
settings, metrics and values are left to the tests that run them, and targets (`stator_…`) to CMake.
"""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "stator"
PAGES = [ROOT / "ARCHITECTURE.md", SRC / "README.md", *sorted(SRC.rglob("README.md"))]
FILE = re.compile(r"^[\w.{},-]+(/[\w.{},-]+)*\.(h|cc|md|py|sh|proto|txt|cmake|json)$")
NAME = re.compile(r"^(?:\w+::)*~?[A-Za-z_]\w*(?:\(\))?$")
# A class (Router), a function (find_longest_match) or a scoped name; single plain words are English, values or fields.
CODE = re.compile(r"::|^[A-Z]+[a-z]\w*[A-Z]?|_|\(\)$")


@functools.cache
def words():
    text = "\n".join(p.read_text(errors="replace") for p in SRC.rglob("*") if p.suffix in {".h", ".cc", ".proto", ".inc", ".json"})
    for folder in ("cmake", "tools", "scripts", "tests"):
        text += "\n".join(p.read_text(errors="replace") for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".sh", ".cmake", ".txt", ".cc", ".h"})
    text += "\n".join(p.read_text() for p in SRC.rglob("CMakeLists.txt"))
    stems = {p.stem for p in SRC.rglob("*.cc")}
    return set(re.findall(r"\w+", text)) | stems


def expand(name):
    """`index/{chain,tier}_index.h` names two files."""
    braces = re.search(r"\{([^}]*)\}", name)
    if not braces:
        return [name]
    return [part for option in braces.group(1).split(",") for part in expand(name[: braces.start()] + option + name[braces.end() :])]


def exists(page, name):
    places = (ROOT, SRC, page.parent, page.parent.parent, ROOT / "tools", ROOT / "tests")
    return any((place / name).exists() for place in places)


def findings(page):
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for name in re.findall(r"`([^`]+)`", line):
            if FILE.match(name):
                for one in expand(name):
                    if not exists(page, one) and not (("/" not in one) and any(page.parent.rglob(one))):
                        yield number, f"there is no file {one}"
            elif NAME.match(name) and CODE.search(name) and not name.startswith("stator_"):
                missing = [part for part in re.findall(r"\w+", name) if part not in words()]
                if missing:
                    yield number, f"nothing is called {missing[0]} (in `{name}`)"


def main():
    bad = 0
    for page in dict.fromkeys(PAGES):
        for number, message in findings(page):
            print(f"{page.relative_to(ROOT)}:{number}: {message}")
            bad += 1
    print(f"doc_names: {bad} findings in {len(set(PAGES))} pages")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
