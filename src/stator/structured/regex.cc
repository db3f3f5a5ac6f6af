// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/regex.h"

#include <fmt/format.h>

#include "stator/core/assert.h"
#include "stator/structured/detail/regex_tree.h"
#include "stator/text/utf8.h"

namespace stator::structured {
namespace {

// One character inside a GBNF string or class.
void append_gbnf(std::string& out, uint32_t code, bool in_class) {
  const bool special = code == '\\' || (in_class ? code == '[' || code == ']' : code == '"');
  if (special) {
    out.push_back('\\');
    out.push_back(static_cast<char>(code));
  } else if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (code < 0x20 || code == 0x7F || (in_class && (code == '-' || code == '^'))) {
    out += fmt::format("\\x{:02X}", code);
  } else if (in_class && code > 0x7F) {
    out += code > 0xFFFF ? fmt::format("\\U{:08X}", code) : fmt::format("\\u{:04X}", code);
  } else {
    text::append_utf8(out, code);
  }
}

/// Prints a RegexTree as the body of a GBNF rule.
class GbnfWriter {
 public:
  explicit GbnfWriter(const RegexTree& tree) : tree_(tree) {}

  std::string write() {
    append(tree_.root, Place::kTop);
    return std::move(out_);
  }

 private:
  enum class Place : uint8_t { kTop, kSequence, kRepeat };
  using Kind = RegexNode::Kind;

  // NOLINTNEXTLINE(misc-no-recursion): as deep as the pattern's groups, bounded by kRegexDepthMax
  void append(uint32_t index, Place place) {
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case Kind::kEmpty:
        out_ += "\"\"";
        return;
      case Kind::kLiteral:
        out_ += '"';
        append_gbnf(out_, node.code, false);
        out_ += '"';
        return;
      case Kind::kAny:
        out_ += "[^\\n]";
        return;
      case Kind::kClass:
        append_class(node);
        return;
      case Kind::kSequence:
        enclose(place == Place::kRepeat, [&] { append_sequence(node); });
        return;
      case Kind::kAlternate:
        enclose(place != Place::kTop, [&] { append_alternatives(node); });
        return;
      case Kind::kRepeat:
        enclose(place == Place::kRepeat, [&] { append_repeat(node); });
        return;
    }
  }

  template <typename Body>
  void enclose(bool parentheses, Body&& body) {
    out_ += parentheses ? "(" : "";
    body();
    out_ += parentheses ? ")" : "";
  }

  void append_class(const RegexNode& node) {
    out_ += '[';
    for (const auto& [first, last] : node.ranges) {
      append_gbnf(out_, first, true);
      if (last > first) {
        out_ += '-';
        append_gbnf(out_, last, true);
      }
    }
    out_ += ']';
  }

  // NOLINTNEXTLINE(misc-no-recursion): see append
  void append_sequence(const RegexNode& node) {
    bool in_string = false;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const RegexNode& child = tree_.nodes[node.children[i]];
      const bool is_literal = child.kind == Kind::kLiteral;
      if (in_string && !is_literal) {
        out_ += '"';
      }
      if (!in_string || !is_literal) {
        out_ += i > 0 ? " " : "";
        out_ += is_literal ? "\"" : "";
      }
      in_string = is_literal;
      if (is_literal) {
        append_gbnf(out_, child.code, false);
      } else {
        append(node.children[i], Place::kSequence);
      }
    }
    out_ += in_string ? "\"" : "";
  }

  // NOLINTNEXTLINE(misc-no-recursion): see append
  void append_alternatives(const RegexNode& node) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      out_ += i > 0 ? " | " : "";
      append(node.children[i], Place::kSequence);
    }
  }

  // NOLINTNEXTLINE(misc-no-recursion): see append
  void append_repeat(const RegexNode& node) {
    append(node.children.front(), Place::kRepeat);
    if (node.max == kUnbounded) {
      out_ += node.min == 0 ? "*" : node.min == 1 ? "+" : fmt::format("{{{},}}", node.min);
    } else if (node.min == 0 && node.max == 1) {
      out_ += '?';
    } else {
      out_ += node.min == node.max ? fmt::format("{{{}}}", node.min)
                                   : fmt::format("{{{},{}}}", node.min, node.max);
    }
  }

  const RegexTree& tree_;
  std::string out_;
};

}  // namespace

Outcome<RegexFacts> check_regex(std::string_view pattern) {
  STATOR_TRY(const RegexTree tree, parse_regex(pattern));
  return RegexFacts{.anchored = tree.anchored_begin && tree.anchored_end};
}

std::string regex_to_gbnf(std::string_view pattern) {
  const auto tree = parse_regex(pattern);
  STATOR_ASSERT(tree.has_value(), "the pattern was checked on arrival");
  return "root ::= " + GbnfWriter(*tree).write();
}

std::string choice_to_regex(std::span<const std::string> options) {
  constexpr std::string_view kSpecial = "\\^$.|?*+()[]{}";
  std::string out;
  for (const std::string& option : options) {
    out += out.empty() ? '(' : '|';
    for (const char c : option) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (kSpecial.contains(c)) {
        out += '\\';
      }
      out += c;
    }
  }
  out += ')';
  return out;
}

std::string choice_to_gbnf(std::span<const std::string> options) {
  std::string out = "root ::= ";
  for (size_t i = 0; i < options.size(); ++i) {
    out += i > 0 ? " | \"" : "\"";
    std::string_view rest = options[i];
    while (!rest.empty()) {
      const Character character = decode_utf8(rest);
      STATOR_ASSERT(character.bytes > 0, "choices were checked on arrival");
      append_gbnf(out, character.code, false);
      rest.remove_prefix(character.bytes);
    }
    out += '"';
  }
  return out;
}

}  // namespace stator::structured
