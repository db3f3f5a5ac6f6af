// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/byte_bpe.h"

#include "stator/core/assert.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

namespace stator::tokenizer {
namespace {

// Under a millisecond; far more than a word takes that the thread's PreTokenCache would keep.
constexpr size_t kTokensPerLook = 32'768;

uint64_t next_serial() {
  static std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

std::optional<ByteBpe> ByteBpe::create(TokenPairs pairs, std::span<const TokenId, 256> single_bytes,
                                       std::vector<TokenTrie::Entry> entries) {
  auto merger = WordMerger::create(single_bytes, pairs.list_merges());
  if (!merger) {
    return std::nullopt;
  }
  return ByteBpe(std::move(pairs), *std::move(merger), std::move(entries));
}

ByteBpe::ByteBpe(TokenPairs pairs, WordMerger merger, std::vector<TokenTrie::Entry> entries)
    : pairs_(std::move(pairs)),
      merger_(std::move(merger)),
      long_words_(std::make_unique<LongWords>()),
      serial_(next_serial()) {
  long_words_->entries = std::move(entries);
}

const ByteBpe::LongWords& ByteBpe::long_words() const {
  std::call_once(long_words_->once, [&words = *long_words_] {
    words.trie = TokenTrie(words.entries);
    TokenId largest = 0;
    for (const auto& [bytes, token] : words.entries) {
      largest = std::max(largest, token);
    }
    words.tokens.resize(largest + size_t{1});
    for (const auto& [bytes, token] : words.entries) {
      const TokenTrie::Match shorter = words.trie.find_longest(bytes.substr(0, bytes.size() - 1));
      words.tokens[token] = {shorter.bytes != 0 ? shorter.token : kNone,
                             static_cast<uint32_t>(bytes.size())};
    }
    std::vector<TokenTrie::Entry>().swap(words.entries);
  });
  return *long_words_;
}

void ByteBpe::encode(std::string_view word, ByteBpeScratch& scratch,
                     std::vector<TokenId>& out) const {
  if (word.size() <= WordMerger::kBytesMax) {
    std::array<TokenId, WordMerger::kBytesMax + WordMerger::kSpareIds> ids;
    WordToEncode one{.word = word, .ids = ids.data()};
    encode_short({&one, 1});
    out.insert(out.end(), ids.data(), ids.data() + one.count);
    return;
  }
  if (scratch.answers_owner != serial_) {
    scratch.answers.assign(ByteBpeScratch::kAnswers, UINT64_MAX);
    scratch.answers_owner = serial_;
  }
  scratch.tokens.resize(std::max(scratch.tokens.size(), word.size()));
  scratch.dead.assign(word.size() / 64 + 1, 0);
  const size_t count = fill(word, {scratch.tokens.data(), scratch.dead.data()}, scratch);
  out.insert(out.end(), scratch.tokens.data(), scratch.tokens.data() + count);
}

bool ByteBpe::may_touch(TokenId left, TokenId right, ByteBpeScratch& scratch) const {
  static_assert(TokenPairs::kTokensMax <= size_t{1} << 22, "two tokens and a bit fit 64 bits");
  const uint64_t pair = (static_cast<uint64_t>(left) << 22) | right;
  uint64_t& answer = scratch.answers[(pair * 0x9E3779B97F4A7C15ULL) >>
                                     (64 - std::countr_zero(ByteBpeScratch::kAnswers))];
  if (answer >> 1 != pair) {
    answer = pair << 1 | (pairs_.may_touch(left, right) ? 1 : 0);
  }
  return (answer & 1) != 0;
}

/// Writes the tokens of `word` and returns how many.
size_t ByteBpe::fill(std::string_view word, Work work, ByteBpeScratch& scratch) const {
  const auto [tokens, dead] = work;
  const LongWords& words = long_words();
  size_t count = 0;
  size_t at = 0;
  auto [token, bytes] = words.trie.find_longest(word);
  for (size_t tried = 1;; ++tried) {
    ++scratch.steps;
    if (tried % kTokensPerLook == 0 && scratch.cancel != nullptr && scratch.cancel->cancelled())
        [[unlikely]] {
      return count;  // never kept: words this long are not
    }
    const size_t end = at + bytes;
    const bool is_dead = (dead[end / 64] >> (end % 64) & 1) != 0;
    if (!is_dead && (count == 0 || may_touch(tokens[count - 1], token, scratch))) {
      tokens[count++] = token;
      at = end;
      if (at == word.size()) {
        return count;
      }
      const TokenTrie::Match next = words.trie.find_longest(word.substr(at));
      token = next.token;
      bytes = next.bytes;
      continue;
    }
    token = words.tokens[token].shorter;
    while (token == kNone) {
      STATOR_ASSERT(count > 0, "every word has an encoding");
      dead[at / 64] |= uint64_t{1} << (at % 64);
      const TokenId last = tokens[--count];
      at -= words.tokens[last].bytes;
      token = words.tokens[last].shorter;
    }
    bytes = words.tokens[token].bytes;
  }
}

}  // namespace stator::tokenizer
