// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace stator::access::detail {

/// The lines of a text that are neither empty nor comments (#), each as its words.
class LineWords {
 public:
  /// `text` outlives the object and what it gives out.
  explicit LineWords(std::string_view text) : rest_(text) {}

  bool next() {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      line = line.substr(0, line.find('#'));
      split(line);
      if (!words_.empty()) {
        return true;
      }
    }
    return false;
  }
  std::span<const std::string_view> words() const { return words_; }
  size_t number() const { return number_; }

 private:
  void split(std::string_view line) {
    constexpr std::string_view kSpace = " \t\r";
    words_.clear();
    for (size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;
         at = line.find_first_not_of(kSpace, at)) {
      const size_t end = std::min(line.find_first_of(kSpace, at), line.size());
      words_.push_back(line.substr(at, end - at));
      at = end;
    }
  }

  std::string_view rest_;
  std::vector<std::string_view> words_;
  size_t number_ = 0;
};

}  // namespace stator::access::detail
