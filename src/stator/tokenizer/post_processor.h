// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stator/core/ids.h"

namespace stator::tokenizer {

/// What a post-processor adds to a single text: ids before (BOS) and after it (EOS). The
/// reference's TemplateProcessing, BertProcessing and RobertaProcessing all come down to this;
/// ByteLevel only moves offsets, which we do not report.
struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

}  // namespace stator::tokenizer
