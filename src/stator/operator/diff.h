// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/kube/client.h"

namespace stator::op {

/// One field that would change: paths as API servers write them
/// (.spec.containers[name="main"].image).
struct FieldChange {
  std::string path;
  std::string before;  ///< JSON; empty: it was not there
  std::string after;   ///< JSON; empty: it goes
};

/// What differs, in order of the paths; what only the server writes does not count.
std::vector<FieldChange> compare_objects(const json::Value& before, const json::Value& after);

/// What applying an object would do to the cluster, asked of its API server as a dry run.
struct ObjectDiff {
  std::string object;  ///< "Deployment llm/chat-frontend"
  bool is_new = false;
  std::vector<FieldChange> changes = {};
};

/// For each object in turn; those that would stay as they are are left out. Fails with the first
/// one that the server would refuse.
Result<std::vector<ObjectDiff>> diff_with_cluster(kube::Client& client,
                                                  const std::vector<json::Value>& objects);

std::string to_text(const std::vector<ObjectDiff>& diffs);
json::Value to_json(const std::vector<ObjectDiff>& diffs);

}  // namespace stator::op
