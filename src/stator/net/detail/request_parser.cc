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
#include "stator/net/detail/chunk_decoder.h"
#include "stator/net/http_server.h"

namespace stator::net::detail {
namespace {

namespace http = boost::beast::http;
using BeastView = boost::beast::string_view;
using ErrorCode = boost::beast::error_code;

// A declared length is only believed up to here before the bytes arrive.
constexpr size_t kBodyReservedMax = 1024 * 1024;
constexpr size_t kBodyGrowth = 8;  // larger bodies: room for so many times what is there
constexpr int kHttp11 = 11;

std::string_view to_view(BeastView text) {
  return {text.data(), text.size()};
}

/// Header lines that go on in the next line, which begins with white space. Beast joins them;
/// others on the way may not, so that they would see another request than we do (RFC 9112, 5.2).
bool has_folded_line(std::string_view head) {
  for (size_t at = head.find("\r\n"); at != std::string_view::npos;
       at = head.find("\r\n", at + 2)) {
    if (head.substr(at + 2).starts_with(' ') || head.substr(at + 2).starts_with('\t')) {
      return true;
    }
  }
  return false;
}

/// Of a Host field: a name or an address, perhaps with a port. A path, a user or a list of names is
/// read differently by whoever stands between us and the client.
bool is_host(std::string_view host) {
  static constexpr std::string_view kOthers = "-._~%!$&'()*+;=:[]";
  return std::ranges::all_of(host, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOthers.contains(c);
  });
}

/// "/path", "*", "host:port", or a whole URL of ours: nobody asks us for file:///.
bool is_our_target(std::string_view target) {
  const size_t colon = target.find("://");
  if (colon == std::string_view::npos || target.starts_with('/')) {
    return true;
  }
  const BeastView scheme(target.data(), colon);
  return boost::beast::iequals(scheme, "http") || boost::beast::iequals(scheme, "https");
}

}  // namespace

class RequestParser::Core final : private http::basic_parser<true> {
 public:
  explicit Core(const ParserLimits& limits) : limits_(limits) {
    // Beast's limit is per call; the total is counted as the fields come in.
    header_limit(static_cast<uint32_t>(limits.header_bytes_max));
    eager(true);
    skip(true);  // Beast is done after the headers, bodies are ours
  }

  size_t feed(std::string_view bytes);

  bool started() const { return got_some() || !pending_.empty(); }
  bool headers_complete() const { return headers_complete_; }
  bool complete() const { return complete_; }
  bool expects_continue() const { return expects_continue_; }
  bool is_http_1_0() const { return version_ < kHttp11; }
  size_t head_bytes_received() const { return header_bytes_ + pending_.size(); }
  using http::basic_parser<true>::keep_alive;

  HttpRequest request;
  std::optional<Refusal> refusal_;

 private:
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  void make_room(size_t bytes);
  size_t parse_head(std::string_view input);
  void start_body();
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
  void refuse_large_body() {
    refuse(rule_.status, rule_.message.empty() ? "request body is larger than " +
                                                     std::to_string(rule_.bytes_max) + " bytes"
                                               : rule_.message);
  }
  void refuse_beast_error(const ErrorCode& ec, std::string_view rest);
  void check_transfer_field(http::field name, std::string_view value, ErrorCode& ec);

  void on_request_impl(http::verb, BeastView method, BeastView target, int version,
                       ErrorCode& ec) override {
    version_ = version;
    header_bytes_ = method.size() + target.size() + 12;  // " ", " HTTP/1.1" and CRLF
    if (!is_our_target(to_view(target))) {
      return refuse(400, "the request target is no path and no http or https URL", ec);
    }
    request.set_start(to_view(method), to_view(target));
  }
  void on_response_impl(int, BeastView, int, ErrorCode&) override {}
  void on_field_impl(http::field name, BeastView name_text, BeastView value,
                     ErrorCode& ec) override;
  void on_header_impl(ErrorCode& ec) override;
  // Never called: Beast skips the body.
  void on_body_init_impl(const boost::optional<uint64_t>&, ErrorCode&) override {}
  size_t on_body_impl(BeastView body, ErrorCode&) override { return body.size(); }
  void on_chunk_header_impl(uint64_t, BeastView, ErrorCode&) override {}
  size_t on_chunk_body_impl(uint64_t, BeastView body, ErrorCode&) override { return body.size(); }
  void on_finish_impl(ErrorCode&) override {}

  const ParserLimits& limits_;
  BodyRule rule_;        // once the head is there
  std::string pending_;  // an incomplete line of the head: Beast wants it whole
  std::optional<ChunkDecoder> chunks_;
  uint64_t body_left_ = 0;  // of a body with a length
  size_t header_bytes_ = 0;
  size_t hosts_ = 0;
  size_t lengths_ = 0;
  int version_ = kHttp11;
  bool headers_complete_ = false;
  bool expects_continue_ = false;
  bool complete_ = false;
};

size_t RequestParser::Core::feed(std::string_view bytes) {
  size_t used = 0;
  if (!headers_complete_ && !refusal_) {
    used = feed_head(bytes);
  }
  if (headers_complete_ && !complete_ && !refusal_) {
    used += feed_body(bytes.substr(used));
  }
  return used;
}

