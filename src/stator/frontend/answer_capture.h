// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "stator/frontend/answer.h"
#include "stator/net/http_server.h"

namespace stator::frontend {

/// Where the audit log has answers: what one says is also collected, and becomes one event there
/// when it ends, fails, or its client leaves.
class AnswerCapture {
 public:
  /// Nothing where nobody audits answers. The exchange's request says whose it is.
  static std::optional<AnswerCapture> of(net::HttpExchange& exchange, const AnswerSpec& spec);
  /// The same answer, listened to.
  std::unique_ptr<Answer> around(std::unique_ptr<Answer> answer) &&;

 private:
  std::shared_ptr<net::RequestNotes> notes_;  // shared with the request
  std::string request_id_;
  std::string model_;
};

}  // namespace stator::frontend
