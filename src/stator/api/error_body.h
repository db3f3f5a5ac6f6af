// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/api/api_error.h"

namespace stator::api {

struct ErrorBody;

/// How the operator, and the protocol of the request, want errors spelled.
struct ErrorStyle {
  /// Status of "all workers busy": DYN_HTTP_OVERLOAD_STATUS_CODE. Its type is always "Overloaded".
  int overload_status = 529;
  /// Also nest {"error":{…}} as OpenAI SDKs expect; off = only the flat Dynamo fields.
  bool nested = true;
  /// Writes bodies in the shape of another protocol; null: OpenAI's.
  using AppendBody = void (*)(std::string& out, const ErrorBody& body, const ErrorStyle& style);
  AppendBody append = nullptr;
};

/// An error answer. Empty views are null or left out.
struct ErrorBody {
  int status = 500;
  std::string_view message;
  std::string_view type;          ///< empty: from the status
  std::string_view param;         ///< empty: null
  std::string_view details_json;  ///< ready-made object; empty: left out
};

/// "Bad Request", "Not Found", …; "Overloaded" for the overload status, "Client Closed Request" for
/// 499.
std::string_view error_type(int status, const ErrorStyle& style = {});
/// "invalid_request_error" (4xx), "request_cancelled" (499), "service_unavailable" (503, 529),
/// "internal_server_error": the type inside event streams.
std::string_view sse_error_type(int status, const ErrorStyle& style = {});
/// The status for a code: kOverloaded gives the overload status, all others describe(code).
int http_status(Code code, const ErrorStyle& style = {});

/// {"error":{"message","type","param","code"},"message","type","code"[,"details"]}
void append_error_body(std::string& out, const ErrorBody& body, const ErrorStyle& style = {});
/// The same from an error as parsing and dispatch return it; returns the HTTP status to send.
int append_error_body(std::string& out, const ApiError& error, const ErrorStyle& style = {});

/// 404 "Route not found: GET /x" and 405 "Method not allowed: …".
void append_route_not_found(std::string& out, std::string_view method, std::string_view path,
                            const ErrorStyle& style = {});
void append_method_not_allowed(std::string& out, std::string_view method, std::string_view path,
                               const ErrorStyle& style = {});

}  // namespace stator::api
