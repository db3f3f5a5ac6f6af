// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/lab/fake_engine/answer.h"
#include "stator/lab/fake_engine/faults.h"
#include "stator/lab/fake_engine/server_context.h"

namespace stator::fake_engine {

/// One engine's HTTP interface over the shared simulated engine. On the shard's loop.
class DialectService {
 public:
  virtual ~DialectService() = default;
  /// Answers `exchange` now or later. `fault` is the one for this request, not about status or
  /// garbage.
  virtual void handle(net::HttpExchange& exchange, const Fault& fault) = 0;
  /// How this engine writes an error of its own.
  virtual std::string error_body(int status, std::string_view message) const = 0;
  /// Told after a fault was added, for those that are not about requests.
  virtual void apply_faults() {}
  /// Where KV events go if not to ZeroMQ; null: nowhere.
  virtual EventOutlet* outlet() { return nullptr; }
  /// More members for the ready line, each with a leading comma, such as `,"side_port":1`.
  virtual std::string announcement() const { return {}; }
  /// Ends the dialect's own threads. The loop has stopped already.
  virtual void stop() {}
};

Result<std::unique_ptr<DialectService>> make_vllm_service(ServerContext& context);
Result<std::unique_ptr<DialectService>> make_sglang_service(ServerContext& context);
Result<std::unique_ptr<DialectService>> make_trtllm_service(ServerContext& context);
Result<std::unique_ptr<DialectService>> make_llamacpp_service(ServerContext& context);
/// The one that the config names.
Result<std::unique_ptr<DialectService>> make_dialect_service(ServerContext& context);

/// "text/plain" answers without a body, as /health gives.
void respond_empty(net::HttpExchange& exchange, int status = 200);
void respond_json(net::HttpExchange& exchange, int status, std::string_view body);

struct DialectRoute {
  std::string_view path;
  std::string_view methods;  ///< as in an Allow header: "GET, POST"
};
/// Answers as FastAPI does what none of `routes` takes: 404, or 405 if only the method is another.
/// False: one takes it.
bool refuse_route(net::HttpExchange& exchange, std::span<const DialectRoute> routes);

}  // namespace stator::fake_engine
