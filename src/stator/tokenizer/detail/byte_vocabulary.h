// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/detail/assemble_pipeline.h"
#include "stator/tokenizer/detail/tables.h"

namespace stator::tokenizer {

/// A vocabulary of byte strings in order of importance, as tiktoken and tekken files have it, on
/// its way to a byte-level BPE model.
class ByteVocabulary {
 public:
  /// `base64` is the token as the files spell it. kCorrupt: it is not base64, or the id is taken or
  /// beyond kMaxTokenId.
  Status add(std::string_view base64, uint64_t id);

  size_t size() const { return entries_.size(); }

  /// The model and the decoder; a piece that is a token is that token. The views in it live as long
  /// as this object. kCorrupt: a single byte has no token.
  Status fill(PipelineParts& parts, Tables tables);

 private:
  struct Entry {
    std::string text;  // in the byte alphabet
    TokenId id;
  };
  std::vector<Entry> entries_;
};

/// Steps that split by a published expression, with a scanner where there is one, and then write
/// bytes in the byte alphabet. kUnsupported or kCorrupt: the expression cannot be compiled.
Status add_byte_level_split(std::string_view expression, PreTokenizer& pre_tokenizer);

}  // namespace stator::tokenizer
