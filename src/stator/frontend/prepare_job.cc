// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prepare_job.h"

#include <utility>

#include "stator/api/request_parser.h"
#include "stator/core/log.h"
#include "stator/frontend/chat_work.h"
#include "stator/frontend/pooling/prepare_pool.h"
#include "stator/frontend/prepare.h"
#include "stator/frontend/request_defaults.h"
#include "stator/frontend/stored_responses.h"
#include "stator/frontend/text_endpoints.h"
#include "stator/json/cursor.h"

namespace stator::frontend {
namespace {

using api::ApiResult;
using api::ApiStatus;

PrepareContext context_of(const PrepareJob& job, const PrepareEnvironment& environment) {
  return {.config = environment.config,
          .encoder = environment.encoder,
          .http = job.http,
          .cancel = &job.cancel,
          .request_id = job.request_id,
          .wall_now = job.wall_now};
}

/// The model that a request means, noted in its job, and its defaults for what the client left out.
ApiResult<NamedModel> find_model(api::GenerateOptions& options, PrepareJob& job,
                                 const PrepareEnvironment& environment) {
  if (options.repair != api::JsonRepair::kNone) {
    log::warn("frontend", "request body was not valid JSON text and was mended");
  }
  STATOR_TRY(auto named, find_served_model(environment.catalog, options.model));
  STATOR_CHECK(check_generates(*named.model));
  job.model = named.adapter.empty() ? named.model->name : named.adapter;
  job.stream = options.stream;
  if (environment.config.request_defaults != nullptr) {
    environment.config.request_defaults->apply(job.model, options);
  }
  STATOR_CHECK(CancelToken::check(&job.cancel));
  return named;
}

void finish_chat(ChatWork& work, PrepareJob& job, const PrepareEnvironment& environment) {
  PrepareContext context = context_of(job, environment);
  context.protocol = work.protocol;
  context.echo = std::move(work.echo);
  context.session = std::move(work.session);
  context.media = std::move(work.media.blobs);
  settle(job, prepare_chat(std::move(work.request), std::move(work.named), context));
}

ApiStatus run_chat(PrepareJob& job, const PrepareEnvironment& environment) {
  ChatWork work;
  STATOR_TRY(work.request, api::parse_chat_request(job.body, parse_limits(environment.config)));
  STATOR_TRY(work.named, find_model(work.request.options, job, environment));
  run_chat_work(std::move(work), job, environment, finish_chat);
  return {};
}

ApiResult<GenerationPlan> make_completion_plan(PrepareJob& job,
                                               const PrepareEnvironment& environment) {
  STATOR_TRY(auto request,
             api::parse_completion_request(job.body, parse_limits(environment.config)));
  STATOR_TRY(auto named, find_model(request.options, job, environment));
  return prepare_completion(std::move(request), std::move(named), context_of(job, environment));
}

/// Codex offers tools of OpenAI's without being asked, and takes a refusal for an outage.
bool is_codex(const net::HttpRequest& http) {
  return http.header("originator").value_or("").starts_with("codex");
}

ApiStatus run_protocol(PrepareJob& job, const PrepareEnvironment& environment) {
  const protocols::Protocol& protocol = *job.route.protocol;
  const StoredMemory memory(job, environment);
  protocols::ReadOptions options = read_options(environment.config);
  options.ignore_builtin_tools |= is_codex(job.http);
  options.path = job.http.path();
  options.memory = &memory;
  STATOR_TRY(auto reading, protocol.read(job.body, options));
  ChatWork work;
  work.request = std::move(reading.request);
  work.protocol = reading.protocol != nullptr ? reading.protocol : &protocol;
  work.echo = std::move(reading.echo);
  work.session = std::move(reading.session);
  STATOR_TRY(work.named, find_model(work.request.options, job, environment));
  run_chat_work(std::move(work), job, environment, finish_chat);
  return {};
}

/// A way that makes the outcome itself, unless it fails.
void attempt(PrepareJob& job, ApiStatus done) {
  if (!done.has_value()) {
    job.outcome = std::move(done.error());
  }
}

ApiResult<PoolPlan> make_pool_plan(PrepareJob& job, const PrepareEnvironment& environment) {
  api::ParseLimits limits = parse_limits(environment.config);
  // Servers that have one model, for which the other routes were made, do not ask which.
  limits.model_required =
      job.route.pool == api::PoolKind::kEmbeddings || job.route.pool == api::PoolKind::kCohereEmbed;
  STATOR_TRY(auto call, api::parse_pool_call(job.body, job.route.pool, limits));
  STATOR_TRY(auto named, find_served_model(environment.catalog, call.model));
  STATOR_CHECK(CancelToken::check(&job.cancel));
  return prepare_pool(std::move(call), std::move(named), context_of(job, environment));
}

void run(PrepareJob& job, const PrepareEnvironment& environment) {
  switch (job.route.kind) {
    case TextRequest::kChat:
      attempt(job, run_chat(job, environment));
      return;
    case TextRequest::kCompletion:
      settle(job, make_completion_plan(job, environment));
      return;
    case TextRequest::kProtocol:
      attempt(job, run_protocol(job, environment));
      return;
    case TextRequest::kCount:
      attempt(job, count_tokens(job, environment));
      return;
    case TextRequest::kTokenize:
      settle(job, tokenize(job, environment));
      return;
    case TextRequest::kDetokenize:
      settle(job, detokenize(job, environment));
      return;
    case TextRequest::kPool:
      settle(job, make_pool_plan(job, environment));
      return;
  }
}

}  // namespace

ApiResult<NamedModel> find_served_model(const ModelCatalog& catalog, const std::string& name) {
  if (name.empty()) {  // routes of servers that have one model
    auto models = catalog.list_ready();
    return models.size() == 1
               ? ApiResult<NamedModel>(NamedModel{.model = std::move(models[0]), .adapter = {}})
               : api::validation_error("model",
                                       "model is required: GET /v1/models lists what there is");
  }
  NamedModel named = catalog.resolve(name);
  if (named.model == nullptr) {
    return api::ApiError(
        Error(Code::kNotFound,
              "model '" + name + "' does not exist here; GET /v1/models lists what does"),
        "model");
  }
  return named;
}

PeekedRequest peek_request(std::string_view body, const ModelCatalog& catalog) {
  constexpr size_t kPeekedBytesMax = 64UL << 10;
  constexpr uint32_t kDepthMax = 128;
  PeekedRequest out;
  json::Cursor in(body.substr(0, kPeekedBytesMax), kDepthMax);
  std::string key_text;
  std::string value_text;
  std::string_view key;
  in.enter_object();
  while (in.next_key(key, key_text)) {
    if (key == "model" && in.peek() == json::Kind::kString) {
      std::string_view name;
      in.read_string(name, value_text);
      const NamedModel named = catalog.resolve(name);
      if (named.model != nullptr) {
        out.model = named.adapter.empty() ? named.model->name : named.adapter;
      }
    } else if (key == "stream" && in.peek() == json::Kind::kBool) {
      in.read_bool(out.stream);
    } else {
      in.skip();
    }
  }
  return out;
}

api::ParseLimits parse_limits(const FrontendConfig& config) {
  return {.strict_fields = config.strict_fields,
          .nvext_enabled = config.trusts_body_hints(),
          .guided_decoding = true};
}

protocols::ReadOptions read_options(const FrontendConfig& config) {
  return {.limits = parse_limits(config),
          .ignore_builtin_tools = config.ignore_builtin_tools,
          .strip_preamble = config.strip_preamble};
}

StoredMemory::StoredMemory(const PrepareJob& job, const PrepareEnvironment& environment)
    : store_(environment.responses),
      owner_(owner_of(job.http, environment.config)),
      now_s_(unix_seconds(job.wall_now)) {}

ApiResult<std::vector<std::string>> StoredMemory::items_before(std::string_view answer_id) const {
  const auto refuse = [](std::string text) {
    return api::ApiError(Error(Code::kInvalidArgument, std::move(text)), "previous_response_id");
  };
  if (store_ == nullptr) {
    return refuse("previous_response_id needs stored responses");
  }
  if (const auto live = store_->find_live(answer_id, owner_); live != nullptr && !live->over()) {
    return refuse("the previous response is still in progress");
  }
  const auto chain = store_->chain(answer_id, owner_, now_s_);
  if (!chain) {
    return refuse(chain.error().message());
  }
  std::vector<std::string> items;
  for (const auto& entry : *chain) {
    items.push_back(entry->input_json);
    items.push_back("[" + entry->output_json + "]");
  }
  return items;
}

std::optional<std::string> StoredMemory::find_item(std::string_view item_id) const {
  return store_ == nullptr ? std::nullopt : store_->find_item(item_id, owner_, now_s_);
}

void run_job(PrepareJob& job, const PrepareEnvironment& environment) {
  if (Status wanted = CancelToken::check(&job.cancel); !wanted) {
    job.outcome = api::ApiError(std::move(wanted.error()));
  } else if (auto resume = std::exchange(job.resume, nullptr)) {
    job.wanted.clear();
    resume();
  } else {
    run(job, environment);
  }
  if (std::holds_alternative<api::ApiError>(job.outcome) && job.model.empty()) {
    PeekedRequest peeked = peek_request(job.body, environment.catalog);
    job.model = std::move(peeked.model);
    job.stream = peeked.stream;
  }
  // Freed here rather than on the loop: bodies are large.
  job.body = std::string();
  job.body_lease.release();
  job.done.store(true, std::memory_order_release);
}

}  // namespace stator::frontend
