// SPDX-License-Identifier: Apache-2.0
#include "stator/api/error_body.h"

#include <algorithm>
#include <array>

#include "stator/json/writer.h"

namespace stator::api {
namespace {

struct Reason {
  int status;
  std::string_view phrase;
};

constexpr auto kReasons = std::to_array<Reason>({
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Payload Too Large"},
    {415, "Unsupported Media Type"},
    {422, "Unprocessable Entity"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
});

void write_members(json::Writer& json, const ErrorBody& body, std::string_view type) {
  json.key("message").value(body.message);
  json.key("type").value(type);
}

void append_route_error(std::string& out, int status, std::string_view what,
                        const ErrorStyle& style) {
  append_error_body(out, ErrorBody{.status = status, .message = what}, style);
}

std::string route_text(std::string_view what, std::string_view method, std::string_view path) {
  std::string text(what);
  text.append(method).append(" ").append(path);
  return text;
}

}  // namespace

std::string_view error_type(int status, const ErrorStyle& style) {
  if (status == style.overload_status && status != 500 && status != 503) {
    return "Overloaded";
  }
  const auto reason = std::ranges::find(kReasons, status, &Reason::status);
  if (reason != kReasons.end()) {
    return reason->phrase;
  }
  return status >= 400 && status < 500 ? "Bad Request" : "Internal Server Error";
}

std::string_view sse_error_type(int status, const ErrorStyle& style) {
  if (status == 499) {
    return "request_cancelled";
  }
  if (status == 503 || status == 529 || status == style.overload_status) {
    return "service_unavailable";
  }
  // 501 is about the request, too: it asks for what is not built.
  const bool of_client = (status >= 400 && status < 500) || status == 501;
  return of_client ? "invalid_request_error" : "internal_server_error";
}

int http_status(Code code, const ErrorStyle& style) {
  return code == Code::kOverloaded ? style.overload_status : describe(code).http_status;
}

void append_error_body(std::string& out, const ErrorBody& body, const ErrorStyle& style) {
  if (style.append != nullptr) {
    style.append(out, body, style);
    return;
  }
  const std::string_view type = body.type.empty() ? error_type(body.status, style) : body.type;
  json::Writer json(out);
  json.begin_object();
  if (style.nested) {
    // OpenAI's own words inside, the peer's reason phrases outside.
    json.key("error").begin_object();
    write_members(json, body, sse_error_type(body.status, style));
    json.key("param");
    if (body.param.empty()) {
      json.null();
    } else {
      json.value(body.param);
    }
    json.key("code").value(body.status).end_object();
  }
  write_members(json, body, type);
  json.key("code").value(body.status);
  if (!body.details_json.empty()) {
    json.key("details").raw(body.details_json);
  }
  json.end_object();
}

int append_error_body(std::string& out, const ApiError& error, const ErrorStyle& style) {
  const int status = http_status(error.code(), style);
  ErrorBody body{.status = status, .message = error.message(), .param = error.param};
  if (error.code() == Code::kOverloaded) {
    body.type = "Overloaded";  // even if the operator set a registered status
  }
  append_error_body(out, body, style);
  return status;
}

void append_route_not_found(std::string& out, std::string_view method, std::string_view path,
                            const ErrorStyle& style) {
  append_route_error(out, 404, route_text("Route not found: ", method, path), style);
}

void append_method_not_allowed(std::string& out, std::string_view method, std::string_view path,
                               const ErrorStyle& style) {
  append_route_error(out, 405, route_text("Method not allowed: ", method, path), style);
}

}  // namespace stator::api
