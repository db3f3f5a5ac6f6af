// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stator::net {

/// A header to send. Views: valid for the call they are passed to.
struct HttpHeader {
  std::string_view name;
  std::string_view value;
};

/// What those who look at a request before its handler found out, and what those behind it add: it
/// travels with the request and its copies, and what is in it ends with the last of them. The
/// server only tells it the status.
class RequestNotes {
 public:
  virtual ~RequestNotes() = default;
  /// The answer has begun. On the shard's loop, once.
  virtual void on_status(int status) = 0;
};

/// One received request: method, target, headers in one text block, and the body. Views returned
/// live as long as the request object and are not changed by later calls except set_/add_.
class HttpRequest {
 public:
  HttpRequest() = default;
  HttpRequest(std::string_view method, std::string_view target) { set_start(method, target); }

  std::string_view method() const { return view(method_); }
  /// As sent: path and query.
  std::string_view target() const { return view(target_); }
  /// Target up to '?', not percent-decoded.
  std::string_view path() const;
  /// Target after '?', empty without one, not percent-decoded.
  std::string_view query() const;

  /// First header of that name, compared without case; nothing when absent. Linear: ≤ 100 headers.
  std::optional<std::string_view> header(std::string_view name) const;
  size_t header_count() const { return headers_.size(); }
  HttpHeader header_at(size_t index) const;

  const std::string& body() const { return body_; }
  /// Gives the body away; body() is empty afterwards.
  std::string take_body() { return std::exchange(body_, {}); }

  /// Null unless somebody set them.
  const std::shared_ptr<RequestNotes>& notes() const { return notes_; }
  void set_notes(std::shared_ptr<RequestNotes> notes) { notes_ = std::move(notes); }

  // Building one, for the parser and for tests.
  void set_start(std::string_view method, std::string_view target);
  void add_header(std::string_view name, std::string_view value);
  std::string& mutable_body() { return body_; }

 private:
  struct Slice {
    uint32_t offset = 0;
    uint32_t length = 0;
  };
  struct Field {
    Slice name;
    Slice value;
  };
  Slice append(std::string_view text);
  std::string_view view(Slice slice) const {
    return std::string_view(text_).substr(slice.offset, slice.length);
  }

  std::string text_;
  Slice method_;
  Slice target_;
  std::vector<Field> headers_;
  std::string body_;
  std::shared_ptr<RequestNotes> notes_;  // shared with copies of the request
};

/// How much of a body a request may have: decided when its head is there, before any of it is read.
struct BodyRule {
  size_t bytes_max = SIZE_MAX;
  int status = 413;     ///< of the refusal of a longer one
  std::string message;  ///< empty: one that names the limit
  /// Over HTTP/2 the handler gets the request with its head, and the body as it comes: see
  /// ExchangeObserver::on_body. `bytes_max` does not hold then.
  bool in_pieces = false;
};

/// "Not Found" for 404; "Unknown" for a status without a phrase.
std::string_view reason_phrase(int status);

/// OpenAI's error object, for every status this module answers by itself:
/// {"error":{"message","type","param":null,"code":null},"message","type","code":status}.
std::string error_body(int status, std::string_view message);

}  // namespace stator::net
