// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace stator::perf {

struct CatalogueEntry {
  std::string_view name;    ///< as on the Hugging Face hub
  std::string_view config;  ///< the fields of its config.json that parse_model_config() reads
};

/// Widely served models, so that a plan needs no download.
std::span<const CatalogueEntry> model_catalogue();

}  // namespace stator::perf
