// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/parsers/output_parser.h"

namespace stator::parsers {

/// Decides from a request's options which markers count where. Costs a few microseconds.
std::unique_ptr<const ParserPlan> compile_plan(ParserOptions options);

}  // namespace stator::parsers
