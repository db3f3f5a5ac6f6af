// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/flat_map.h"
#include "stator/lab/fake_engine/server_context.h"
#include "stator/net/http_server.h"

namespace stator::fake_engine {

/// One generation request being answered, in any dialect: runs the job, applies the request's
/// fault, stops the job when the client leaves, and ends exactly once. Dialects say what the bytes
/// are.
///
///   new → (prepare) → submit() → write() … write() → finish()  → retired
///                   ↘ refuse()                                  → retired
///
/// A1  The exchange is touched only while `exchange_` is set: until respond, finish, abort or the
///     client's leaving.
/// A2  An answer lives in the book until retire(); it is destroyed on a later turn of the loop.
class Answer : public net::ExchangeObserver, public JobObserver {
 public:
  Answer(ServerContext& context, net::HttpExchange& exchange, Fault fault);
  ~Answer() override;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// Begins once the answer is in the book.
  virtual void begin() = 0;
  /// As if the client had left: for /abort routes.
  void abort_job();
  /// Ids by which abort routes name this request.
  virtual bool is_named(std::string_view id) const = 0;

  void on_client_gone(net::ClientGone reason) final;
  void on_delta(ChoiceDelta delta) final;
  void on_failure(const Error& error) final;

 protected:
  /// Starts the job, or refuses. `choices`: how many must finish.
  void submit(GenerateSpec spec);
  virtual void write(ChoiceDelta delta) = 0;
  /// All choices ended.
  virtual void finish() = 0;
  /// The engine would not, or stopped. `started`: bytes have gone out.
  virtual void refuse(const Error& error, bool started) = 0;

  // The exchange; nothing happens when the client is gone.
  void respond(int status, std::string_view body,
               std::string_view content_type = "application/json");
  void send(std::string_view bytes);  ///< starts an event stream at its first use
  void end_stream();
  bool streaming() const { return started_; }
  bool gone() const { return exchange_ == nullptr; }
  net::HttpExchange* exchange() { return exchange_; }

  ServerContext& context_;

 private:
  friend class AnswerBook;
  bool strike();  // the fault, if it is due; true: nothing more may be written
  void deliver(ChoiceDelta delta);
  void deliver_next_slow();
  void close_connection();
  void retire();

  net::HttpExchange* exchange_;
  Fault fault_;
  uint64_t id_ = 0;
  std::optional<EngineHost::JobId> job_;
  uint32_t open_ = 0;
  uint32_t tokens_ = 0;
  bool started_ = false;
  bool struck_ = false;
  bool retired_ = false;
  std::deque<ChoiceDelta> slow_;  // bounded by the request's tokens
  net::Timer slow_timer_;
};

/// All answers that are not finished; at most `answers_max`, beyond that a new one is refused as
/// overloaded and counted in `refused`.
class AnswerBook {
 public:
  AnswerBook(net::Shard& shard, size_t answers_max, Counter refused)
      : shard_(shard), answers_max_(answers_max), refused_(refused) {}

  void begin(std::unique_ptr<Answer> answer);
  /// Aborts those named `id`; all for an empty id. Returns how many.
  size_t abort(std::string_view id);
  size_t size() const { return answers_.size(); }
  void clear() { answers_.clear(); }

 private:
  friend class Answer;
  void retire(uint64_t id);

  net::Shard& shard_;
  const size_t answers_max_;
  Counter refused_;
  FlatMap<uint64_t, std::unique_ptr<Answer>> answers_;
  uint64_t next_id_ = 1;
};

}  // namespace stator::fake_engine
