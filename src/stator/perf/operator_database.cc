// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/operator_database.h"

#include "stator/perf/engine_model.h"

namespace stator::perf {

Result<std::shared_ptr<const OperatorDatabase>> OperatorDatabase::read(const std::string& folder,
                                                                       const EngineSpec& /*spec*/) {
  return Error(Code::kUnsupported, "reading '" + folder + "' is not there yet");
}

double OperatorDatabase::step_ms(const EngineModel& model, const EnginePass& pass) const {
  return model.parts(pass)[0];
}

void EngineModel::attach(std::shared_ptr<const OperatorDatabase> database) {
  database_ = std::move(database);
}

}  // namespace stator::perf
