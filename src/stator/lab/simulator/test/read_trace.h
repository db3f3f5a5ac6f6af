// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "stator/lab/simulator/trace_format.h"

namespace stator::simulator {

/// All requests of a trace that is `text`.
inline Result<std::vector<TraceRequest>> read_all(const std::string& text,
                                                  const TraceOptions& options = {}) {
  std::istringstream input(text);
  STATOR_TRY(const auto trace, open_trace(input, options));
  std::vector<TraceRequest> requests;
  TraceRequest request;
  while (true) {
    STATOR_TRY(const bool found, trace->next(request));
    if (!found) {
      return requests;
    }
    requests.push_back(request);
  }
}

}  // namespace stator::simulator
