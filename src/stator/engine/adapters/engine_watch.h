// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/adapters/dialect.h"

namespace stator::engine::adapters {

/// Finds out, question by question, how a server is: whether it answers, how busy it is, whether it
/// was restarted, which adapters it has. Pure: who asks is adapter_service.cc.
///
///   const std::string_view path = watch.next_path();      // GET it, then
///   const EngineWatch::Finding found = watch.on_answer(status, http_status, body);
class EngineWatch {
 public:
  /// `dialect` and `facts` outlive it; `url` is for the log.
  EngineWatch(const Dialect& dialect, const EngineFacts& facts, std::string url);

  /// Metrics, or health where there are none, and now and then the list of models.
  std::string_view next_path();
  /// The list of models is next.
  void list_next() { polls_to_list_ = 0; }

  struct Finding {
    std::optional<bool> up;  ///< none: this answer does not tell
    std::string why;         ///< it is not up
    std::optional<LoadReading> reading;
    std::optional<std::vector<std::string>> adapters;
  };
  /// The answer to next_path(); `reached` is the transport's word.
  Finding on_answer(const Status& reached, int status, std::string_view body);

 private:
  enum class Asked : uint8_t { kLoad, kHealth, kModels };
  Finding failed(const Status& reached, int status);
  void note_start(double process_start_s);

  const Dialect& dialect_;
  const EngineFacts& facts_;
  const std::string url_;
  Asked asked_ = Asked::kLoad;
  bool metrics_missing_ = false;  // the server has no metrics: health only
  uint32_t failures_ = 0;         // in a row
  uint32_t polls_to_list_;
  double process_start_s_ = 0;
};

}  // namespace stator::engine::adapters
