// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/access/caller.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"

namespace stator::access {

using Digest = std::array<unsigned char, 32>;

/// SHA-256. Any thread; some hundred nanoseconds for a key.
Digest sha256(std::string_view text);
std::string to_hex(std::string_view bytes);

/// A key that nobody has seen yet, and what the file of keys says of it.
struct NewKey {
  std::string key;   ///< "sk-stator-…", 256 random bits
  std::string line;  ///< "sha256:HEX role tenant"
};
NewKey make_key(Role role, std::string_view tenant);
/// kInvalidArgument unless it is 1 to 128 of A-Z a-z 0-9 . _ - : @ / | + = ~.
Status check_tenant(std::string_view tenant);

/// The keys of a file. Keys themselves are nowhere: a line has a key's SHA-256, its role and its
/// tenant. Immutable, so any thread may look.
///
///   # production
///   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 user acme
class KeyTable {
 public:
  struct Entry {
    Role role = Role::kUser;
    std::string tenant;
  };
  struct Found {
    const Entry* entry = nullptr;  ///< null: no such key
    Digest digest;
  };

  /// kInvalidArgument names the line. Of two lines with one key the file is refused: which one
  /// counts would be a guess.
  static Result<KeyTable> parse(std::string_view text);

  /// Where an entry is found depends on the key's digest, and digests are compared without an
  /// early end, so how long it takes tells nothing about other keys.
  Found find(std::string_view key) const;
  size_t size() const { return entries_.size(); }
  /// What only who has all keys, or the file, can tell; the order of lines does not count. Empty
  /// for an empty table.
  std::string secret_of_all() const;

 private:
  struct DigestHash {
    size_t operator()(const Digest& digest) const;
  };
  struct DigestEqual {
    bool operator()(const Digest& a, const Digest& b) const;
  };
  absl::flat_hash_map<Digest, Entry, DigestHash, DigestEqual> entries_;
};

}  // namespace stator::access
