// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/request_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <utility>

#include "stator/core/assert.h"

namespace stator::net::detail {
namespace {

namespace http = boost::beast::http;
using BeastView = boost::beast::string_view;
using ErrorCode = boost::beast::error_code;

// A declared length is only believed up to here before the bytes arrive.
constexpr size_t kBodyReservedMax = 1024 * 1024;
// One chunk-size line with its extensions, or all trailers.
constexpr size_t kChunkLineMax = 4096;
constexpr int kHttp11 = 11;

std::string_view to_view(BeastView text) {
  return {text.data(), text.size()};
}

}  // namespace

class RequestParser::Core final : private http::basic_parser<true> {
 public:
  explicit Core(const ParserLimits& limits) : limits_(limits) {
    // Beast's limit is per call; the total is counted as the fields come in.
    header_limit(static_cast<uint32_t>(limits.header_bytes_max));
    body_limit(static_cast<uint64_t>(limits.body_bytes_max));
    eager(true);
  }

  size_t feed(std::string_view bytes);

  bool started() const { return got_some() || !pending_.empty(); }
  bool headers_complete() const { return headers_complete_; }
  bool complete() const { return is_done() && !refusal_; }
  bool expects_continue() const { return expects_continue_; }
  bool is_http_1_0() const { return version_ < kHttp11; }
  using http::basic_parser<true>::keep_alive;

  HttpRequest request;
  std::optional<Refusal> refusal_;

 private:
  size_t parse(std::string_view input);
  size_t skip_empty_lines(std::string_view input) const;
  void check_bounds(size_t rest_bytes);
  void refuse(int status, std::string message) {
    if (!refusal_) {
      refusal_ = Refusal{status, std::move(message)};
    }
  }
  // Stops Beast after our own refusal.
  void refuse(int status, std::string message, ErrorCode& ec) {
    refuse(status, std::move(message));
    ec = http::error::bad_field;
  }
  void refuse_large_headers() {
    refuse(431, "request headers are larger than " + std::to_string(limits_.header_bytes_max) +
                    " bytes");
  }
  void refuse_beast_error(const ErrorCode& ec, std::string_view rest);
  void check_transfer_field(http::field name, std::string_view value, ErrorCode& ec);

