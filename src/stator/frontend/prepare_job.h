// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "stator/api/api_error.h"
#include "stator/api/request_parser.h"
#include "stator/continuity/stream_journal.h"
#include "stator/core/cancel_token.h"
#include "stator/core/clock.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/generation.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/pooling/pool_plan.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/stream_gate.h"
#include "stator/media/fetcher_service.h"
#include "stator/net/byte_budget.h"
#include "stator/net/http_request.h"
#include "stator/protocols/protocol.h"

namespace stator::frontend {

/// Requests whose text has to be worked on before anything else can happen.
enum class TextRequest : uint8_t {
  kChat,
  kCompletion,
  kTokenize,
  kDetokenize,
  kProtocol,  ///< to generate from, in another protocol's words
  kCount,     ///< the same, but only its tokens are wanted
  kPool,      ///< for vectors, classes or scores
};

/// Whether it is one to generate from.
constexpr bool generates(TextRequest kind) {
  return kind == TextRequest::kChat || kind == TextRequest::kCompletion ||
         kind == TextRequest::kProtocol;
}

/// What a client wants, in which protocol.
struct TextRoute {
  TextRequest kind = TextRequest::kChat;
  const protocols::Protocol* protocol = nullptr;  ///< of kProtocol and kCount
  api::PoolKind pool = {};                        ///< of kPool
};

/// A stream that began at another frontend.
struct ResumedStream {
  uint64_t first_event = 0;  ///< that the client does not have
  continuity::StreamJournal journal;
};

/// What preparing needs from the process; all of it outlives every job.
struct PrepareEnvironment {
  const FrontendConfig& config;
  const ModelCatalog& catalog;
  const PromptEncoder& encoder;
  responses::ResponseStore* responses = nullptr;  ///< null: nothing is stored
  media::Fetcher* fetcher = nullptr;              ///< null: media come as data: URLs only
  net::ByteBudget* media_bytes = nullptr;         ///< of media that requests hold; null: no bound
};

/// One request on its way from a body to something to run or to send: everything that is needed, so
/// that any thread can do it.
///
/// J1  Between submission and `done` only the thread that runs the job touches it, `cancel` apart;
///     after `done` only the loop does.
/// J2  A job that is done and wants_media() is not over: once these are in `fetched`, or cannot be
///     had (`outcome`), it is run again.
struct PrepareJob {
  TextRoute route;
  net::HttpRequest http;  ///< without its body
  std::string body;
  net::ByteLease body_lease;  ///< its place in the server's budget
  std::string request_id;
  std::string model;    ///< once it is known to be served; for the metrics of a refusal
  bool stream = false;  ///< the same
  WallTime wall_now;
  TimePoint received;
  uint64_t request_hash = 0;                     ///< see StreamJournal; 0 where nobody keeps copies
  std::shared_ptr<const ResumedStream> resumed;  ///< null: it begins here

  /// Set when nobody wants the outcome any more: the work ends within milliseconds.
  CancelToken cancel;
  std::atomic<bool> done{false};
  /// Sources elsewhere that the request names; what comes of them, in their order; and the rest of
  /// the work. Empty: it needs none.
  std::vector<media::Wanted> wanted;
  std::vector<media::BlobPtr> fetched;
  std::move_only_function<void()> resume;
  bool wants_media() const { return !wanted.empty(); }

  /// A plan to run, a body to send, or what is wrong with the request.
  std::variant<std::monostate, GenerationPlan, PoolPlan, std::string, api::ApiError> outcome;
};

/// The model of that name, or the error clients are told.
api::ApiResult<NamedModel> find_served_model(const ModelCatalog& catalog, const std::string& name);

/// What can be said for the metrics of a request that is refused without being read.
struct PeekedRequest {
  std::string model;    ///< as it is served; empty: unknown here, or not to be found
  bool stream = false;  ///< the client asked for one
};
/// Looks for the top-level members `model` and `stream` of a body, however broken the rest is.
/// Reads at most the first 64 KiB.
PeekedRequest peek_request(std::string_view body, const ModelCatalog& catalog);

/// How bodies are read.
api::ParseLimits parse_limits(const FrontendConfig& config);
protocols::ReadOptions read_options(const FrontendConfig& config);

/// What the client of a job may build on.
class StoredMemory final : public protocols::Memory {
 public:
  StoredMemory(const PrepareJob& job, const PrepareEnvironment& environment);
  api::ApiResult<std::vector<std::string>> items_before(std::string_view answer_id) const override;
  std::optional<std::string> find_item(std::string_view item_id) const override;

 private:
  responses::ResponseStore* store_;
  std::string owner_;
  int64_t now_s_;
};

/// Fills `outcome`, sets `done`. Pure but for the catalog and the prefix cache. Any thread.
void run_job(PrepareJob& job, const PrepareEnvironment& environment);

}  // namespace stator::frontend
