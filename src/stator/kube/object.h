// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::kube {

/// Where objects of one kind live: group "" is the core group.
struct Resource {
  std::string group;
  std::string version;
  std::string plural;
  std::string kind;
  bool is_namespaced = true;

  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
  bool operator==(const Resource&) const = default;
};

/// The resource of a kind that Stator reads or writes; nothing for kinds it does not know.
std::optional<Resource> find_resource(std::string_view api_version, std::string_view kind);
/// The same for kinds that are known to be in the table; a bug otherwise (asserts).
const Resource& resource_of(std::string_view kind);

/// metadata.namespace/metadata.name of an object.
struct ObjectName {
  std::string space;
  std::string name;
  auto operator<=>(const ObjectName&) const = default;
  std::string to_string() const { return space.empty() ? name : space + "/" + name; }
};
ObjectName name_of(const json::Value& object);
std::string_view uid_of(const json::Value& object);
int64_t generation_of(const json::Value& object);

/// metadata.labels[key], metadata.annotations[key]; empty if there is none.
std::string_view label_of(const json::Value& object, std::string_view key);
std::string_view annotation_of(const json::Value& object, std::string_view key);

/// An integer at a path, or the fallback.
int64_t int_at(const json::Value& object, std::initializer_list<std::string_view> path,
               int64_t fallback);
bool bool_at(const json::Value& object, std::initializer_list<std::string_view> path,
             bool fallback);
/// Down a path, with objects made where they are missing.
json::Value& at(json::Value& object, std::initializer_list<std::string_view> path);
/// The element of an array whose "name" is this; null pointer if there is none.
const json::Value* find_named(const json::Value* list, std::string_view name);
json::Value* find_named(json::Value* list, std::string_view name);

/// {apiVersion, kind, metadata {name, namespace}}.
json::Value make_object(const Resource& resource, const ObjectName& name);
/// Makes `owner` the controller of `child`.
void set_owner(json::Value& child, const json::Value& owner);

/// Equality of meaning: order of members does not count, order of elements does.
bool same(const json::Value& a, const json::Value& b);
/// Members sorted by key all the way down: what is hashed.
json::Value sorted(const json::Value& value);
/// RFC 7386: members of `patch` replace, null removes.
void merge_patch(json::Value& target, const json::Value& patch);

/// Hex SHA-256, and its first eight digits.
std::string sha256_hex(std::string_view bytes);
std::string short_hash(std::string_view bytes);

/// A Kubernetes quantity ("500m", "8Gi", "2e3") in thousandths of its unit. kInvalidArgument.
Result<int64_t> parse_quantity_milli(std::string_view text);

}  // namespace stator::kube
