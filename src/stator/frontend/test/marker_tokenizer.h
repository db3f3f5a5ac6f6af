// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/assert.h"
#include "stator/frontend/test/frontend_fixture.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

/// The demo model's tokenizer with further special tokens, as models with such markers have them.
inline std::unique_ptr<tokenizer::Tokenizer> make_marker_tokenizer(
    const std::vector<std::string>& markers) {
  std::ifstream file(demo_model_dir() + "/tokenizer.json");
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  std::string decoder;
  TokenId id = demo_assets()->tokenizer->vocab_size();
  for (const std::string& marker : markers) {
    decoder +=
        fmt::format(R"({}"{}":{{"content":"{}","special":true,"normalized":false,"lstrip":false,)"
                    R"("rstrip":false,"single_word":false}})",
                    decoder.empty() ? "" : ",", id++, marker);
  }
  auto made = tokenizer::Tokenizer::from_json(
      json, {.tokenizer_config_json = R"({"added_tokens_decoder":{)" + decoder + "}}",
             .special_tokens_map_json = {}});
  STATOR_ASSERT(made.has_value(), "the demo tokenizer takes further special tokens");
  return std::move(*made);
}

}  // namespace stator::frontend
