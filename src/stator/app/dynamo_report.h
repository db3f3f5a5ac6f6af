// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/app/dynamo.h"
#include "stator/app/dynamo_source.h"

namespace stator::app {

/// What becomes of what a deployment of Dynamo says, and what will differ: each variable and flag,
/// values that would be refused, settings that nobody gave and whose default is another one here.
/// `schema` is of settings that nobody else uses: values are tried on it.
std::vector<DynamoFinding> assess_source(const ConfigSchema& schema, const DynamoSource& source);

/// `stator doctor --from-dynamo SOURCE`: "env" or a file. A line per finding, or JSON.
/// kUnavailable if a value would be refused.
Status report_dynamo(const ConfigSchema& schema, const std::string& source, bool as_json);

}  // namespace stator::app
