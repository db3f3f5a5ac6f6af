// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/urlize.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/html.h"

namespace stator::chat_template::detail {
namespace {

bool is_ascii_letter(char c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}
std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  }
  return lower;
}

/// [\w%-]: what a domain label is made of; bytes beyond ASCII count as letters.
bool is_label(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '_' || c == '%' || c == '-' ||
           static_cast<unsigned char>(c) >= 0x80;
  });
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

bool is_ip4(std::string_view host) {
  const auto parts = split(host, '.');
  return parts.size() == 4 && std::ranges::all_of(parts, [](std::string_view part) {
           return !part.empty() && part.size() <= 3 && std::ranges::all_of(part, is_ascii_digit);
         });
}

bool is_ip6(std::string_view host) {
  if (!host.starts_with('[') || !host.ends_with(']')) {
    return false;
  }
  const std::string_view body = host.substr(1, host.size() - 2);
  const auto parts = split(body, ':');
  return parts.size() >= 3 && parts.size() <= 9 &&
         std::ranges::all_of(parts, [](std::string_view part) {
           return part.size() <= 4 && std::ranges::all_of(part, [](char c) {
                    return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
                  });
         });
}

bool is_top_level(std::string_view label) {
  if (label.starts_with("xn--")) {
    return label.size() >= 6 && label.size() <= 63 && is_label(label);
  }
  return label.size() >= 2 && label.size() <= 63 && std::ranges::all_of(label, is_ascii_letter);
}

bool is_host(std::string_view host, bool with_scheme, bool with_web_scheme) {
  const auto labels = split(host, '.');
  const bool plain = std::all_of(labels.begin(), labels.end() - 1, is_label);
  if (with_scheme && plain && is_top_level(labels.back())) {
    return true;
  }
  if (with_web_scheme && (is_ip4(host) || is_ip6(host))) {
    return true;
  }
  static const std::set<std::string_view> kKnown = {"com", "net", "int",  "edu",
                                                    "gov", "org", "info", "mil"};
  return !with_scheme && labels.size() >= 2 && kKnown.contains(labels.back()) &&
         std::all_of(labels.begin(), labels.end() - 1,
                     [](std::string_view label) { return label.size() >= 2 && is_label(label); });
}

/// scheme or "www.", host, optional port, optional path, query and fragment.
bool is_web_address(std::string_view word) {
  const std::string lower = ascii_lower(word);
  std::string_view rest = lower;
  bool with_web_scheme = false;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!with_web_scheme && rest.starts_with(scheme)) {
      rest.remove_prefix(scheme.size());
      with_web_scheme = true;
    }
  }
  const bool with_www = !with_web_scheme && rest.starts_with("www.");
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  const size_t host_end = std::min(
      rest.find_first_of("/?#:", bracket == std::string_view::npos ? 0 : bracket), rest.size());
  const std::string_view host = rest.substr(0, host_end);
  std::string_view tail = rest.substr(host_end);
  if (tail.starts_with(':')) {
    size_t end = 1;
    while (end < tail.size() && is_ascii_digit(tail[end])) {
      ++end;
    }
    if (end == 1 || end > 6) {
      return false;
    }
    tail.remove_prefix(end);
  }
  if (!tail.empty() && std::string_view("/?#").find(tail[0]) == std::string_view::npos) {
    return false;
  }
  if (with_www && is_host(host.substr(4), true, false)) {
    return true;
  }
  return is_host(host, with_web_scheme, with_web_scheme);
}

/// something@domain.word
bool is_mail_address(std::string_view word) {
  const auto is_word_byte = [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  const size_t at = word.rfind('@');
  if (at == std::string_view::npos || at == 0) {
    return false;
  }
  const std::string_view domain = word.substr(at + 1);
  const size_t dot = domain.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == domain.size() ||
      !is_word_byte(domain[0])) {
    return false;
  }
  return std::ranges::all_of(domain.substr(dot + 1), is_word_byte) &&
         std::ranges::all_of(domain.substr(0, dot),
                             [&](char c) { return is_word_byte(c) || c == '.' || c == '-'; });
}

