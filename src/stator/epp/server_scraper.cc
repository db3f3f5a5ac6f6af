// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/server_scraper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "stator/epp/server_load.h"
#include "stator/net/http_client.h"
#include "stator/net/thread.h"

namespace stator::epp {
namespace {

using namespace std::chrono_literals;

constexpr size_t kThreads = 4;
constexpr size_t kBodyMax = size_t{8} << 20;
constexpr Duration kPauseMax = 30s;
constexpr Duration kLookAgain = 200ms;  // for endpoints that are new
constexpr uint32_t kDoublingsMax = 10;

class ServerScraperService final : public ServerScraper {
 public:
  ServerScraperService(ScrapeConfig config, EndpointPool& pool, Clock& clock, Metrics& metrics)
      : config_(std::move(config)),
        pool_(pool),
        clock_(clock),
        answered_(metrics.counter("stator_epp_scrapes_total", "Readings of endpoints' metrics",
                                  {{"result", "ok"}})),
        failed_(metrics.counter("stator_epp_scrapes_total", "Readings of endpoints' metrics",
                                {{"result", "failed"}})) {
    for (size_t i = 0; i < kThreads; ++i) {
      threads_.at(i) = net::Thread(fmt::format("scrape-{}", i), [this] { work(); });
    }
  }

  ~ServerScraperService() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (net::Thread& thread : threads_) {
      thread.join();
    }
  }

 private:
  struct Turn {
    TimePoint due{};
    uint32_t failures = 0;
    bool is_running = false;
  };

  void work() {
    net::HttpClient client;
    while (const auto address = take()) {
      std::optional<ServerLoad> load = read(client, *address);
      (load ? answered_ : failed_).add();
      const bool has_answered = load.has_value();
      pool_.set_server_load(*address, std::move(load));
      done(*address, has_answered);
    }
  }

  std::optional<ServerLoad> read(net::HttpClient& client, const std::string& address) const {
    const std::string host = address.substr(0, address.rfind(':'));
    const std::string where =
        config_.port == 0 ? address : fmt::format("{}:{}", host, config_.port);
    const auto response = client.request({.url = fmt::format("http://{}{}", where, config_.path)},
                                         {.connect_timeout = config_.timeout,
                                          .timeout = config_.timeout,
                                          .body_bytes_max = kBodyMax});
    return response && response->status == 200 ? read_server_load(response->body) : std::nullopt;
  }

  /// The endpoint whose turn it is; nothing at the end.
  std::optional<std::string> take() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      follow_pool();
      const TimePoint now = clock_.now();
      Duration pause = kLookAgain;
      for (auto& [address, turn] : turns_) {
        if (!turn.is_running && turn.due <= now) {
          turn.is_running = true;
          return address;
        }
        if (!turn.is_running) {
          pause = std::min<Duration>(pause, turn.due - now);
        }
      }
      wake_.wait_for(lock, pause);
    }
    return std::nullopt;
  }

  void follow_pool() {
    std::map<std::string, Turn> turns;
    for (std::string& address : pool_.addresses()) {
      const auto known = turns_.find(address);
      turns.emplace(std::move(address), known == turns_.end() ? Turn() : known->second);
    }
    turns_ = std::move(turns);
  }

  void done(const std::string& address, bool has_answered) {
    const std::lock_guard lock(mutex_);
    const auto turn = turns_.find(address);
    if (turn == turns_.end()) {
      return;
    }
    turn->second.is_running = false;
    turn->second.failures = has_answered ? 0 : std::min(turn->second.failures + 1, kDoublingsMax);
    turn->second.due =
        clock_.now() +
        std::min<Duration>(config_.interval * (1U << turn->second.failures), kPauseMax);
  }

  const ScrapeConfig config_;
  EndpointPool& pool_;
  Clock& clock_;
  Counter answered_;
  Counter failed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Turn> turns_;
  bool stopping_ = false;
  std::array<net::Thread, kThreads> threads_;
};

}  // namespace

std::unique_ptr<ServerScraper> start_scraping(ScrapeConfig config, EndpointPool& pool, Clock& clock,
                                              Metrics& metrics) {
  return std::make_unique<ServerScraperService>(std::move(config), pool, clock, metrics);
}

}  // namespace stator::epp