  void on_request_impl(http::verb, BeastView method, BeastView target, int version,
                       ErrorCode&) override {
    version_ = version;
    header_bytes_ = method.size() + target.size() + 12;  // " ", " HTTP/1.1" and CRLF
    request.set_start(to_view(method), to_view(target));
  }
  void on_response_impl(int, BeastView, int, ErrorCode&) override {}
  void on_field_impl(http::field name, BeastView name_text, BeastView value,
                     ErrorCode& ec) override;
  void on_header_impl(ErrorCode& ec) override;
  void on_body_init_impl(const boost::optional<uint64_t>& content_length, ErrorCode&) override {
    request.mutable_body().reserve(std::min<size_t>(content_length.value_or(0), kBodyReservedMax));
  }
  size_t on_body_impl(BeastView body, ErrorCode&) override {
    request.mutable_body().append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, BeastView, ErrorCode&) override {}
  size_t on_chunk_body_impl(uint64_t, BeastView body, ErrorCode&) override {
    request.mutable_body().append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(ErrorCode&) override {}

  const ParserLimits limits_;
  std::string pending_;  // an incomplete line: Beast wants it whole
  size_t header_bytes_ = 0;
  size_t hosts_ = 0;
  size_t lengths_ = 0;
  int version_ = kHttp11;
  bool headers_complete_ = false;
  bool expects_continue_ = false;
};

size_t RequestParser::Core::feed(std::string_view bytes) {
  if (is_done() || refusal_) {
    return 0;
  }
  if (pending_.empty()) {
    const size_t consumed = parse(bytes);
    if (!is_done() && !refusal_) {
      pending_.assign(bytes.substr(consumed));
      return bytes.size();
    }
    return consumed;
  }
  pending_.append(bytes);
  const size_t consumed = parse(pending_);
  if (is_done() || refusal_) {
    // What is left of `pending_` is a suffix of `bytes`: an old rest alone was incomplete.
    const size_t left = std::min(pending_.size() - consumed, bytes.size());
    pending_ = std::string();
    return bytes.size() - left;
  }
  pending_.erase(0, consumed);
  return bytes.size();
}

// Returns how much of `input` is used up; sets refusal_ when it is wrong.
size_t RequestParser::Core::parse(std::string_view input) {
  size_t used = got_some() ? 0 : skip_empty_lines(input);
  while (used < input.size() && !is_done()) {
    if (!got_some() && input.substr(used) == "\r") {
      return used;  // perhaps half of an empty line
    }
    ErrorCode ec;
    const size_t step = put(boost::asio::buffer(input.data() + used, input.size() - used), ec);
    used += step;
    if (ec == http::error::need_more) {
      check_bounds(input.size() - used);
      return used;
    }
    if (ec) {
      refuse_beast_error(ec, input.substr(used));
      return used;
    }
    if (refusal_ || step == 0) {
      return used;
    }
  }
  return used;
}

size_t RequestParser::Core::skip_empty_lines(std::string_view input) const {
  size_t used = 0;
  while (input.substr(used).starts_with("\r\n")) {
    used += 2;
  }
  return used;
}

void RequestParser::Core::check_bounds(size_t rest_bytes) {
  if (!headers_complete_ && header_bytes_ + rest_bytes > limits_.header_bytes_max) {
    refuse_large_headers();
  }
  if (headers_complete_ && rest_bytes > kChunkLineMax) {
    refuse(400, "chunk extensions or trailers are too long");
  }
}

void RequestParser::Core::refuse_beast_error(const ErrorCode& ec, std::string_view rest) {
  if (ec == http::error::header_limit) {
    refuse_large_headers();
  } else if (ec == http::error::body_limit || ec == http::error::buffer_overflow) {
    refuse(413, "request body is larger than " + std::to_string(limits_.body_bytes_max) + " bytes");
  } else if (ec == http::error::bad_version) {
    // Beast calls every unexpected end of the request line a version; tell old dialects from noise.
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const bool proper = line.ends_with('\r') && line.size() < rest.size();
    if (proper && line.find(" HTTP/1.0\r") == std::string_view::npos &&
        line.find(" HTTP/1.1\r") == std::string_view::npos) {
      refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    } else {
      refuse(400, "malformed request line");
    }
  } else {
    refuse(400, "malformed HTTP request: " + ec.message());
  }
}

void RequestParser::Core::on_field_impl(http::field name, BeastView name_text, BeastView value,
                                        ErrorCode& ec) {
  if (headers_complete_) {
    return;  // trailers are read past and dropped: nothing in them may change the request
  }
  const std::string_view text = to_view(value);
  header_bytes_ += name_text.size() + value.size() + 4;  // ": " and CRLF
  if (request.header_count() >= limits_.headers_max) {
    return refuse(431, "more than " + std::to_string(limits_.headers_max) + " request headers", ec);
  }
  if (header_bytes_ > limits_.header_bytes_max) {
    refuse_large_headers();
    ec = http::error::header_limit;
    return;
  }
  check_transfer_field(name, text, ec);
  if (!ec) {
    request.add_header(to_view(name_text), text);
  }
}

void RequestParser::Core::check_transfer_field(http::field name, std::string_view value,
                                               ErrorCode& ec) {
  switch (name) {
    case http::field::host:
      if (++hosts_ > 1) {
        refuse(400, "more than one Host header", ec);
      }
      return;
    case http::field::content_length:
      if (++lengths_ > 1 || value.find(',') != std::string_view::npos) {
        refuse(400, "more than one Content-Length", ec);
      }
      return;
    case http::field::transfer_encoding:
      if (!boost::beast::iequals(value, "chunked")) {
        refuse(501, "the only Transfer-Encoding understood is \"chunked\"", ec);
      } else if (version_ < kHttp11) {
        refuse(400, "Transfer-Encoding in an HTTP/1.0 request", ec);
      }
      return;
    case http::field::expect:
      if (!boost::beast::iequals(value, "100-continue")) {
        refuse(417, "the only Expect understood is \"100-continue\"", ec);
      }
      expects_continue_ = version_ >= kHttp11;
      return;
    default:
      return;
  }
}

void RequestParser::Core::on_header_impl(ErrorCode& ec) {
  headers_complete_ = true;
  if (hosts_ == 0 && version_ >= kHttp11) {
    return refuse(400, "the Host header is missing", ec);
  }
}

RequestParser::RequestParser(const ParserLimits& limits) : core_(std::make_unique<Core>(limits)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::feed(std::string_view bytes) {
  return core_->feed(bytes);
}
bool RequestParser::started() const {
  return core_->started();
}
bool RequestParser::headers_complete() const {
  return core_->headers_complete();
}
bool RequestParser::complete() const {
  return core_->complete();
}
const std::optional<Refusal>& RequestParser::refusal() const {
  return core_->refusal_;
}
bool RequestParser::expects_continue() const {
  return core_->expects_continue();
}
bool RequestParser::keep_alive() const {
  return core_->keep_alive();
}
bool RequestParser::is_http_1_0() const {
  return core_->is_http_1_0();
}
size_t RequestParser::body_bytes_received() const {
  return core_->request.body().size();
}

HttpRequest RequestParser::take_request() {
  STATOR_ASSERT(complete(), "only a complete request can be taken");
  return std::move(core_->request);
}

}  // namespace stator::net::detail
