// SPDX-License-Identifier: Apache-2.0
#include "stator/access/key_table.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "stator/access/detail/words.h"
#include "stator/core/assert.h"
#include "stator/text/base64.h"
#include "stator/text/hex.h"

namespace stator::access {
namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::string_view kKeyPrefix = "sk-stator-";
constexpr size_t kTenantBytesMax = 128;

/// A context per thread, and the algorithm looked up once: OpenSSL's own one-shot call looks it up
/// each time, which costs more than hashing a key.
struct Hasher {
  Hasher()
      : context(EVP_MD_CTX_new(), EVP_MD_CTX_free),
        algorithm(EVP_MD_fetch(nullptr, "SHA256", nullptr), EVP_MD_free) {
    STATOR_ASSERT(context != nullptr && algorithm != nullptr, "OpenSSL has SHA-256");
  }
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context;
  std::unique_ptr<EVP_MD, void (*)(EVP_MD*)> algorithm;
};

bool parse_digest(std::string_view hex, Digest& digest) {
  if (hex.size() != 2 * digest.size()) {
    return false;
  }
  for (size_t i = 0; i < digest.size(); ++i) {
    const uint32_t high = text::hex_value(hex[2 * i]);
    const uint32_t low = text::hex_value(hex[2 * i + 1]);
    if (high == text::kNoHexDigit || low == text::kNoHexDigit) {
      return false;
    }
    digest[i] = static_cast<unsigned char>(high << 4 | low);
  }
  return true;
}

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

Result<std::pair<Digest, KeyTable::Entry>> parse_line(std::span<const std::string_view> words) {
  Digest digest{};
  if (!words[0].starts_with(kHashPrefix) ||
      !parse_digest(words[0].substr(kHashPrefix.size()), digest)) {
    return Error(Code::kInvalidArgument,
                 "a line is `sha256:HEX role tenant`, with 64 digits of HEX");
  }
  KeyTable::Entry entry{.role = Role::kUser, .tenant = "default"};
  if (words.size() > 1) {
    const auto role = parse_role(words[1]);
    if (!role) {
      return Error(Code::kInvalidArgument,
                   fmt::format("role '{}' is not user, service or operator", words[1]));
    }
    entry.role = *role;
  }
  if (words.size() > 2) {
    STATOR_CHECK(check_tenant(words[2]));
    entry.tenant = words[2];
  }
  if (words.size() > 3) {
    return Error(Code::kInvalidArgument, "nothing comes after the tenant");
  }
  return std::pair(digest, std::move(entry));
}

}  // namespace

Digest sha256(std::string_view text) {
  thread_local const Hasher hasher;
  Digest digest{};
  unsigned int bytes = 0;
  const bool done =
      EVP_DigestInit_ex2(hasher.context.get(), hasher.algorithm.get(), nullptr) == 1 &&
      EVP_DigestUpdate(hasher.context.get(), text.data(), text.size()) == 1 &&
      EVP_DigestFinal_ex(hasher.context.get(), digest.data(), &bytes) == 1;
  STATOR_ASSERT(done && bytes == digest.size(), "OpenSSL hashes");
  return digest;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Status check_tenant(std::string_view tenant) {
  const bool known = std::ranges::all_of(tenant, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-:@/|+=~").contains(c);
  });
  if (tenant.empty() || tenant.size() > kTenantBytesMax || !known) {
    return Error(Code::kInvalidArgument,
                 fmt::format("a tenant's name is 1 to {} letters, digits and . _ - : @ / | + = ~",
                             kTenantBytesMax));
  }
  return {};
}

NewKey make_key(Role role, std::string_view tenant) {
  std::array<unsigned char, 32> secret{};
  STATOR_ASSERT(RAND_bytes(secret.data(), secret.size()) == 1, "the system has random bytes");
  NewKey made;
  made.key = std::string(kKeyPrefix) +
             text::encode_base64url({reinterpret_cast<const char*>(secret.data()), secret.size()});
  OPENSSL_cleanse(secret.data(), secret.size());
  made.line = fmt::format("{}{} {} {}", kHashPrefix, to_hex(as_text(sha256(made.key))),
                          describe(role), tenant);
  return made;
}

size_t KeyTable::DigestHash::operator()(const Digest& digest) const {
  size_t start = 0;
  std::memcpy(&start, digest.data(), sizeof start);
  return start;
}

bool KeyTable::DigestEqual::operator()(const Digest& a, const Digest& b) const {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<KeyTable> KeyTable::parse(std::string_view text) {
  KeyTable table;
  detail::LineWords lines(text);
  while (lines.next()) {
    auto parsed = parse_line(lines.words());
    if (!parsed) {
      return std::move(parsed.error()).with_context(fmt::format("line {}", lines.number()));
    }
    if (!table.entries_.emplace(std::move(*parsed)).second) {
      return Error(Code::kInvalidArgument,
                   fmt::format("line {}: this key has a line already", lines.number()));
    }
  }
  return table;
}

std::string KeyTable::secret_of_all() const {
  if (entries_.empty()) {
    return {};
  }
  Digest all{};
  for (const auto& [digest, entry] : entries_) {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] ^= digest[i];
    }
  }
  return to_hex(as_text(sha256(as_text(all))));
}

KeyTable::Found KeyTable::find(std::string_view key) const {
  Found found{.entry = nullptr, .digest = sha256(key)};
  const auto known = entries_.find(found.digest);
  found.entry = known == entries_.end() ? nullptr : &known->second;
  return found;
}

}  // namespace stator::access
