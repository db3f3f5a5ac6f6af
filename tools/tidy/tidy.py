#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of CONTRIBUTING.md that a machine can check; run as the test `tidy`.

Exceptions stand in exceptions.txt beside this file, one `rule path` per line, for rules with a figure
`rule path figure`. An exception that is no longer needed fails, too, and so does a figure that has become
smaller than the one in the list, so the list only shrinks.
"""

import pathlib
import functools
import re
import subprocess
import sys

import class_size

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "stator"
SOURCE_LINES_MAX, HEADER_LINES_MAX, FUNCTION_LINES_MAX, LINE_MAX = 800, 400, 70, 100
README_LINES_MAX = 70

# Pattern, where it is allowed, what to use instead.
BANNED = [
    (r"std::chrono::\w+_clock::now|\bclock_gettime\(|\bgettimeofday\(", {"core/clock.cc"}, "Clock&"),
    (r"std::random_device|\brand\(\)|\bsrand\(", {"core/random.cc"}, "Random&"),
    (r"std::this_thread::sleep|\busleep\(|\bsleep\(", set(), "timers, SimClock"),
    (r"std::thread\b(?!::hardware_concurrency)|std::jthread|std::async\b", {"net/thread.h", "net/thread.cc"}, "net::Thread"),
    (r"\.detach\(\)", set(), "an owner that joins"),
    (r"\bgetenv\(", {"app/terminal.cc", "transfer/plugins.cc"}, "ConfigSchema"),
    (r"std::cout|std::cerr|\bprintf\(|\bputs\(", set(), "log, app::print"),
    (r"std::(exit|abort|quick_exit)\(|\b_exit\(", {"core/assert.cc"}, "return from main, STATOR_ASSERT"),
    (r"catch \(\.\.\.\) *\{ *\}", set(), "handle it"),
    (r"std::regex", set(), "a hand-written scanner, PCRE2"),
    (r"(?<!\w)assert\(", set(), "STATOR_ASSERT"),
    (r"\b(TODO(?!\(#\d+\))|FIXME|XXX)\b", set(), "do it, or TODO(#issue)"),
]


@functools.cache
def code_only(text):
    """Text with comments and string literals blanked, line structure kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def read_layers():
    layers = {}
    for line in (ROOT / "cmake" / "layers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            layer, module = line.split()
            layers[module] = int(layer)
    return layers


def cmake_files():
    return [p for p in SRC.rglob("CMakeLists.txt")]


def module_of(path, layers):
    """The module whose folder is the longest prefix: engine/cpu/x.h belongs to engine_cpu."""
    parts = path.relative_to(SRC).parts[:-1]
    for length in range(len(parts), 0, -1):
        name = "_".join(parts[:length])
        if name in layers:
            return name
    return None


def read_deps():
    deps = {}
    for path in cmake_files():
        for match in re.finditer(r"stator_module\((\w+)(.*?)\)", path.read_text(), re.S):
            body = match.group(2)
            found = re.search(r"\bDEPS\b(.*?)(?=\b(?:LIBS|SOURCES|LAYER)\b|$)", body, re.S)
            deps[match.group(1)] = set(found.group(1).split()) if found else set()
    return deps


class Tidy:
    def __init__(self):
        self.findings = []  # (rule, path, message)
        self.layers = read_layers()
        self.deps = read_deps()

    def add(self, rule, path, message, figure=0):
        self.findings.append((rule, str(path.relative_to(ROOT)), message, figure))

    def check_includes(self, path, text):
        module = module_of(path, self.layers)
        if module is None:
            self.add("module", path, "belongs to no module of cmake/layers.txt")
            return
        is_test = "test" in path.parts or "bench" in path.parts
        for line in re.findall(r'#include "stator/([^"]+)"', text):
            target = module_of(SRC / line, self.layers)
            if target is None:
                if not line.startswith("proto/"):
                    self.add("include", path, f"stator/{line} is in no module")
                continue
            if target != module and "/detail/" in line:
                self.add("detail", path, f"stator/{line} is private to {target}")
            if target == module or is_test:
                continue
            if self.layers[target] > self.layers[module]:
                self.add("layer", path, f"{module} (layer {self.layers[module]}) includes {target} (layer {self.layers[target]})")
            elif self.layers[target] == self.layers[module] and target not in self.deps.get(module, set()):
                self.add("layer", path, f"{module} includes {target} of its own layer without naming it in DEPS")

    def check_text(self, path, text):
        lines = text.splitlines()
        limit = HEADER_LINES_MAX if path.suffix == ".h" else SOURCE_LINES_MAX
        if len(lines) > limit:
            self.add("size", path, f"{len(lines)} lines, at most {limit}: split by reason to change")
        if not lines or lines[0] != "// SPDX-License-Identifier: Apache-2.0":
            self.add("spdx", path, "the first line is the SPDX line")
        if path.suffix == ".h" and "#pragma once" not in text:
            self.add("pragma", path, "headers have #pragma once")
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_MAX and "http" not in line and "NOLINT" not in line and 'R"' not in line and '"' not in line:
                self.add("width", path, f"line {number} has {len(line)} columns")

    def check_banned(self, path, text):
        relative = str(path.relative_to(SRC))
        if "/test/" in relative or "/bench/" in relative:
            return
        for pattern, allowed, instead in BANNED:
            source = text if "TODO" in pattern else code_only(text)
            if relative not in allowed:
                for match in re.finditer(pattern, source):
                    number = source.count("\n", 0, match.start()) + 1
                    self.add("banned", path, f"line {number}: {match.group(0).strip()}; use {instead}")

    def check_functions(self, path, text):
        """Top-level functions of clang-formatted sources: from a line in column 0 to a '}' in column 0."""
        begin, is_function = None, False
        for number, line in enumerate(code_only(text).splitlines(), 1):
            if begin is None and re.match(r"[A-Za-z]", line) and not line.startswith("namespace"):
                begin = number
                is_function = not re.match(r"(class|struct|enum|union|extern|using|constexpr .*=|const .*=)", line)
            elif line.startswith("}"):
                if is_function and number - begin + 1 > FUNCTION_LINES_MAX:
                    self.add("function", path, f"line {begin}: {number - begin + 1} lines, at most {FUNCTION_LINES_MAX}")
                begin, is_function = None, False
            if begin is not None and line.rstrip().endswith(";") and not line.startswith("  "):
                begin, is_function = None, False

    def check_targets(self, files):
        listed = set()
        for cmake in cmake_files():
            for name in re.findall(r"[\w./-]+\.(?:cc|h)\b", cmake.read_text()):
                listed.add((cmake.parent / name).resolve())
        for path in files:
            if path.suffix == ".cc" and path.resolve() not in listed:
                self.add("target", path, "is in no CMake target")

    def check_readmes(self):
        for cmake in cmake_files():
            readme = cmake.parent / "README.md"
            if not readme.exists():
                self.add("readme", cmake, "the module has no README.md")
            elif len(readme.read_text().splitlines()) > README_LINES_MAX:
                self.add("readme", readme, f"more than a page ({README_LINES_MAX} lines)")

    def check_decision_records(self):
        folder = ROOT / "docs" / "adr"
        listed = (folder / "README.md").read_text()
        for page in sorted(folder.glob("[0-9]*.md")):
            number = page.name[:4]
            if f"- [{number}]({page.name}) " not in listed:
                self.add("adr", page, "is not listed in docs/adr/README.md")
            if not page.read_text().startswith(f"# {number} "):
                self.add("adr", page, f"does not begin with '# {number} TITLE'")

    def run(self):
        files = sorted(p for p in SRC.rglob("*") if p.suffix in (".cc", ".h"))
        sizes = class_size.ClassSizes()
        for path in files:
            text = path.read_text()
            if not {"test", "bench"} & set(path.parts):
                sizes.add(path, module_of(path, self.layers), code_only(text), text)
            self.check_includes(path, text)
            self.check_text(path, text)
            self.check_banned(path, text)
            if path.suffix == ".cc" and "test" not in path.parts:
                self.check_functions(path, text)
        for rule, path, message, figure in sizes.findings():
            self.add(rule, path, message, figure)
        self.check_targets(files)
        self.check_readmes()
        self.check_decision_records()
        return self.findings


def compile_headers(compiler):
    """Each header compiles alone. Those a source includes first are proven by the build; the rest here."""
    first_includes, headers = set(), []
    for path in SRC.rglob("*.cc"):
        found = re.search(r'#include "stator/([^"]+)"', path.read_text())
        if found:
            first_includes.add(found.group(1))
    for path in sorted(SRC.rglob("*.h")):
        if str(path.relative_to(SRC)) not in first_includes and "test" not in path.parts:
            headers.append(path)
    failed = 0
    for path in headers:
        command = [compiler, "-std=c++23", "-fsyntax-only", "-Wno-pragma-once-outside-header", "-x", "c++", "-I", str(ROOT / "src"), str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            failed += 1
            print(f"{path.relative_to(ROOT)}: [alone] does not compile by itself\n{result.stderr[:600]}")
    print(f"tidy: {len(headers)} headers compiled, {failed} failed")
    return 1 if failed else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--compile-headers":
        return compile_headers(sys.argv[2])
    allowed = {}
    for line in (pathlib.Path(__file__).parent / "exceptions.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            rule, path, *figure = line.split("#")[0].split()
            allowed[(rule, path)] = int(figure[0]) if figure else 0
    worst = {}
    for rule, path, _, figure in (findings := Tidy().run()):
        worst[(rule, path)] = max(figure, worst.get((rule, path), 0))
    bad = [f for f in findings if f[3] > allowed.get((f[0], f[1]), -1)]
    for rule, path, message, _ in bad:
        print(f"{path}: [{rule}] {message}")
    stale = sorted(key for key, figure in allowed.items() if worst.get(key, -1) < figure)
    for rule, path in stale:
        left = worst.get((rule, path))
        print(f"tools/tidy/exceptions.txt: [{rule}] {path} is " + ("no longer needed; remove the line" if left is None else f"down to {left}: write that"))
    print(f"tidy: {len(bad)} findings, {len(stale)} stale exceptions, {len(allowed)} exceptions")
    return 1 if bad or stale else 0


if __name__ == "__main__":
    sys.exit(main())
