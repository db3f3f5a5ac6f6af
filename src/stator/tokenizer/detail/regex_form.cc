// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/regex_form.h"

#include "stator/tokenizer/detail/regex_tree.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace stator::tokenizer {
namespace {

using Kind = RegexNode::Kind;

constexpr size_t kPatternBytesMax = 16384;
constexpr size_t kTextsMax = 64;  // fixed texts that are written out

/// A character of a fixed text, in lower case if both cases match.
struct Letter {
  char32_t c;
  bool caseless;
  auto operator<=>(const Letter&) const = default;
};
using Text = std::vector<Letter>;

/// What the node matches as fixed texts, the preferred first; nothing if that is not a short list.
std::optional<std::vector<Text>> find_texts(const RegexNode& node) {
  if (node.kind == Kind::kSet) {
    const auto members = node.set.members(kTextsMax);
    if (!members || members->empty()) {
      return std::nullopt;
    }
    std::vector<Text> texts;
    for (const char32_t c : *members) {
      const bool is_upper = c >= 'A' && c <= 'Z';
      if (node.caseless && c >= 0x80) {
        return std::nullopt;
      }
      if (!node.caseless || !is_upper) {  // of both cases the lower one stands for both
        texts.push_back({{c, node.caseless && c >= 'a' && c <= 'z'}});
      }
    }
    return texts;
  }
  if (node.kind == Kind::kAlternatives || node.kind == Kind::kTexts) {
    std::vector<Text> texts;
    for (const RegexNode& child : node.children) {
      auto more = find_texts(child);
      if (!more || texts.size() + more->size() > kTextsMax) {
        return std::nullopt;
      }
      std::ranges::move(*more, std::back_inserter(texts));
    }
    return texts;
  }
  if (node.kind != Kind::kSequence || node.children.empty()) {
    return std::nullopt;
  }
  std::vector<Text> texts = {{}};
  for (const RegexNode& child : node.children) {
    const auto more = find_texts(child);
    if (!more || texts.size() * more->size() > kTextsMax) {
      return std::nullopt;
    }
    std::vector<Text> longer;
    for (const Text& front : texts) {
      for (const Text& back : *more) {
        longer.push_back(front);
        longer.back().insert(longer.back().end(), back.begin(), back.end());
      }
    }
    texts = std::move(longer);
  }
  return texts;
}

char32_t folded(const Letter& letter) {
  return letter.c >= 'A' && letter.c <= 'Z' ? letter.c + ('a' - 'A') : letter.c;
}

/// Whether one text may begin the other: then it matters which one is tried first.
bool may_begin(const Text& one, const Text& other) {
  const size_t both = std::min(one.size(), other.size());
  return std::ranges::equal(one.begin(), one.begin() + static_cast<ptrdiff_t>(both), other.begin(),
                            other.begin() + static_cast<ptrdiff_t>(both), {}, folded, folded);
}

/// In the order of the expression, or sorted if that is the same.
void sort_texts(std::vector<Text>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (may_begin(texts[i], texts[j])) {
        return;
      }
    }
  }
  std::ranges::sort(texts);
}

/// Fixed texts of one character each are a set.
bool become_set(const std::vector<Text>& texts, RegexNode& node) {
  const bool caseless = std::ranges::any_of(texts, [](const Text& t) { return t[0].caseless; });
  const bool alike = std::ranges::all_of(texts, [caseless](const Text& text) {
    const bool is_letter = (text[0].c >= 'a' && text[0].c <= 'z') ||
                           (text[0].c >= 'A' && text[0].c <= 'Z') || text[0].c >= 0x80;
    return text.size() == 1 && (text[0].caseless == caseless || !is_letter);
  });
  if (!alike) {
    return false;
  }
  RegexNode set{.kind = Kind::kSet, .caseless = caseless};
  for (const Text& text : texts) {
    set.set = set.set.united(CodePointSet::of(text[0].c, text[0].c));
    if (text[0].caseless) {
      const char32_t upper = text[0].c - ('a' - 'A');
      set.set = set.set.united(CodePointSet::of(upper, upper));
    }
  }
  node = std::move(set);
  return true;
}

/// `(?!X)Y` and `(?=X)Y`, where both are sets, is a set. Otherwise not changed.
void merge_lookahead(std::vector<RegexNode>& items) {
  for (size_t i = items.size(); i-- > 0;) {
    if (i + 1 == items.size()) {
      continue;
    }
    RegexNode& next = items[i + 1];
    const bool is_ahead =
        items[i].kind == Kind::kLook && (items[i].mode == '!' || items[i].mode == '=');
    if (!is_ahead || items[i].children[0].kind != Kind::kSet || next.kind != Kind::kSet ||
        next.caseless || items[i].children[0].caseless) {
      continue;
    }
    const CodePointSet& ahead = items[i].children[0].set;
    next.set = items[i].mode == '!' ? next.set.without(ahead) : next.set.intersected(ahead);
    items.erase(items.begin() + static_cast<ptrdiff_t>(i));
  }
}

void normalize(RegexNode& node);