size_t RequestParser::Core::feed_head(std::string_view bytes) {
  if (pending_.empty()) {
    const size_t used = parse_head(bytes);
    if (!headers_complete_ && !refusal_) {
      pending_.assign(bytes.substr(used));
      return bytes.size();
    }
    return used;
  }
  const size_t old_bytes = pending_.size();
  pending_.append(bytes);
  const size_t used = parse_head(pending_);
  if (headers_complete_ || refusal_) {
    std::string().swap(pending_);  // an assigned empty string would leave the memory where it is
    // The old rest was incomplete, so the head ends within `bytes`.
    return used > old_bytes ? used - old_bytes : 0;
  }
  pending_.erase(0, used);
  return bytes.size();
}

// Returns how much of `input` is used up; sets refusal_ when it is wrong.
size_t RequestParser::Core::parse_head(std::string_view input) {
  size_t used = 0;
  if (!got_some()) {
    while (input.substr(used).starts_with("\r\n")) {
      used += 2;
    }
    if (used == input.size() || input.substr(used) == "\r") {
      return used;  // perhaps half of an empty line
    }
  }
  ErrorCode ec;
  const size_t start = used;
  used += put(boost::asio::buffer(input.data() + used, input.size() - used), ec);
  if (ec && ec != http::error::need_more) {
    refuse_beast_error(ec, input.substr(used));
  } else if (has_folded_line(input.substr(start, used - start))) {
    // Beast takes a header with all its lines, however the bytes were cut.
    refuse(400, "a header goes on in the next line: send every header in one line");
  } else if (ec) {
    if (header_bytes_ + (input.size() - used) > limits_.header_bytes_max) {
      refuse_large_headers();
    }
  } else {
    start_body();
  }
  return used;
}

void RequestParser::Core::start_body() {
  if (limits_.handler != nullptr) {
    rule_ = limits_.handler->body_rule(request);
  }
  rule_.bytes_max = std::min(rule_.bytes_max, limits_.body_bytes_max);
  if (chunked()) {
    chunks_.emplace(rule_.bytes_max);
    return;
  }
  body_left_ = content_length().value_or(0);
  complete_ = body_left_ == 0;
  if (body_left_ > rule_.bytes_max) {
    return refuse_large_body();
  }
  request.mutable_body().reserve(std::min<size_t>(body_left_, kBodyReservedMax));
}

/// A string that doubles copies a large body once more, up to half of it at once, while all others
/// wait. Memory that is reserved costs nothing until bytes stand there.
void RequestParser::Core::make_room(size_t bytes) {
  std::string& body = request.mutable_body();
  const size_t needed = body.size() + bytes;
  if (needed > body.capacity()) {
    body.reserve(std::min<size_t>(body.size() + body_left_, kBodyGrowth * needed));
  }
}

size_t RequestParser::Core::feed_body(std::string_view bytes) {
  if (!chunks_) {
    const std::string_view data = bytes.substr(0, body_left_);
    make_room(data.size());
    request.mutable_body() += data;
    body_left_ -= data.size();
    complete_ = body_left_ == 0;
    return data.size();
  }
  const size_t used = chunks_->feed(bytes, request.mutable_body());
  if (chunks_->state() == ChunkDecoder::State::kTooLarge) {
    refuse_large_body();
  } else if (chunks_->state() == ChunkDecoder::State::kMalformed) {
    refuse(400, "malformed chunked body");
  }
  complete_ = chunks_->state() == ChunkDecoder::State::kDone;
  return used;
}

void RequestParser::Core::refuse_beast_error(const ErrorCode& ec, std::string_view rest) {
  if (ec == http::error::header_limit) {
    refuse_large_headers();
  } else if (ec == http::error::bad_version) {
    // Beast calls every unexpected end of the request line a version; tell old dialects from noise.
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const bool proper = line.ends_with('\r') && line.size() < rest.size();
    if (proper && line.find(" HTTP/1.0\r") == std::string_view::npos &&
        line.find(" HTTP/1.1\r") == std::string_view::npos) {
      refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
      refusal_->not_http = line.find("HTTP/") == std::string_view::npos &&
                           line.find(" http/") == std::string_view::npos;
    } else {
      refuse(400, "malformed request line");
    }
  } else {
    refuse(400, "malformed HTTP request: " + ec.message());
  }
}

void RequestParser::Core::on_field_impl(http::field name, BeastView name_text, BeastView value,
                                        ErrorCode& ec) {
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
      } else if (!is_host(value)) {
        refuse(400, "the Host header is no host", ec);
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
const HttpRequest& RequestParser::request() const {
  return core_->request;
}
size_t RequestParser::head_bytes_received() const {
  return core_->head_bytes_received();
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
  // It lives as long as its answer, and thousands may stream: a copy has no room to spare.
  std::string body = core_->request.take_body();
  HttpRequest request = core_->request;
  request.mutable_body() = std::move(body);
  return request;
}

}  // namespace stator::net::detail
