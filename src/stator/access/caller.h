// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace stator::access {

class Tenant;

/// What a caller may do; each may do what those before it may.
enum class Role : uint8_t {
  kAnyone,    ///< no credentials: is it alive
  kUser,      ///< asks for text, for itself: no say in who serves it, before whom, from whose cache
  kService,   ///< a gateway or program of ours: pins, priorities, other tenants, metrics
  kOperator,  ///< changes how everybody is served, and sees what everybody does
};

/// "anyone", "user", "service" or "operator".
std::string_view describe(Role role);
/// The roles that keys and tokens can have; none for another word.
std::optional<Role> parse_role(std::string_view word);

/// Who sent a request.
struct Caller {
  Role role = Role::kAnyone;
  std::string tenant;  ///< empty: tenants are not told apart
  /// What logs may show: the first digits of the key's hash, or the token's subject. Empty: none.
  std::string key_id;
  std::shared_ptr<Tenant> budget;  ///< shared by the tenant's requests; null: unlimited

  /// Whether its routing headers, pins, priorities and tenant header count.
  bool may_route() const { return role >= Role::kService; }
};

}  // namespace stator::access
