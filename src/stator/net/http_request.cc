// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/json/writer.h"

namespace stator::net {
namespace {

// A typical API request head: one allocation.
constexpr size_t kTextReserved = 512;

struct Phrase {
  int status;
  std::string_view text;
};

constexpr Phrase kPhrases[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Payload Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Entity"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
    {529, "Site is overloaded"},
};
static_assert(std::ranges::is_sorted(kPhrases, {}, &Phrase::status));

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

std::string_view HttpRequest::path() const {
  return target().substr(0, target().find('?'));
}

std::string_view HttpRequest::query() const {
  const std::string_view all = target();
  const size_t mark = all.find('?');
  return mark == std::string_view::npos ? std::string_view() : all.substr(mark + 1);
}

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  for (const Field& field : headers_) {
    if (equal_ignoring_case(view(field.name), name)) {
      return view(field.value);
    }
  }
  return std::nullopt;
}

HttpHeader HttpRequest::header_at(size_t index) const {
  return {view(headers_[index].name), view(headers_[index].value)};
}

void HttpRequest::set_start(std::string_view method, std::string_view target) {
  // A client that takes us for a proxy: "http://host/path?query".
  if (const size_t scheme = target.find("://"); scheme < target.find('/')) {
    const size_t path = target.find_first_of("/?", scheme + 3);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  text_.reserve(kTextReserved);
  method_ = append(method);
  target_ = append(target);
}

void HttpRequest::add_header(std::string_view name, std::string_view value) {
  const Slice name_slice = append(name);
  headers_.push_back({name_slice, append(value)});
}

HttpRequest::Slice HttpRequest::append(std::string_view text) {
  const Slice slice{static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size())};
  text_ += text;
  return slice;
}

std::string_view reason_phrase(int status) {
  const auto* const found = std::ranges::lower_bound(kPhrases, status, {}, &Phrase::status);
  return found != std::end(kPhrases) && found->status == status ? found->text : "Unknown";
}

std::string error_body(int status, std::string_view message) {
  std::string string;
  json::append_string(string, message);  // echoed bytes of a malformed request need not be UTF-8
  const std::string_view kind = status < 500 ? "invalid_request_error" : "server_error";
  return fmt::format(R"({{"error":{{"message":{0},"type":"{1}","param":null,"code":null}},)"
                     R"("message":{0},"type":"{2}","code":{3}}})",
                     string, kind, reason_phrase(status), status);
}

}  // namespace stator::net
