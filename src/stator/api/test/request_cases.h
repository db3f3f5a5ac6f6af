// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "stator/api/api_error.h"

namespace stator::api {

/// What an error of the request parser must look like; `text` is a part of the message.
struct Refusal {
  Code code = Code::kInvalidArgument;
  std::string_view param;
  std::string_view text;
};

/// One row of a validation table: members added to a valid request, and the field they break.
struct RuleCase {
  std::string_view extra;
  std::string_view param;
  std::string_view text;
};

inline Refusal rule(const RuleCase& c, Code code = Code::kInvalidArgument) {
  return {code, c.param, c.text};
}

template <typename Request>
void expect_refusal(const ApiResult<Request>& result, const Refusal& refusal,
                    std::string_view body) {
  if (result.has_value()) {
    ADD_FAILURE() << "accepted: " << body;
    return;
  }
  const ApiError& error = result.error();
  EXPECT_EQ(error.code(), refusal.code) << body << " → " << error.message();
  EXPECT_EQ(error.param, refusal.param) << body << " → " << error.message();
  EXPECT_TRUE(error.message().contains(refusal.text)) << body << " → " << error.message();
  EXPECT_TRUE(error.message().starts_with("Validation: ")) << error.message();
}

}  // namespace stator::api
