// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::op {

/// v1alpha1 ↔ v1beta1 of DynamoGraphDeployment, DynamoComponentDeployment,
/// DynamoGraphDeploymentRequest and DynamoGraphDeploymentScalingAdapter; other kinds have one
/// version, or the same fields in both and only their apiVersion changes.
///
/// Loss-free: what the other version cannot say is kept beside it, as the whole spec (or status)
/// that was converted, in one annotation. On the way back the difference between what was converted
/// then and what is there now is applied to that: a field that was changed meanwhile has its new
/// value, a field the other version does not know its old one. Where the two disagree about one
/// field, the live object wins.
///
/// kInvalidArgument when `version` is not a version of `object`'s kind. Never fails on stored
/// objects: parts of the wrong type are carried over as they are.
Result<json::Value> convert(const json::Value& object, std::string_view version);

bool is_conversion_annotation(std::string_view key);

/// Claims and a service's entry: fields of v1alpha1 that v1beta1 has no place for and the operator
/// acts on; null where there are none. `graph` is in v1beta1.
/// The spec as v1alpha1 said it; null where it was never said so.
json::Value preserved_alpha(const json::Value& graph);
json::Value preserved_claims(const json::Value& graph);
json::Value preserved_ingress(const json::Value& graph, std::string_view component);

inline constexpr std::string_view kAnnotationAlpha = "stator.dev/v1alpha1-spec";
inline constexpr std::string_view kAnnotationBeta = "stator.dev/v1beta1-spec";
inline constexpr std::string_view kAnnotationAlphaStatus = "stator.dev/v1alpha1-status";
inline constexpr std::string_view kAnnotationBetaStatus = "stator.dev/v1beta1-status";
/// What the reference operator wrote: read for claims when a namespace moves over.
inline constexpr std::string_view kAnnotationReferenceAlpha = "nvidia.com/dgd-spec";
/// A v1alpha1 service's entry, on the component that is made of it.
inline constexpr std::string_view kAnnotationIngress = "stator.dev/ingress";

}  // namespace stator::op
