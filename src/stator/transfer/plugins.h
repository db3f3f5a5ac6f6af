// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/transfer/backend.h"
#include "stator/transfer/stator_transfer_backend.h"

namespace stator::transfer {

/// Backends written against the C table: those of this library, then those of the shared libraries
/// in STATOR_TRANSFER_PLUGIN_DIR, by file name. Which libraries are there is looked up once per
/// process. Libraries stay loaded.
class Plugins {
 public:
  static const Plugins& of_this_process();
  /// Loads every "*.so" of the folder; "" for none. One that is refused is said in the log.
  explicit Plugins(const std::string& folder);

  std::vector<std::string> names() const;
  /// Null: none of that name.
  const stator_transfer_backend_v1* find(std::string_view name) const;

 private:
  std::vector<const stator_transfer_backend_v1*> tables_;
};

/// Why a table cannot be used; empty: it can.
std::string refuse_table(const stator_transfer_backend_v1* table);

std::unique_ptr<Backend> make_plugin_backend(const stator_transfer_backend_v1& table, Host& host,
                                             const Params& params, Clock& clock,
                                             std::string& cause);

/// Tables of this library.
const stator_transfer_backend_v1& ucx_table();
const stator_transfer_backend_v1& cuda_table();

}  // namespace stator::transfer
