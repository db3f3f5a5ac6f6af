// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/receipt_pages.h"

#include <fmt/format.h>

#include <optional>

#include "stator/json/writer.h"

namespace stator::frontend {
namespace {

constexpr std::string_view kPrefillSuffix = "-prefill";

/// The decision about the same request's prompt, in a fleet where others compute those.
std::optional<router::Receipt> prefill_of(const router::Receipt& receipt,
                                          const ReceiptContext& context) {
  return receipt.request_id.ends_with(kPrefillSuffix)
             ? std::nullopt
             : context.receipts.find(receipt.request_id + std::string(kPrefillSuffix));
}

/// Claims what the engine found instead of what was expected, which is returned.
std::optional<uint32_t> correct(router::Receipt& receipt, const ReceiptContext& context) {
  return context.findings == nullptr ? std::nullopt : context.findings->correct(receipt);
}

}  // namespace

std::string receipt_json(router::Receipt receipt, const ReceiptContext& context) {
  const auto expected = correct(receipt, context);
  std::string out = render_json(receipt);
  out.pop_back();  // the object goes on
  if (expected) {
    out += fmt::format(R"(,"expected_overlap_blocks":{})", *expected);
  }
  out += R"(,"urls":)";
  json::Writer json(out);
  json.begin_object();
  for (const router::ReceiptCandidate& candidate : receipt.candidates) {
    const WorkerId worker = candidate.worker.worker;
    if (const std::string place = context.catalog.place_of(worker);
        candidate.worker.dp_rank == 0 && !place.empty()) {
      json.key(std::to_string(worker.value())).value(place);
    }
  }
  json.end_object();
  if (const auto prefill = prefill_of(receipt, context)) {
    out += R"(,"prefill":)";
    json::Writer nested(out);
    nested.begin_object().key("request_id").value(prefill->request_id).key("worker_id");
    nested.value(std::to_string(prefill->chosen.worker.value())).end_object();
  }
  return out + "}";
}

std::string receipt_text(router::Receipt receipt, const ReceiptContext& context) {
  const auto expected = correct(receipt, context);
  std::string out = render_text(receipt);
  if (expected) {
    out += fmt::format(
        "the router had expected {} cached blocks of the chosen worker: removals "
        "were on their way\n",
        *expected);
  }
  for (const router::ReceiptCandidate& candidate : receipt.candidates) {
    const std::string place = context.catalog.place_of(candidate.worker.worker);
    if (candidate.worker.dp_rank == 0 && !place.empty()) {
      out += fmt::format("worker {} is {}\n", candidate.worker.worker.value(), place);
    }
  }
  if (receipt.request_id.ends_with(kPrefillSuffix)) {
    const std::string_view request(receipt.request_id);
    out += fmt::format(
        "this is who computed the prompt; `stator explain {}` says who answered from it\n",
        request.substr(0, request.size() - kPrefillSuffix.size()));
  } else if (const auto prefill = prefill_of(receipt, context)) {
    const WorkerId worker = prefill->chosen.worker;
    out += fmt::format(
        "the prompt was computed by worker {} ({}); `stator explain {}` says why that one\n",
        worker.value(), context.catalog.place_of(worker), prefill->request_id);
  }
  return out;
}

}  // namespace stator::frontend