void normalize_sequence(RegexNode& node) {
  std::vector<RegexNode> items;
  for (RegexNode& child : node.children) {
    if (child.kind == Kind::kSequence) {
      std::ranges::move(child.children, std::back_inserter(items));
    } else {
      items.push_back(std::move(child));
    }
  }
  merge_lookahead(items);
  node.children = std::move(items);
  if (node.children.size() == 1) {
    RegexNode only = std::move(node.children[0]);
    node = std::move(only);
  }
}

/// Fixed texts next to each other become one node. A group of alternatives that stands alone as an
/// alternative is dissolved.
void normalize_alternatives(RegexNode& node) {
  std::vector<RegexNode> all;
  for (RegexNode& child : node.children) {
    if (child.kind == Kind::kAlternatives) {
      std::ranges::move(child.children, std::back_inserter(all));
    } else {
      all.push_back(std::move(child));
    }
  }
  std::vector<RegexNode> merged;
  for (size_t i = 0; i < all.size();) {
    RegexNode run{.kind = Kind::kAlternatives};
    std::optional<std::vector<Text>> texts;
    const size_t begin = i;
    size_t end = i;
    while (end < all.size()) {
      run.children.push_back(all[end]);
      auto longer = find_texts(run);
      if (!longer) {
        break;
      }
      texts = std::move(longer);
      ++end;
    }
    if (!texts) {
      merged.push_back(std::move(all[i++]));
      continue;
    }
    i = end;
    sort_texts(*texts);
    RegexNode one{.kind = Kind::kTexts};
    if (!become_set(*texts, one)) {
      run.children.resize(end - begin);
      one.children = std::move(run.children);
      for (const Text& text : *texts) {
        append_varint(one.texts, text.size());
        for (const Letter& letter : text) {
          append_varint(one.texts, letter.c * 2 + (letter.caseless ? 1 : 0));
        }
      }
    }
    merged.push_back(std::move(one));
  }
  node.children = std::move(merged);
  if (node.children.size() == 1) {
    RegexNode only = std::move(node.children[0]);
    node = std::move(only);
  }
}

void normalize(RegexNode& node) {
  for (RegexNode& child : node.children) {
    normalize(child);
  }
  if (node.kind == Kind::kSequence) {
    normalize_sequence(node);
  } else if (node.kind == Kind::kAlternatives) {
    normalize_alternatives(node);
  } else if (node.kind == Kind::kRepeat && node.min == 1 && node.max == 1) {
    RegexNode only = std::move(node.children[0]);
    node = std::move(only);
  }
}

bool is_set_repeat(const RegexNode& node) {
  return node.kind == Kind::kRepeat && node.children[0].kind == Kind::kSet;
}

bool are_disjoint(const RegexNode& one, const RegexNode& other) {
  return !one.caseless && !other.caseless && one.set.intersected(other.set).empty();
}

/// A repeat of an alternative at the top need not be possessive where all behind it may be absent,
/// or where what comes next cannot be what it repeats.
void drop_possessive(RegexNode& alternative) {
  if (alternative.kind == Kind::kRepeat && alternative.mode == '+') {
    alternative.mode = ' ';
  }
  if (alternative.kind != Kind::kSequence) {
    return;
  }
  auto& items = alternative.children;
  for (size_t i = items.size(); i-- > 0;) {
    if (items[i].kind != Kind::kRepeat || items[i].mode != '+') {
      continue;
    }
    const bool rest_absent = std::all_of(
        items.begin() + static_cast<ptrdiff_t>(i) + 1, items.end(),
        [](const RegexNode& item) { return item.kind == Kind::kRepeat && item.min == 0; });
    bool is_other = false;
    if (i + 1 < items.size() && is_set_repeat(items[i])) {
      const RegexNode& next = items[i + 1];
      const bool next_repeats = is_set_repeat(next) && next.min > 0;
      if (next.kind == Kind::kSet || next_repeats) {
        is_other = are_disjoint(items[i].children[0], next_repeats ? next.children[0] : next);
      }
    }
    items[i].mode = rest_absent || is_other ? ' ' : '+';
  }
}

void append_form(const RegexNode& node, std::string& out) {
  out.push_back(static_cast<char>('A' + static_cast<int>(node.kind)));
  out.push_back(node.mode);
  out.push_back(node.caseless ? 'i' : ' ');
  append_varint(out, node.min);
  append_varint(out, node.max);
  node.set.append_form(out);
  append_varint(out, node.texts.size());
  out += node.texts;
  if (node.kind == Kind::kTexts) {  // whose children say the same
    return;
  }
  append_varint(out, node.children.size());
  for (const RegexNode& child : node.children) {
    append_form(child, out);
  }
}

}  // namespace

std::optional<std::string> regex_form(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return std::nullopt;
  }
  auto root = parse_regex(pattern);
  if (!root) {
    return std::nullopt;
  }
  normalize(*root);
  if (root->kind == Kind::kAlternatives) {
    std::ranges::for_each(root->children, drop_possessive);
  } else {
    drop_possessive(*root);
  }
  std::string form;
  append_form(*root, form);
  return form;
}

}  // namespace stator::tokenizer