size_t count(std::string_view text, std::string_view wanted) {
  size_t found = 0;
  for (size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + wanted.size())) {
    ++found;
  }
  return found;
}

/// A word without the punctuation around it.
struct Word {
  std::string_view head;
  std::string_view middle;
  std::string_view tail;
};

Word take_apart(std::string_view word) {
  size_t start = 0;
  while (true) {
    const std::string_view rest = word.substr(start);
    if (rest.starts_with('(') || rest.starts_with('<')) {
      start += 1;
    } else if (rest.starts_with("&lt;")) {
      start += 4;
    } else {
      break;
    }
  }
  size_t end = word.size();
  while (end > start) {
    const std::string_view rest = word.substr(start, end - start);
    if (std::string_view(")>.,\n").find(rest.back()) != std::string_view::npos) {
      end -= 1;
    } else if (rest.ends_with("&gt;")) {
      end -= 4;
    } else {
      break;
    }
  }
  // Closing brackets belong to the address as far as it opens them.
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  for (const auto& [open, close] : kPairs) {
    const std::string_view middle = word.substr(start, end - start);
    const size_t opened = count(middle, open);
    if (opened <= count(middle, close)) {
      continue;
    }
    for (size_t left = std::min(opened, count(word.substr(end), close)); left > 0; --left) {
      end = word.find(close, end) + close.size();
    }
  }
  return {word.substr(0, start), word.substr(start, end - start), word.substr(end)};
}

std::string link(std::string_view middle, const UrlizeStyle& style) {
  if (is_web_address(middle)) {
    std::string attributes;
    if (!style.rel.empty()) {
      attributes += " rel=\"" + text::escape_html(style.rel) + "\"";
    }
    if (!style.target.empty()) {
      attributes += " target=\"" + text::escape_html(style.target) + "\"";
    }
    std::string shown(middle);
    if (style.trim_limit >= 0 &&
        count_code_points(middle) > static_cast<size_t>(style.trim_limit)) {
      shown = middle.substr(0, byte_offset(middle, static_cast<size_t>(style.trim_limit)));
      shown += "...";
    }
    const bool has_scheme = middle.starts_with("https://") || middle.starts_with("http://");
    return "<a href=\"" + std::string(has_scheme ? "" : "https://") + std::string(middle) + "\"" +
           attributes + ">" + shown + "</a>";
  }
  if (middle.starts_with("mailto:") && is_mail_address(middle.substr(7))) {
    return "<a href=\"" + std::string(middle) + "\">" + std::string(middle.substr(7)) + "</a>";
  }
  const bool bare_mail = middle.find('@') != std::string_view::npos &&
                         !middle.starts_with("www.") &&
                         middle.find(':') == std::string_view::npos && is_mail_address(middle);
  return bare_mail
             ? "<a href=\"mailto:" + std::string(middle) + "\">" + std::string(middle) + "</a>"
             : std::string(middle);
}

}  // namespace

std::string urlize_rel(std::string_view rel, bool nofollow) {
  std::set<std::string_view> words{"noopener"};
  if (nofollow) {
    words.insert("nofollow");
  }
  for (const std::string_view word : split(rel, ' ')) {
    if (!word.empty()) {
      words.insert(word);
    }
  }
  std::string joined;
  for (const std::string_view word : words) {
    joined += joined.empty() ? "" : " ";
    joined += word;
  }
  return joined;
}

std::string urlize(std::string_view escaped_text, const UrlizeStyle& style) {
  std::string out;
  size_t start = 0;
  const auto flush = [&](size_t end) {
    const Word word = take_apart(escaped_text.substr(start, end - start));
    out += word.head;
    out += link(word.middle, style);
    out += word.tail;
  };
  for (size_t at = 0; at < escaped_text.size();) {
    const size_t before = at;
    if (is_space(next_code_point(escaped_text, at))) {
      flush(before);
      out += escaped_text.substr(before, at - before);
      start = at;
    }
  }
  flush(escaped_text.size());
  return out;
}

}  // namespace stator::chat_template::detail
