// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/pre_tokenizer.h"

namespace stator::tokenizer {

/// Appends steps to a pre-tokenizer and puts a scanner in the place of expressions, one or several
/// in a row, that one is written for; the others are compiled. Call `flush` at the end.
///
///   SplitCollector splits(pre_tokenizer);
///   splits.isolate(R"(\p{N}{1,3})");
///   STATOR_CHECK(splits.add(PreTokenizer::MapBytes{}));
class SplitCollector {
 public:
  explicit SplitCollector(PreTokenizer& pre_tokenizer) : pre_tokenizer_(pre_tokenizer) {}

  /// A step that isolates what the expression matches.
  void isolate(std::string_view expression);
  /// The Digits pre-tokenizer, one digit at a time. To scanners it is `\p{N}`; 13 numbers that are
  /// newer than the reference's regular expressions are only in its set.
  void isolate_digits();
  /// Any other step. Errors as flush.
  Status add(PreTokenizer::Step step);
  /// kUnsupported or kCorrupt: an expression cannot be compiled.
  Status flush();

 private:
  struct Pending {
    std::string expression;
    bool is_digits;
  };
  std::vector<Pending> pending_;
  PreTokenizer& pre_tokenizer_;
};

}  // namespace stator::tokenizer
