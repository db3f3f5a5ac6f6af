// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/api/api_error.h"
#include "stator/frontend/prepare_job.h"
#include "stator/router/receipt.h"

namespace stator::frontend {

/// Where a request would go, had it come now, and why: its body is prepared as ever (template,
/// tokens, hashes, pins), the model's routers are asked, and nothing is booked, generated or kept.
/// `request`: its body is a text completion ("prompt": text or token ids, the first of several) or
/// a chat completion ("messages"); its RequestRecord, if it has one, says for which tenant. Any
/// thread; as long as preparing takes.
///
/// JSON: the receipt of who would answer; with "prefill", that of who would compute the prompt, or
/// null where one worker does both.
api::ApiResult<std::string> preview_routing(net::HttpRequest request,
                                            const PrepareEnvironment& environment,
                                            const router::ReceiptLog& receipts, WallTime now);

}  // namespace stator::frontend
