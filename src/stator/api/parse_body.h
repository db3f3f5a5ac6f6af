// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/api/field_reader.h"
#include "stator/api/request_parser.h"

namespace stator::api {

/// Replaces broken UTF-8 in `body` and tells whether it had to.
JsonRepair mend_utf8(std::string& body);
/// Escapes raw control bytes in strings; false if there was nothing to do.
bool mend_control_bytes(std::string& body);

/// Runs `read(FieldReader&, Request&, JsonRepair) → ApiStatus` on `body`; if the text is not JSON,
/// once more on the mended text.
template <typename Request, typename Read>
ApiResult<Request> parse_body(std::string& body, const ParseLimits& limits, Read&& read) {
  JsonRepair repair = mend_utf8(body);
  for (bool may_mend = true;; may_mend = false) {
    Request request;
    FieldReader in(body, limits.json_depth_max);
    ApiStatus status = read(in, request, repair);
    if (status.has_value()) {
      return request;
    }
    if (!in.syntax_failed() || !may_mend || !mend_control_bytes(body)) {
      return std::move(status.error());
    }
    if (repair == JsonRepair::kNone) {
      repair = JsonRepair::kControlBytes;
    }
  }
}

}  // namespace stator::api
