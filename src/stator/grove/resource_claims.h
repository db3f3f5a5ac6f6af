// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stator/grove/set_objects.h"

namespace stator::grove {

/// ResourceClaims that pods of a set share: those of its resourceSharing, of its groups' and of its
/// cliques'. "<owner>-all-<template>" is one for all of the owner, "<owner>-<index>-<template>" one
/// for each replica of it. What is stored keeps its spec, which cannot change. Templates that
/// nobody has are named in `missing`; their claims are left out.
std::vector<json::Value> make_claims(const SetContext& context, std::vector<std::string>& missing);

/// Gives pod `index` of a clique, and each of its containers, the claims that it shares.
void add_claims(const SetContext& context, const CliqueInstance& clique, int64_t index,
                json::Value& pod_spec);

}  // namespace stator::grove
