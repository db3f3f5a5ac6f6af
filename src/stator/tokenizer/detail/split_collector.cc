// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/split_collector.h"

#include "stator/tokenizer/unicode.h"

#include <span>
#include <utility>

namespace stator::tokenizer {

void SplitCollector::isolate(std::string_view expression) {
  pending_.push_back({std::string(expression), false});
}

void SplitCollector::isolate_digits() {
  pending_.push_back({R"(\p{N})", true});
}

Status SplitCollector::add(PreTokenizer::Step step) {
  STATOR_CHECK(flush());
  pre_tokenizer_.steps.push_back(std::move(step));
  return {};
}

Status SplitCollector::flush() {
  using Isolated = PreTokenizer::Split;
  std::vector<std::string_view> expressions;
  for (const Pending& pending : pending_) {
    expressions.push_back(pending.expression);
  }
  for (size_t i = 0; i < pending_.size();) {
    if (const auto known = find_scanner(std::span(expressions).subspan(i))) {
      pre_tokenizer_.steps.emplace_back(PreTokenizer::Scan{known->family});
      i += known->expressions;
      continue;
    }
    if (pending_[i].is_digits) {
      pre_tokenizer_.steps.emplace_back(Isolated{PreTokenizer::SplitClass{kDigit}});
    } else {
      STATOR_TRY(Regex regex, Regex::compile(pending_[i].expression));
      pre_tokenizer_.steps.emplace_back(Isolated{std::move(regex)});
    }
    ++i;
  }
  pending_.clear();
  return {};
}

}  // namespace stator::tokenizer
