// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "stator/structured/refusal.h"

namespace stator::structured {

/// "ok", or "<field>| <text>" of the refusal: one string to compare in table-driven tests.
template <typename T>
std::string verdict(const Outcome<T>& outcome) {
  if (outcome.has_value()) {
    return "ok";
  }
  const Refusal& refusal = outcome.error();
  return refusal.field.empty() ? refusal.text : refusal.field + "| " + refusal.text;
}

}  // namespace stator::structured
