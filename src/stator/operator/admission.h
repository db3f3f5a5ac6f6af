// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/json/value.h"
#include "stator/operator/graph.h"

namespace stator::op {

/// What an API server asks of its webhooks, answered. Pure: a review in, a review out.
struct AdmissionContext {
  Environment environment = {};
  /// Who the operator is to the API server: only it may scale what an adapter scales. Empty:
  /// nobody.
  std::string operator_user = {};
};

/// AdmissionReview (v1) of an object that is written: a JSON patch with its defaults.
json::Value review_defaults(const json::Value& review, const AdmissionContext& context);

/// AdmissionReview (v1): allowed, or the first violation as one message that names the field and
/// what is allowed. Deletions pass, and so do kinds that nobody knows.
json::Value review_validity(const json::Value& review, const AdmissionContext& context);

/// AdmissionReview (v1) of a pod that may be restored, and the checkpoint that it names (null: it
/// is not there): a JSON patch where the checkpoint is ready, else the pod starts cold.
json::Value review_restore(const json::Value& review, const json::Value& checkpoint);

/// ConversionReview (v1): each object in the desired version, without loss. Fails as a whole only
/// when a version is asked for that there is not.
json::Value review_conversion(const json::Value& review);

}  // namespace stator::op
