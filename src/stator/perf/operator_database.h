// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/result.h"

namespace stator::perf {

class EngineModel;
struct EnginePass;
struct EngineSpec;

/// Placeholder.
class OperatorDatabase {
 public:
  static Result<std::shared_ptr<const OperatorDatabase>> read(const std::string& folder,
                                                              const EngineSpec& spec);
  double step_ms(const EngineModel& model, const EnginePass& pass) const;
};

}  // namespace stator::perf
