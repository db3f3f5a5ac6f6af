#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which sources are compiled together (STATOR_UNITY, docs/adr/0112): cmake/unity.txt.

usage: tools/tidy/unity.py           checks the file: no two sources of a group define or use the same file-local name
       tools/tidy/unity.py --write   writes the file anew: groups of each target, so that no such names meet
       tools/tidy/unity.py --why A B the names that keep two sources apart (paths below src/stator)

A source that the file does not name is compiled alone. Sources that define macros before their includes, or that switch
the compiler's target by a pragma, always are.
"""

import collections
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "stator"
LIST = ROOT / "cmake" / "unity.txt"
LINES_MAX = {"module": 4500, "test": 4500}  # of a group: two cores share a module's groups
HEAD = """\
# Which sources are compiled together when STATOR_UNITY is on (docs/adr/0112): a target, then sources of its folder.
# Written by tools/tidy/unity.py --write; a source that is not named here is compiled alone.
"""

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-FxX])\'(?:\\.|[^\'\\\n])*\'', re.S)
KEYWORDS = {"auto", "bool", "char", "const", "double", "float", "int", "noexcept", "override", "requires", "size_t", "void"}
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)


def code_only(text):
    """Text without comments, literals and directives."""
    text = TOKEN.sub(lambda m: " " if m.group(0)[0] == "/" else '""', text)
    return DIRECTIVE.sub("", text)


def statements(code):
    """(namespaces, head) of everything at namespace scope: what stands before its body, or its semicolon."""
    stack, head, depth = [], "", 0
    for part in re.split(r"([{};])", code):
        if depth:
            depth += {"{": 1, "}": -1}.get(part, 0)
        elif part == "{":
            space = re.search(r"(?:^|\s)(?:inline\s+)?namespace\b\s*([\w:]*)\s*$", head)
            if space:
                stack.append(space.group(1))
            else:
                yield tuple(stack), head.strip()
                depth = 1
            head = ""
        elif part == "}":
            if stack:
                stack.pop()
            head = ""
        elif part == ";":
            if head.strip():
                yield tuple(stack), head.strip()
            head = ""
        else:
            head += part


def defined_name(head):
    """The name that a head at namespace scope brings in, or None."""
    name = find_name(head)
    return None if name is None or name[0].isdigit() or name in KEYWORDS else name


def find_name(head):
    head = re.sub(r"\s+", " ", head)
    head = re.sub(r"^(template ?<.*?> ?(?=[a-zA-Z\[:]))+", "", head)
    head = re.sub(r"\[\[.*?\]\] ?|alignas\(.*?\) ?", "", head)
    test = re.match(r"(?:TYPED_)?TEST(?:_F|_P)?\( ?(\w+) ?, ?(\w+) ?\)", head)
    if test:
        return f"{test.group(1)}_{test.group(2)}_Test"
    if re.match(r"(static_assert|using namespace|using [\w:]+ ?$|friend |extern |INSTANTIATE_|namespace )", head):
        return None
    kind = re.match(r"(?:typedef )?(?:enum(?: class| struct)?|struct|class|union) (\w+)(?! ?\w* ?[=(])", head) or re.match(
        r"(?:using|concept) (\w+) ?=", head)
    if kind:
        return kind.group(1)
    before = head.split("=")[0]
    call = re.match(r"[^(]*?(?<![:\w])(\w+) ?\(", before)
    if call and "operator" not in call.group(0):
        return call.group(1)
    value = re.search(r"(?<![:\w])(\w+)(?: ?\[[^\]]*\])* ?$", before)
    return value.group(1) if value and " " in before.strip() else None


class Source:
    """What one source defines for itself, and which names it takes from around it."""

    def __init__(self, path):
        text = path.read_text()
        code = code_only(text)
        self.lines = text.count("\n")
        defines = re.search(r"^[ \t]*#[ \t]*define", text, re.M)
        includes = [m.start() for m in re.finditer(r"^[ \t]*#[ \t]*include", text, re.M)]
        self.alone = bool(defines and includes and defines.start() < includes[-1]) or "#pragma clang" in text
        self.macros = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M)) - set(
            re.findall(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", text, re.M))
        self.own, self.named = set(), set()
        for spaces, head in statements(code):
            name = defined_name(head)
            if name and ("" in spaces or re.match(r"static\b", head)):
                self.own.add(name)
            elif name:
                self.named.add(name)
        # Not members, not names that say where they come from.
        self.uses = set(re.findall(r"(?<![\w.:>])[A-Za-z_]\w*", code)) | set(re.findall(r"[^-]>([A-Za-z_]\w*)", code))

    def clash(self, other):
        taken = self.own | self.macros
        return {n for n in taken if n in other.own or n in other.named or n in other.uses}


@functools.cache
def source(path):
    return Source(path)


def clashes(a, b):
    return source(a).clash(source(b)) | source(b).clash(source(a))


def targets():
    """(target, kind, folder, sources) of every stator_module and stator_test."""
    for file in sorted(SRC.rglob("CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", file.read_text())
        for call in re.finditer(r"\bstator_(module|test)\(\s*(\w+)(.*?)\)", text, re.S):
            words = call.group(3).split()
            name, sources, kind = call.group(2), [], ""
            for word in words:
                if word in ("SOURCES", "DEPS", "LIBS", "LAYER", "LABELS", "NAME", "LTO", "COLD"):
                    kind = word
                elif kind == "SOURCES" and (file.parent / word).is_file():
                    sources.append(word)
                elif kind == "NAME":
                    name = word
            yield f"stator_{name}" + ("_test" if call.group(1) == "test" else ""), call.group(1), file.parent, sources


def group(kind, folder, sources):
    """Each source goes to the first group that has room and none of its names; groups of one are left out."""
    groups = []
    for name in sources:
        path = folder / name
        if source(path).alone:
            continue
        for members in groups:
            if sum(source(folder / m).lines for m in members) + source(path).lines > LINES_MAX[kind]:
                continue
            if not any(clashes(path, folder / m) for m in members):
                members.append(name)
                break
        else:
            groups.append([name])
    return [g for g in groups if len(g) > 1]


def write():
    out, alone, total, made = [HEAD], 0, 0, 0
    for target, kind, folder, sources in targets():
        groups = group(kind, folder, sources)
        out += [f"{target} {' '.join(g)}\n" for g in groups]
        total += len(sources)
        made += len(groups)
        alone += len(sources) - sum(len(g) for g in groups)
    LIST.write_text("".join(out))
    print(f"{total} sources: {made} groups, {alone} alone")


def check():
    folders = {target: folder for target, _, folder, _ in targets()}
    errors = []
    for line in LIST.read_text().splitlines():
        target, *members = line.split()
        if target not in folders:
            continue
        paths = [folders[target] / m for m in members if (folders[target] / m).is_file()]
        for i, path in enumerate(paths):
            for other in paths[:i]:
                names = source(path).own & (source(other).own | source(other).named) | source(other).own & source(path).named
                if names or source(path).alone:
                    errors.append(f"{path.relative_to(SRC)} and {other.relative_to(SRC)} are compiled together and both define "
                                  f"{', '.join(sorted(names)) or 'macros'}")
    for error in errors:
        print(error)
    if errors:
        print("rename one, make one of both, or run tools/tidy/unity.py --write")
    return 1 if errors else 0


def main():
    if sys.argv[1:2] == ["--write"]:
        return write()
    if sys.argv[1:2] == ["--why"]:
        return print(*sorted(clashes(SRC / sys.argv[2], SRC / sys.argv[3])))
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    return check()


if __name__ == "__main__":
    sys.exit(main())
