// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/discovery/etcd_discovery.h"

namespace stator::discovery {

/// Single keys of an etcd v3 store, for what others wrote there or will read: no lease, no root.
/// Calls block, each for `call_timeout` at most. Thread-safe.
class EtcdKeys {
 public:
  virtual ~EtcdKeys() = default;
  /// Empty: not there. kUnavailable: another try may mend it.
  virtual Result<std::string> get(std::string_view key) = 0;
  virtual Status put(std::string_view key, std::string_view value) = 0;
};

/// Errors as open_etcd_discovery(); the store need not be there yet.
Result<std::unique_ptr<EtcdKeys>> open_etcd_keys(const EtcdOptions& options);

}  // namespace stator::discovery
