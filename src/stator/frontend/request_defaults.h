// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/api/request.h"
#include "stator/core/result.h"

namespace stator::frontend {

/// What counts where a request says nothing, by model (--request-template FILE, JSON):
///
///   {"temperature": 0.7, "max_completion_tokens": 4096,
///    "models": {"org/small": {"temperature": 0.2, "top_p": 0.9, "top_k": 40, "min_p": 0.05}}}
///
/// Members of a model go before those of all. They go before the model's own
/// generation_config.json, and behind whatever the client sends.
class RequestDefaults {
 public:
  /// kInvalidArgument names the member that is wrong.
  static Result<std::shared_ptr<const RequestDefaults>> parse(std::string_view text);

  void apply(std::string_view model, api::GenerateOptions& options) const;

 private:
  struct Values {
    std::optional<float> temperature, top_p, min_p;
    std::optional<int32_t> top_k;
    std::optional<uint32_t> max_tokens;

    void apply(api::GenerateOptions& options) const;
  };
  friend struct RequestDefaultsReader;

  Values all_;
  std::map<std::string, Values, std::less<>> models_;
};

}  // namespace stator::frontend
