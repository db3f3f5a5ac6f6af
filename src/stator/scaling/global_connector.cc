// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/json/value.h"
#include "stator/net/http_client.h"
#include "stator/scaling/connector.h"
#include "stator/scaling/global_planner.h"

namespace stator::scaling {
namespace {

constexpr size_t kAnswerBytesMax = 1UL << 20;

class GlobalConnector final : public Connector {
 public:
  explicit GlobalConnector(GlobalOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "global-planner"; }
  Result<PoolCounts> counts() override {
    PoolCounts out;
    out.wanted = current_;
    return out;
  }
  Status set(const PoolTargets& targets, std::string_view /*reason*/) override {
    const ScaleRequest request{.caller_namespace = options_.caller_namespace,
                               .graph = options_.graph,
                               .kube_namespace = options_.kube_namespace,
                               .targets = targets,
                               .blocking = false,
                               .predicted_load = {}};
    STATOR_TRY(
        const net::HttpClientResponse response,
        client_.request({.method = "POST",
                         .url = options_.url + "/v1/scale",
                         .headers = {{"Content-Type", "application/json"}},
                         .body = render_json(request)},
                        {.timeout = std::chrono::seconds(30), .body_bytes_max = kAnswerBytesMax}),
        "the global planner");
    STATOR_TRY(const json::Value answer, json::parse(response.body), "the global planner");
    for (const auto& [role, into] :
         {std::pair("prefill", &current_.prefill), std::pair("decode", &current_.decode)}) {
      if (const auto count = answer.at("current_replicas").at(role).as_uint64()) {
        *into = static_cast<uint32_t>(*count);
      }
    }
    if (answer.text_at({"status"}) != "success") {
      return Error(Code::kUnavailable,
                   fmt::format("the global planner said {}: {}", answer.text_at({"status"}),
                               answer.text_at({"message"})));
    }
    return {};
  }

 private:
  const GlobalOptions options_;
  net::HttpClient client_;
  PoolTargets current_;
};

}  // namespace

std::unique_ptr<Connector> make_global_connector(GlobalOptions options) {
  return std::make_unique<GlobalConnector>(std::move(options));
}

}  // namespace stator::scaling
