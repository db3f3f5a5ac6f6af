// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "stator/frontend/endpoints.h"

namespace stator::frontend {

/// The service as an OpenAPI 3.1 document: every route of `routes` (list_routes()), and of bodies
/// every field that their readers know (api/field_catalog.h).
std::string make_openapi(std::span<const RouteRow> routes);

/// The same for people: a page of HTML without scripts.
std::string make_docs_page(std::span<const RouteRow> routes);

}  // namespace stator::frontend
