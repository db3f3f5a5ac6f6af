// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <deque>
#include <utility>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/frontend/asked_server.h"
#include "stator/net/http_streams.h"
#include "stator/net/thread.h"

namespace stator::frontend {
namespace {

constexpr size_t kAnswerBytesMax = size_t{1} << 20;
constexpr Duration kTurn = std::chrono::milliseconds(100);

class Service final : public AskedServer, public net::HttpStreamsListener {
 public:
  Service(Config config, const Clock& clock) : config_(std::move(config)), clock_(clock) {}
  ~Service() override { stop(); }

  Status open() {
    STATOR_TRY(streams_, net::HttpStreams::create({}, *this, clock_));
    thread_ = net::Thread(config_.thread, [this] { run(); });
    return {};
  }

  bool paused() const override {
    return clock_.now().time_since_epoch().count() < paused_until_.load(std::memory_order_relaxed);
  }

  bool ask(Question&& question) override {
    const MutexLock lock(mutex_);
    if (stopped_ || open_ >= config_.open_max) {
      return false;
    }
    ++open_;
    questions_.push_back(std::move(question));
    streams_->wake();
    return true;
  }

  void stop() override {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(stopped_, true)) {
        return;
      }
    }
    if (thread_.joinable()) {
      streams_->wake();
      thread_.join();
    }
  }

  // On the thread.
  void on_head(net::HttpStreamId stream, int status, std::string_view) override {
    calls_.at(stream).answer.status = status;
  }
  void on_bytes(net::HttpStreamId stream, std::string_view bytes) override {
    std::string& body = calls_.at(stream).answer.body;
    if (body.size() + bytes.size() <= kAnswerBytesMax) {
      body += bytes;
    }
  }
  void on_end(net::HttpStreamId stream, Status status) override {
    const auto known = calls_.find(stream);
    Call call = std::move(known->second);
    calls_.erase(known);
    finish(call, status ? &call.answer : nullptr);
  }

 private:
  struct Call {
    std::move_only_function<bool(const Answer*)> on_answer;
    Answer answer;
  };

  void run() {
    while (true) {
      std::deque<Question> questions;
      bool stopped = false;
      {
        const MutexLock lock(mutex_);
        questions.swap(questions_);
        stopped = stopped_;
      }
      for (Question& question : questions) {
        stopped ? static_cast<void>(question.on_answer(nullptr)) : send(std::move(question));
      }
      if (stopped) {
        break;
      }
      streams_->turn(kTurn);
    }
    for (auto& [stream, call] : calls_) {
      call.on_answer(nullptr);
    }
    calls_.clear();
  }

  void send(Question question) {
    const Duration timeout = question.timeout;
    auto started = streams_->start({.method = std::move(question.method),
                                    .url = config_.url + question.path,
                                    .headers = {{"Content-Type", "application/json"}},
                                    .body = std::move(question.body)},
                                   {.connect_timeout = timeout, .timeout = timeout});
    Call call{.on_answer = std::move(question.on_answer), .answer = {}};
    if (started) {
      calls_.emplace(*started, std::move(call));
    } else {
      finish(call, nullptr);
    }
  }

  void finish(Call& call, const Answer* answer) {
    {
      const MutexLock lock(mutex_);
      --open_;
    }
    failures_ = call.on_answer(answer) ? 0 : failures_ + 1;
    if (failures_ == kFailuresMax) {
      log::warn(config_.log_target, config_.away, {{"url", config_.url}});
    }
    if (failures_ >= kFailuresMax) {
      paused_until_.store((clock_.now() + kPause).time_since_epoch().count(),
                          std::memory_order_relaxed);
    }
  }

  const Config config_;
  const Clock& clock_;
  std::unique_ptr<net::HttpStreams> streams_;
  FlatMap<net::HttpStreamId, Call> calls_;  // of the thread; bounded by A3
  int failures_ = 0;                        // in a row; of the thread
  std::atomic<int64_t> paused_until_{0};
  Mutex mutex_;
  bool stopped_ STATOR_GUARDED_BY(mutex_) = false;
  size_t open_ STATOR_GUARDED_BY(mutex_) = 0;
  std::deque<Question> questions_ STATOR_GUARDED_BY(mutex_);
  net::Thread thread_;
};

}  // namespace

std::string base_url(std::string_view url) {
  while (url.ends_with('/')) {
    url.remove_suffix(1);
  }
  const bool http = url.starts_with("http://") || url.starts_with("https://");
  return std::string(http ? url : std::string_view());
}

Result<std::shared_ptr<AskedServer>> AskedServer::start(Config config, const Clock& clock) {
  auto service = std::make_shared<Service>(std::move(config), clock);
  STATOR_CHECK(service->open());
  return std::shared_ptr<AskedServer>(std::move(service));
}

}  // namespace stator::frontend
