// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/routing_preview.h"

#include <utility>

#include "stator/frontend/receipt_pages.h"
#include "stator/json/cursor.h"

namespace stator::frontend {
namespace {

/// Whether the body has messages rather than a prompt; however broken it is.
bool is_chat(std::string_view body) {
  constexpr uint32_t kDepthMax = 128;
  json::Cursor in(body, kDepthMax);
  std::string key_text;
  std::string_view key;
  in.enter_object();
  while (in.next_key(key, key_text)) {
    if (key == "messages") {
      return true;
    }
    in.skip();
  }
  return false;
}

router::RouteRequest request_of(const GenerationPlan& plan) {
  const RoutingWish& wish = plan.routing;
  return {.request_id = "preview",
          .model = plan.model->name,
          .prompt_tokens = static_cast<uint32_t>(plan.prompts.front().size()),
          .block_size = plan.model->block_size,
          .sequences = plan.sequences.front(),
          .constraints = {.pinned = wish.pinned,
                          .pinned_rank = wish.pinned_rank,
                          .allowed = wish.allowed,
                          .required_taints = wish.required_taints,
                          .preferred_taints = wish.preferred_taints},
          .prefill_pinned = wish.prefill_pinned,
          .prefill_pinned_rank = wish.prefill_rank,
          .override = wish.override,
          .expected_output_tokens = wish.expected_output_tokens,
          .tier = router::tier_of(wish.strict_priority, plan.priority),
          .session = wish.session,
          .media_json = plan.media_json};
}

}  // namespace

api::ApiResult<std::string> preview_routing(net::HttpRequest asked,
                                            const PrepareEnvironment& environment,
                                            const router::ReceiptLog& receipts, WallTime now) {
  PrepareJob job;
  job.body = asked.take_body();
  job.route.kind = is_chat(job.body) ? TextRequest::kChat : TextRequest::kCompletion;
  job.http = std::move(asked);
  job.request_id = "preview";
  job.wall_now = now;
  run_job(job, environment);
  if (job.wants_media()) {
    return api::validation_error("messages", "media of a preview must be data: URLs");
  }
  if (auto* error = std::get_if<api::ApiError>(&job.outcome)) {
    return std::move(*error);
  }
  const auto& plan = std::get<GenerationPlan>(job.outcome);
  const router::RouteRequest request = request_of(plan);
  STATOR_TRY(const router::Receipt receipt, plan.model->router->preview(request));
  const ReceiptContext pages{environment.catalog, receipts};
  std::string out = receipt_json(receipt, pages);
  out.pop_back();  // the object goes on
  out += R"(,"prefill":)";
  if (plan.model->prefill == nullptr || !plan.model->prefill->has_workers()) {
    return out + "null}";
  }
  router::RouteRequest prompt = request;
  prompt.constraints.pinned = request.prefill_pinned;
  prompt.constraints.pinned_rank = request.prefill_pinned_rank;
  const auto prefill = plan.model->prefill->prefill().preview(prompt);
  return out + (prefill ? receipt_json(*prefill, pages) : "null") + "}";
}

}  // namespace stator::frontend
