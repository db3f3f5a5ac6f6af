// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace stator::structured {

/// How the schemas of a document need each other, to find those that no decoder can finish.
/// Schemas are numbered 0 … schemas − 1.
class SchemaGraph {
 public:
  explicit SchemaGraph(uint32_t schemas) : same_value_(schemas), open_needs_(schemas) {}

  /// A value of `schema` must be one of at least one of `targets`, and contains or is it. With
  /// `same_value` it is the very same value (`$ref`, anyOf, …), not a part of it.
  void need_one_of(uint32_t schema, const std::vector<uint32_t>& targets, bool same_value);

  /// A schema that reaches itself through same_value needs alone.
  std::optional<uint32_t> find_loop() const;
  /// A schema whose values would all be infinite.
  std::optional<uint32_t> find_endless() const;

 private:
  struct Need {
    uint32_t schema;
    std::vector<uint32_t> targets;
  };
  std::vector<std::vector<uint32_t>> same_value_;  // by schema
  std::vector<uint32_t> open_needs_;               // by schema: how many needs it has
  std::vector<Need> needs_;
};

}  // namespace stator::structured
