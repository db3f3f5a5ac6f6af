// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/net/http_server.h"

namespace stator::fault_sim {

/// The bodies that clients send. They differ in what a seam between two workers could break:
/// streams and whole answers, seeds, several choices, long prompts with common beginnings.
std::vector<std::string> make_bodies();

/// What a client can see of an answer, apart from how it was cut into chunks: texts, ends, usage.
/// kCorrupt for what is no complete answer.
Result<std::string> read_answer(std::string_view content_type, std::string_view body);

/// What a client has of a stream that broke off: whole events, and what it comes back with.
struct KnownEvents {
  std::string events;
  std::string last_id;  ///< empty: it cannot come back
};
KnownEvents read_events(std::string_view received);

/// One request of a client, from its sending to the end of its answer. Checks the contract of
/// HttpExchange, which is also that an answer ends once.
class VirtualClient final : public net::HttpExchange {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;
  /// Sends `body` to the completions endpoint of whoever has `shard`.
  VirtualClient(std::string body, net::Shard& shard, const Headers& headers);

  enum class End : uint8_t {
    kNone,      ///< it still runs
    kAnswered,  ///< completely, whatever the status
    kAborted,   ///< the server broke it off
    kGone,      ///< the connection went away: the client left, or the frontend died
  };
  End end() const { return end_; }
  int status() const { return status_; }
  const std::string& content_type() const { return content_type_; }
  const std::string& received() const { return received_; }
  /// A typed error instead of an answer, or behind its beginning.
  bool failed() const;
  /// What of the contract was broken, if anything.
  const std::optional<std::string>& misuse() const { return misuse_; }

  /// The client leaves; on the loop. False if there was nothing to leave.
  bool leave();
  /// Its frontend has died: what is still written goes nowhere.
  void cut();

  net::HttpRequest& request() override { return request_; }
  net::Shard& shard() override { return shard_; }
  void set_observer(net::ExchangeObserver* observer) override { observer_ = observer; }
  void respond(int status, std::string_view content_type, std::string_view body,
               std::span<const net::HttpHeader> headers) override;
  void start_stream(int status, std::string_view content_type,
                    std::span<const net::HttpHeader> headers) override;
  void write(std::string_view bytes) override;
  void finish() override;
  void abort() override;
  size_t buffered_bytes() const override { return 0; }
  bool above_high_water() const override { return false; }

 private:
  void expect(bool fine, std::string_view what);

  net::HttpRequest request_;
  net::Shard& shard_;
  net::ExchangeObserver* observer_ = nullptr;
  End end_ = End::kNone;
  bool streaming_ = false;
  int status_ = 0;
  std::string content_type_;
  std::string received_;
  std::optional<std::string> misuse_;
};

}  // namespace stator::fault_sim
