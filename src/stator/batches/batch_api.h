// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/api/api_error.h"
#include "stator/batches/batch_store.h"

namespace stator::batches {

/// A request to /v1/files or /v1/batches.
struct ApiCall {
  std::string method;
  std::string path;
  std::string query;
  std::string content_type;
  std::string body;
  std::string owner;
};

struct ApiReply {
  std::string content_type = "application/json";
  std::string body;
};

/// Answers one call from the store, and changes it. New batches have been checked: they are
/// in_progress, or failed with `errors`. Codes: kInvalidArgument, kNotFound, kTooLarge.
api::ApiResult<ApiReply> answer_call(const ApiCall& call, BatchStore& store,
                                     const BatchConfig& config, int64_t now_s);

/// Whether a path is one of them.
bool is_batch_path(std::string_view path);
/// Methods of such a path, for the Allow header; empty: there is no such route.
std::string_view methods_of(std::string_view path);

}  // namespace stator::batches
