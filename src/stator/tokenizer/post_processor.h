// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stator/core/ids.h"

namespace stator::tokenizer {

/// What a post-processor adds to a text, or to a pair of texts: ids before (BOS) and after it
/// (EOS). The reference's TemplateProcessing, BertProcessing and RobertaProcessing all come down to
/// this; ByteLevel only moves offsets, which we do not report.
struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  std::vector<TokenId> between;     ///< the texts of a pair, whose first one `before` precedes
  std::vector<TokenId> after_pair;  ///< behind its second text
};

}  // namespace stator::tokenizer
