// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/json/value.h"
#include "stator/operator/field_check.h"

namespace stator::op {

/// [prefix/]name: at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends;
/// the prefix is a DNS name.
bool is_label_key(std::string_view text);
/// The name's rule without a prefix; may be empty.
bool is_label_value(std::string_view text);
/// Lower-case letters, digits, '-' and '.', at most 253.
bool is_dns_subdomain(std::string_view text);

/// Labels as an API server takes them.
void check_labels(FieldCheck& check, const json::Value& parent, std::string_view path,
                  std::string_view key);
/// Annotations as an API server takes them: 256 KiB in all.
void check_annotation_map(FieldCheck& check, const json::Value& parent, std::string_view path,
                          std::string_view key);

}  // namespace stator::op
