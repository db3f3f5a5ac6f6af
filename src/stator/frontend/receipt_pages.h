// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/frontend/model_catalog.h"
#include "stator/router/receipt.h"
#include "stator/router/receipt_findings.h"

namespace stator::frontend {

/// What is known beside a receipt.
struct ReceiptContext {
  const ModelCatalog& catalog;  ///< where workers are
  const router::ReceiptLog& receipts;
  const router::ReceiptFindings* findings = nullptr;  ///< null: receipts stay as they are
};

/// What the router wrote down, and where the workers are that it names by number; with the decision
/// about the request's prompt, where another worker computed that. Claims what the engine found
/// instead of what was expected.
std::string receipt_json(router::Receipt receipt, const ReceiptContext& context);
/// The same for a person in a terminal.
std::string receipt_text(router::Receipt receipt, const ReceiptContext& context);

}  // namespace stator::frontend
