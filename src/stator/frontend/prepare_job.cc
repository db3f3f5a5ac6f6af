// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prepare_job.h"

#include <utility>

#include "stator/api/request_parser.h"
#include "stator/core/log.h"
#include "stator/frontend/prepare.h"
#include "stator/frontend/text_endpoints.h"

namespace stator::frontend {
namespace {

using api::ApiResult;

template <typename Parse, typename Prepare>
ApiResult<GenerationPlan> make_plan(PrepareJob& job, const PrepareEnvironment& environment,
                                    Parse parse, Prepare prepare) {
  STATOR_TRY(
      auto request,
      parse(job.body, api::ParseLimits{.strict_fields = environment.config.strict_fields,
                                       .nvext_enabled = environment.config.trusts_body_hints(),
                                       .guided_decoding = true}));
  if (request.options.repair != api::JsonRepair::kNone) {
    log::warn("frontend", "request body was not valid JSON text and was mended");
  }
  STATOR_TRY(auto named, find_served_model(environment.catalog, request.options.model));
  STATOR_CHECK(CancelToken::check(&job.cancel));
  return prepare(std::move(request), std::move(named),
                 PrepareContext{.config = environment.config,
                                .encoder = environment.encoder,
                                .http = job.http,
                                .cancel = &job.cancel,
                                .request_id = job.request_id,
                                .wall_now = job.wall_now});
}

template <typename T>
void settle(PrepareJob& job, ApiResult<T> result) {
  if (result) {
    job.outcome = std::move(*result);
  } else {
    job.outcome = std::move(result.error());
  }
}

void run(PrepareJob& job, const PrepareEnvironment& environment) {
  switch (job.kind) {
    case TextRequest::kChat:
      settle(job, make_plan(job, environment, api::parse_chat_request, prepare_chat));
      return;
    case TextRequest::kCompletion:
      settle(job, make_plan(job, environment, api::parse_completion_request, prepare_completion));
      return;
    case TextRequest::kTokenize:
      settle(job, tokenize(job, environment));
      return;
    case TextRequest::kDetokenize:
      settle(job, detokenize(job, environment));
      return;
  }
}

}  // namespace

ApiResult<NamedModel> find_served_model(const ModelCatalog& catalog, const std::string& name) {
  NamedModel named = catalog.resolve(name);
  if (named.model == nullptr) {
    return api::ApiError(
        Error(Code::kNotFound,
              "model '" + name + "' does not exist here; GET /v1/models lists what does"),
        "model");
  }
  return named;
}

void run_job(PrepareJob& job, const PrepareEnvironment& environment) {
  if (Status wanted = CancelToken::check(&job.cancel); !wanted) {
    job.outcome = api::ApiError(std::move(wanted.error()));
  } else {
    run(job, environment);
  }
  // Freed here rather than on the loop: bodies are large.
  job.body = std::string();
  job.body_lease.release();
  job.done.store(true, std::memory_order_release);
}

}  // namespace stator::frontend
