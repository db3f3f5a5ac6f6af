// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/block_name.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "stator/core/assert.h"

namespace stator::storage {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

/// One context per thread: making one costs three times the hash of a block.
EVP_MD_CTX* context() {
  thread_local const Context made = [] {
    Context fresh(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    STATOR_ASSERT(EVP_DigestInit_ex2(fresh.get(), EVP_sha256(), nullptr) == 1,
                  "OpenSSL has SHA-256");
    return fresh;
  }();
  STATOR_ASSERT(EVP_DigestInit_ex2(made.get(), nullptr, nullptr) == 1, "SHA-256 starts over");
  return made.get();
}

Digest finish(EVP_MD_CTX* hash) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> full{};
  STATOR_ASSERT(EVP_DigestFinal_ex(hash, full.data(), nullptr) == 1, "SHA-256 ends");
  Digest out;
  std::ranges::copy(std::as_bytes(std::span(full)).first(out.size()), out.begin());
  return out;
}

}  // namespace

std::string to_hex(const Digest& digest) {
  std::string out;
  for (const std::byte byte : digest) {
    out += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return out;
}

Digest namespace_of(const NamespaceFacts& facts) {
  const std::string lines = fmt::format(
      "format=stator-kv-1\nmodel={}\nrevision={}\ntokenizer={}\ndtype={}\nlayout={}\nsalt={}\n"
      "block_tokens={}\nlayers={}\nkv_heads={}\nhead_dim={}\nblock_bytes={}\n",
      facts.model, facts.revision, facts.tokenizer, facts.dtype, facts.layout, facts.salt,
      facts.block_tokens, facts.layers, facts.kv_heads, facts.head_dim, facts.block_bytes);
  EVP_MD_CTX* const hash = context();
  EVP_DigestUpdate(hash, lines.data(), lines.size());
  return finish(hash);
}

Digest root_check(const Digest& space, std::string_view owner) {
  EVP_MD_CTX* const hash = context();
  EVP_DigestUpdate(hash, space.data(), space.size());
  EVP_DigestUpdate(hash, owner.data(), owner.size());
  return finish(hash);
}

Digest next_check(const Digest& parent_check, std::span<const TokenId> tokens) {
  EVP_MD_CTX* const hash = context();
  EVP_DigestUpdate(hash, parent_check.data(), parent_check.size());
  EVP_DigestUpdate(hash, tokens.data(), tokens.size_bytes());
  return finish(hash);
}

std::vector<BlockName> name_blocks(const Digest& space, const kv::SequenceBlocks& blocks) {
  std::vector<BlockName> names;
  if (blocks.unknown > 0) {
    return names;
  }
  names.reserve(blocks.size());
  Digest check = root_check(space, blocks.owner);
  for (size_t i = 0; i < blocks.size() && i < kv::LineageHash::kPositionsMax; ++i) {
    check = next_check(check, blocks[i].tokens);
    const blocks::SequenceHash parent = i == 0 ? blocks::SequenceHash() : blocks.sequences[i - 1];
    names.push_back(
        {.lineage = *kv::LineageHash::make(static_cast<uint32_t>(i), blocks.sequences[i], parent),
         .check = check});
  }
  return names;
}

}  // namespace stator::storage
