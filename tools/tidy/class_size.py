# SPDX-License-Identifier: Apache-2.0
"""How large classes are, how many parameters functions have and how much files include.

A scanner of clang-formatted C++, not a parser: it knows braces, not types. Good enough to see growth.
"""

import collections
import re

METHODS_MAX, CLASS_LINES_MAX, PARAMETERS_MAX, INCLUDES_MAX = 30, 500, 5, 30

CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+)\s*(?:final\s*)?(?::[^;{}()]*(?:\([^;{}]*\))?[^;{}]*)?\{")
CALL = re.compile(r"(~?\b[A-Za-z_]\w*|operator\s*[^\s(]+|operator\(\))\s*\(")
NO_METHOD = re.compile(r"\s*(?:using|friend|typedef|static_assert|enum|class|struct|union|template\s*<[^;]*>\s*friend)\b")
CONTROL = {"if", "for", "while", "switch", "return", "sizeof", "alignas", "decltype", "noexcept", "requires", "static_assert"}


def close_of(text, begin, opening, closing):
    """Position behind the bracket that closes the one at `begin`."""
    depth = 0
    for match in re.compile("[" + re.escape(opening + closing) + "]").finditer(text, begin):
        depth += 1 if match.group() == opening else -1
        if depth == 0:
            return match.end()
    return len(text)


def without_macros(text):
    return re.sub(r"\bSTATOR_\w+\((?:[^()]|\([^()]*\))*\)", "", text)


def without_templates(text):
    """Blanks <…>, innermost first: commas and parentheses there are no parameters."""
    while True:
        shorter = re.sub(r"(?<=\w)<[^<>;{}]*>", "", text)
        if shorter == text:
            return text
        text = shorter


def count_parameters(declaration):
    """Of the first function in a declaration; 0 if there is none."""
    match = CALL.search(declaration)
    if not match or match.group(1) in CONTROL:
        return 0
    begin = match.end() - 1
    inside = declaration[begin + 1:close_of(declaration, begin, "(", ")") - 1]
    depth, commas = 0, 0
    for c in inside:
        depth += c in "([{"
        depth -= c in ")]}"
        commas += c == "," and depth == 0
    return commas + 1 if inside.strip() not in ("", "void") else 0


def statements_of(body):
    """What stands in a class body at its own depth, without the bodies of functions and inner types."""
    out, at, start = [], 0, 0
    while at < len(body):
        c = body[at]
        if c == "(":
            at = close_of(body, at, "(", ")")
        elif c == "{":
            end = close_of(body, at, "{", "}")
            rest = body[end:end + 1]
            out.append(body[start:at])
            at = start = end + (1 if rest == ";" else 0)
        elif c == ";":
            out.append(body[start:at])
            at = start = at + 1
        else:
            at += 1
    return out


def is_method(statement):
    statement = re.sub(r"^\s*(?:public|private|protected)\s*:", "", statement.strip())
    if statement.startswith(",") or NO_METHOD.match(statement) or re.search(r"=\s*(?:delete|default)\s*$", statement):
        return False
    match = CALL.search(statement)
    return bool(match) and "=" not in statement[:match.start()].replace("operator", "") and match.group(1) not in CONTROL


def classes_of(text):
    """(name, methods, lines, most parameters of a method) of each class with a body in `text`."""
    for match in CLASS.finditer(text):
        begin = match.end() - 1
        body = text[begin + 1:close_of(text, begin, "{", "}") - 1]
        methods = [s for s in (without_templates(s) for s in statements_of(without_macros(body))) if is_method(s)]
        widest = max((count_parameters(s) for s in methods), default=0)
        yield match.group(1), len(methods), body.count("\n") + 1, widest


def definitions_of(text):
    """(class or None, lines, parameters) of each function that is defined in column 0."""
    begin = None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if begin is None and re.match(r"[A-Za-z]", line) and not line.startswith("namespace"):
            begin = number
        if begin is None:
            continue
        if line.startswith("}"):
            head = without_templates(without_macros(" ".join(lines[begin:number + 1]).split("{")[0]))
            owner = re.search(r"\b(\w+)::~?(?:\w+|operator\s*\S+)\s*\(", head)
            yield (owner.group(1) if owner else None), number - begin + 1, count_parameters(head)
            begin = None
        elif line.rstrip().endswith(";") and not line.startswith(" "):
            begin = None


class ClassSizes:
    """Fed with the code of all files; classes are known by module, because names come twice."""

    def __init__(self):
        self.home, self.methods = {}, collections.Counter()
        self.lines, self.parameters, self.includes = collections.Counter(), {}, {}
        self.outside = []  # (module, class, lines), until all headers are known

    def add(self, path, module, code, text):
        self.includes[path] = len(re.findall(r'^#include "stator/', text, re.M))
        for name, methods, lines, widest in classes_of(code):
            key = (module, name) if path.suffix == ".h" else (path, name)
            self.home.setdefault(key, path)
            self.methods[key] = max(self.methods[key], methods)
            self.lines[key] += lines
            self.parameters[path] = max(self.parameters.get(path, 0), widest)
        for owner, lines, parameters in definitions_of(code):
            self.parameters[path] = max(self.parameters.get(path, 0), parameters)
            if owner:
                self.outside.append((path, module, owner, lines))

    def findings(self):
        """(rule, path, message, figure)."""
        for path, module, owner, lines in self.outside:
            key = (path, owner) if (path, owner) in self.home else (module, owner)
            if key in self.home:
                self.lines[key] += lines
        for key, path in self.home.items():
            if self.methods[key] > METHODS_MAX:
                yield "methods", path, f"{key[1]} has {self.methods[key]} methods, at most {METHODS_MAX}: split by concern", self.methods[key]
            if self.lines[key] > CLASS_LINES_MAX:
                yield "class", path, f"{key[1]} has {self.lines[key]} lines over all its files, at most {CLASS_LINES_MAX}: split by concern", self.lines[key]
        for path, count in self.parameters.items():
            if count > PARAMETERS_MAX:
                yield "parameters", path, f"a function has {count} parameters, at most {PARAMETERS_MAX}: make it a struct", count
        for path, count in self.includes.items():
            if count > INCLUDES_MAX:
                yield "includes", path, f"{count} headers of ours, at most {INCLUDES_MAX}: it knows too much", count
