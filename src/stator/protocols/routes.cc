// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/routes.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "stator/protocols/anthropic/anthropic.h"
#include "stator/protocols/kserve/kserve.h"
#include "stator/protocols/responses/responses.h"
#include "stator/protocols/tokens/tokens.h"

namespace stator::protocols {
namespace {

// A new protocol is a line here.
constexpr auto kRoutes = std::to_array<Route>({
    {"/inference/v1/generate", &tokens::kVllm, Operation::kGenerate},
    {"/generate", &tokens::kSglang, Operation::kGenerate},
    {"/generate_stream", &tokens::kTgi, Operation::kGenerate},
    {"/", &tokens::kTgi, Operation::kGenerate},
    {"/v1/messages", &anthropic::kProtocol, Operation::kGenerate},
    {"/v1/messages/count_tokens", &anthropic::kProtocol, Operation::kCount},
    {"/v1/responses", &responses::kProtocol, Operation::kGenerate},
    {"/v1/responses/compact", &responses::kCompact, Operation::kGenerate},
    {"/v1/responses/input_tokens", &responses::kProtocol, Operation::kCount},
});

// What http.overload_status is unless the operator says otherwise.
constexpr int kOverloadStatusDefault = 503;

constexpr std::array<size_t, 4> kUuidDashes = {8, 12, 16, 20};  // places in the digits
constexpr size_t kUuidDigits = 32;

bool lies_under(std::string_view path, std::string_view parent) {
  return path.starts_with(parent) && (path.size() == parent.size() || path[parent.size()] == '/') &&
         (parent != "/" || path == "/");
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

const Route* find_route(std::string_view path) {
  // The one protocol whose paths name the model.
  if (const auto model = kserve::parse_model_path(path)) {
    static constexpr Route kGenerate = {"/v2/models/{id}/generate", &kserve::kProtocol,
                                        Operation::kGenerate};
    const bool generates =
        model->verb == kserve::Verb::kGenerate || model->verb == kserve::Verb::kGenerateStream;
    return generates ? &kGenerate : nullptr;
  }
  const auto* const route = std::ranges::find(kRoutes, path, &Route::path);
  return route == kRoutes.end() ? nullptr : route;
}

const Protocol* find_protocol(std::string_view path) {
  const auto* const route = std::ranges::find_if(
      kRoutes, [path](const Route& known) { return lies_under(path, known.path); });
  if (route == kRoutes.end()) {
    return kserve::is_kserve_path(path) ? &kserve::kProtocol : nullptr;
  }
  return route->protocol;
}

api::ErrorStyle style_for(const Protocol* protocol, api::ErrorStyle style) {
  if (protocol == nullptr) {
    return style;
  }
  style.append = protocol->append_error;
  if (protocol->overload_status != 0 && style.overload_status == kOverloadStatusDefault) {
    style.overload_status = protocol->overload_status;
  }
  return style;
}

std::string answer_id(const Protocol& protocol, std::string_view request_id) {
  std::string id(protocol.id_prefix);
  id.reserve(protocol.id_prefix.size() + kUuidDigits);
  std::ranges::copy_if(request_id, std::back_inserter(id), [](char c) { return c != '-'; });
  return id;
}

std::string request_id_of(std::string_view answer_id) {
  for (const Route& route : kRoutes) {
    const std::string_view prefix = route.protocol->id_prefix;
    if (!answer_id.starts_with(prefix) || answer_id.size() != prefix.size() + kUuidDigits) {
      continue;
    }
    const std::string_view digits = answer_id.substr(prefix.size());
    std::string id;
    for (size_t i = 0; i < digits.size(); ++i) {
      if (std::ranges::find(kUuidDashes, i) != kUuidDashes.end()) {
        id += '-';
      }
      id += digits[i];
    }
    return id;
  }
  return {};
}

}  // namespace stator::protocols
