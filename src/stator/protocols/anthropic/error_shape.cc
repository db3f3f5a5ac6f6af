// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/error_shape.h"

#include "stator/json/writer.h"

namespace stator::protocols::anthropic {

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 402:
      return "billing_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
    case 504:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 499:
      return "request_cancelled";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status >= 400 && status < 500 ? "invalid_request_error" : "api_error";
  }
}

void append_error(std::string& out, std::string_view type, std::string_view message) {
  json::Writer writer(out);
  writer.begin_object().key("type").value("error");
  writer.key("error").begin_object();
  writer.key("type").value(type).key("message").value(message);
  writer.end_object().end_object();
}

void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& style) {
  const bool overloaded = body.status == style.overload_status && body.status != 500 &&
                          body.status != 429 && body.status >= 500;
  append_error(out, overloaded ? "overloaded_error" : error_type(body.status), body.message);
}

}  // namespace stator::protocols::anthropic
