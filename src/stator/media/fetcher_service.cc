// SPDX-License-Identifier: Apache-2.0
#include "stator/media/fetcher_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <deque>
#include <expected>
#include <optional>
#include <utility>
#include <variant>

#include "stator/core/flat_map.h"
#include "stator/core/histogram_bounds.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/media/local_files.h"
#include "stator/media/media_cache.h"
#include "stator/media/url_rules.h"
#include "stator/net/http_streams.h"
#include "stator/net/thread.h"

namespace stator::media {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kLogTarget = "media";
constexpr Duration kTurn = 100ms;
constexpr auto kSeconds = geometric_bounds<12>(0.01, 2);

struct LoadCommand {
  Fetcher::LoadId id;
  std::vector<Wanted> wanted;
  Fetcher::LoadDone done;
};
struct CancelCommand {
  Fetcher::LoadId id;
};
using Command = std::variant<LoadCommand, CancelCommand>;

struct Load {
  std::vector<Wanted> wanted;
  Fetcher::LoadDone done;
  std::vector<BlobPtr> blobs;
  size_t left = 0;
};

/// One source being had.
struct Fetch {
  struct Waiter {
    Fetcher::LoadId load;
    size_t index;
  };
  std::string key;
  inference::MediaKind kind;
  FetchUrl url;
  std::vector<Waiter> waiters;
  TimePoint begin;
  uint32_t redirects = 0;
  enum class State : uint8_t { kWaiting, kResolving, kRunning } state = State::kWaiting;
  net::HttpStreamId stream = 0;
  std::string type;
  std::string body;
  net::ByteLease lease;
  std::string location;  // of a redirect, until the answer ends
  std::optional<Error> failed;
};

struct FetchMetrics {
  explicit FetchMetrics(Metrics& metrics)
      : bytes(metrics.counter("stator_media_fetched_bytes_total", "bytes of media fetched")),
        hits(metrics.counter("stator_media_cache_hits_total", "media found in the cache")),
        misses(metrics.counter("stator_media_cache_misses_total", "media that had to be fetched")),
        evictions(metrics.counter("stator_media_cache_evictions_total",
                                  "media dropped to keep the cache's byte bound")),
        cancelled(metrics.counter("stator_media_fetches_total", "fetches by how they ended",
                                  {{"outcome", "cancelled"}})),
        ok(metrics.counter("stator_media_fetches_total", "fetches by how they ended",
                           {{"outcome", "ok"}})),
        refused(metrics.counter("stator_media_fetches_total", "fetches by how they ended",
                                {{"outcome", "refused"}})),
        failed(metrics.counter("stator_media_fetches_total", "fetches by how they ended",
                               {{"outcome", "failed"}})),
        running(metrics.gauge("stator_media_fetches_running", "fetches under way or waiting")),
        cache_bytes(metrics.gauge("stator_media_cache_bytes", "bytes of media in the cache")),
        seconds(metrics.histogram("stator_media_fetch_seconds",
                                  "seconds of one fetch, redirects and waiting included",
                                  kSeconds)) {}
  Counter bytes;
  Counter hits;
  Counter misses;
  Counter evictions;
  Counter cancelled;
  Counter ok;
  Counter refused;
  Counter failed;
  Gauge running;
  Gauge cache_bytes;
  Histogram seconds;
};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/// "image/png; charset=x" without what follows the type, lower case.
std::string media_type_of(std::string_view text) {
  std::string type(text.substr(0, text.find_first_of("; ")));
  std::ranges::transform(type, type.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  return type;
}

class FetcherService final : public Fetcher, private net::HttpStreamsListener {
 public:
  FetcherService(const MediaConfig& config, UrlRules rules, net::ByteBudget& budget,
                 const Clock& clock, Metrics& metrics)
      : config_(config),
        rules_(std::move(rules)),
        budget_(budget),
        clock_(clock),
        metrics_(metrics),
        cache_(config.cache_bytes, config.cache_ttl) {}
  ~FetcherService() override;
  FetcherService(const FetcherService&) = delete;
  FetcherService& operator=(const FetcherService&) = delete;

  Status open(Resolver::Lookup lookup);
  LoadId load(std::vector<Wanted> wanted, LoadDone done) override;
  void cancel(LoadId load) override;

 private:
  void post(Command command);
  // All below: the fetcher's thread.
  void run();
  void take_commands();
  void begin_load(LoadCommand command);
  /// Why it cannot be had; nothing: it is there, or under way.
  std::optional<Error> want(LoadId id, size_t index, Load& load);
  std::optional<Error> begin_fetch(LoadId id, size_t index, const Wanted& wanted, std::string key);
  void end_load(LoadId id);
  void leave(LoadId id);
  void pump();
  void take_answers();
  void resolve(uint64_t id, Fetch& fetch);
  void connect(uint64_t id, Fetch& fetch, const std::vector<IpAddress>& addresses);
  void end_late();
  void finish(uint64_t id);
  void fail(uint64_t id, Error error);
  void give_all(uint64_t id, std::expected<BlobPtr, Error> outcome);
  std::optional<std::pair<uint64_t, Fetch*>> of_stream(net::HttpStreamId stream);
  void stop_stream(Fetch& fetch, Error error);
  bool hold(Fetch& fetch, size_t bytes);
  void show();

  void on_head(net::HttpStreamId stream, int status, std::string_view content_type) override;
  void on_bytes(net::HttpStreamId stream, std::string_view bytes) override;
  void on_end(net::HttpStreamId stream, Status status) override;

  const MediaConfig config_;
  const UrlRules rules_;
  net::ByteBudget& budget_;
  const Clock& clock_;
  FetchMetrics metrics_;
  MediaCache cache_;
  std::unique_ptr<net::HttpStreams> streams_;
  FlatMap<LoadId, std::unique_ptr<Load>> loads_;
  FlatMap<uint64_t, std::unique_ptr<Fetch>> fetches_;  // bounded by M2
  FlatMap<std::string, uint64_t> by_key_;
  FlatMap<net::HttpStreamId, uint64_t> by_stream_;
  std::deque<uint64_t> waiting_;  // ids; those that left are skipped
  size_t running_ = 0;
  uint64_t last_fetch_ = 0;
  std::vector<uint64_t> broken_;  // streams whose fetch failed within a callback

  std::atomic<uint64_t> last_load_{0};
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<Command> inbox_ STATOR_GUARDED_BY(mutex_);
  std::unique_ptr<Resolver> resolver_;  // after what its callback uses
  net::Thread thread_;
};

FetcherService::~FetcherService() {
  stopping_.store(true);
  if (streams_ != nullptr) {
    streams_->wake();
  }
  thread_.join();
  resolver_.reset();
}

Status FetcherService::open(Resolver::Lookup lookup) {
  STATOR_TRY(streams_,
             net::HttpStreams::create({.streams_max = config_.fetches_max}, *this, clock_));
  resolver_ = std::make_unique<Resolver>([this] { streams_->wake(); }, std::move(lookup));
  thread_ = net::Thread("media-fetch", [this] { run(); });
  return {};
}

Fetcher::LoadId FetcherService::load(std::vector<Wanted> wanted, LoadDone done) {
  const LoadId id = last_load_.fetch_add(1) + 1;
  post(LoadCommand{.id = id, .wanted = std::move(wanted), .done = std::move(done)});
  return id;
}

void FetcherService::cancel(LoadId load) {
  post(CancelCommand{load});
}

void FetcherService::post(Command command) {
  {
    const MutexLock lock(mutex_);
    inbox_.push_back(std::move(command));
  }
  streams_->wake();
}

void FetcherService::run() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    take_commands();
    take_answers();
    end_late();
    pump();
    show();
    streams_->turn(kTurn);
  }
}

void FetcherService::show() {
  metrics_.running.set(static_cast<double>(fetches_.size()));
  metrics_.cache_bytes.set(static_cast<double>(cache_.bytes()));
}

void FetcherService::take_commands() {
  std::vector<Command> commands;
  {
    const MutexLock lock(mutex_);
    commands.swap(inbox_);
  }
  for (Command& command : commands) {
    if (auto* begin = std::get_if<LoadCommand>(&command)) {
      begin_load(std::move(*begin));
    } else {
      leave(std::get<CancelCommand>(command).id);
    }
  }
}

void FetcherService::begin_load(LoadCommand command) {
  auto owned = std::make_unique<Load>();
  Load& load = *owned;
  load.wanted = std::move(command.wanted);
  load.done = std::move(command.done);
  load.blobs.resize(load.wanted.size());
  load.left = load.wanted.size();
  loads_.emplace(command.id, std::move(owned));
  for (size_t i = 0; i < load.wanted.size(); ++i) {
    if (auto failed = want(command.id, i, load)) {
      LoadDone done = std::move(load.done);
      LoadError error{.error = std::move(*failed), .path = load.wanted[i].path};
      leave(command.id);
      done(std::unexpected(std::move(error)));
      return;
    }
  }
  end_load(command.id);
}

std::optional<Error> FetcherService::want(LoadId id, size_t index, Load& load) {
  const Wanted& wanted = load.wanted[index];
  std::string key = fmt::format("{} {}", to_string(wanted.kind), wanted.source);
  if (auto cached = cache_.find(key, clock_.now())) {
    metrics_.hits.add();
    load.blobs[index] = std::move(cached);
    --load.left;
    return std::nullopt;
  }
  if (is_file_url(wanted.source)) {
    auto raw = read_local_file(wanted.source, config_.local_folder, config_.bytes_max);
    if (!raw) {
      metrics_.refused.add();
      return std::move(raw.error());
    }
    auto blob = make_blob(wanted.kind, std::move(*raw), config_, &budget_);
    if (!blob) {
      metrics_.refused.add();
      return std::move(blob.error());
    }
    metrics_.ok.add();
    load.blobs[index] = std::move(*blob);
    --load.left;
    return std::nullopt;
  }
  return begin_fetch(id, index, wanted, std::move(key));
}

std::optional<Error> FetcherService::begin_fetch(LoadId id, size_t index, const Wanted& wanted,
                                                 std::string key) {
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    fetches_.at(known->second)->waiters.push_back({id, index});
    return std::nullopt;
  }
  auto url = rules_.check(wanted.source);
  if (!url) {
    metrics_.refused.add();
    return std::move(url.error());
  }
  if (fetches_.size() >= config_.fetches_max + kWaitingMax) {
    metrics_.refused.add();
    return Error(Code::kOverloaded, "waits behind too many fetches (media.fetches_max), retry");
  }
  metrics_.misses.add();
  auto fetch = std::make_unique<Fetch>();
  fetch->key = key;
  fetch->kind = wanted.kind;
  fetch->url = std::move(*url);
  fetch->waiters.push_back({id, index});
  fetch->begin = clock_.now();
  fetch->lease = net::ByteLease(budget_);
  fetches_.emplace(++last_fetch_, std::move(fetch));
  by_key_.emplace(std::move(key), last_fetch_);
  waiting_.push_back(last_fetch_);
  return std::nullopt;
}

/// Tells a load that has everything.
void FetcherService::end_load(LoadId id) {
  const auto found = loads_.find(id);
  if (found == loads_.end() || found->second->left > 0) {
    return;
  }
  const auto load = std::move(found->second);
  loads_.erase(found);
  load->done(std::move(load->blobs));
}

void FetcherService::leave(LoadId id) {
  if (loads_.erase(id) == 0) {
    return;
  }
  std::vector<uint64_t> orphans;
  for (auto& [fetch_id, fetch] : fetches_) {
    std::erase_if(fetch->waiters, [id](const Fetch::Waiter& waiter) { return waiter.load == id; });
    if (fetch->waiters.empty()) {
      orphans.push_back(fetch_id);
    }
  }
  for (const uint64_t orphan : orphans) {
    metrics_.cancelled.add();
    finish(orphan);
  }
}

/// Takes a fetch out, with whatever it has under way.
void FetcherService::finish(uint64_t id) {
  const auto found = fetches_.find(id);
  Fetch& fetch = *found->second;
  if (fetch.state == Fetch::State::kResolving) {
    resolver_->drop(id);
  }
  if (fetch.stream != 0) {
    by_stream_.erase(fetch.stream);
    streams_->cancel(fetch.stream);
  }
  if (fetch.state != Fetch::State::kWaiting) {
    --running_;
  }
  metrics_.seconds.observe(std::chrono::duration<double>(clock_.now() - fetch.begin).count());
  by_key_.erase(fetch.key);
  fetches_.erase(id);
}

void FetcherService::pump() {
  for (const uint64_t stream : std::exchange(broken_, {})) {
    if (const auto found = by_stream_.find(stream); found != by_stream_.end()) {
      const uint64_t id = found->second;
      fail(id, std::move(*fetches_.at(id)->failed));
    }
  }
  while (running_ < config_.fetches_max && !waiting_.empty()) {
    const uint64_t id = waiting_.front();
    waiting_.pop_front();
    if (const auto found = fetches_.find(id); found != fetches_.end()) {
      ++running_;
      resolve(id, *found->second);
    }
  }
}

void FetcherService::resolve(uint64_t id, Fetch& fetch) {
  fetch.state = Fetch::State::kResolving;
  if (fetch.url.address) {
    connect(id, fetch, {*fetch.url.address});
  } else {
    resolver_->post(id, fetch.url.host);
  }
}

void FetcherService::take_answers() {
  for (Resolver::Answer& answer : resolver_->take_answers()) {
    const auto found = fetches_.find(answer.id);
    if (found == fetches_.end() || found->second->state != Fetch::State::kResolving) {
      continue;
    }
    if (answer.addresses) {
      connect(answer.id, *found->second, *answer.addresses);
    } else {
      fail(answer.id, std::move(answer.addresses.error()));
    }
  }
}

void FetcherService::connect(uint64_t id, Fetch& fetch, const std::vector<IpAddress>& addresses) {
  std::vector<std::string> pinned;
  for (const IpAddress& address : addresses) {
    if (Status good = rules_.check_address(fetch.url, address); !good) {
      log::warn(kLogTarget, "a client's URL leads to an address that is not fetched from",
                {{"host", fetch.url.host}, {"address", address.text()}});
      fail(id, std::move(good.error()));
      return;
    }
    pinned.push_back(address.text());
  }
  net::HttpClientOptions options;
  options.connect_timeout = config_.connect_timeout;
  options.timeout = std::max(fetch.begin + config_.timeout - clock_.now(), Duration(1ms));
  options.stall_timeout = {};
  auto stream = streams_->start_pinned(
      {.url = fetch.url.text,
       .headers = {{"User-Agent", config_.user_agent}, {"Accept-Encoding", "identity"}},
       .body = {}},
      options, std::move(pinned));
  if (!stream) {
    fail(id, std::move(stream.error()));
    return;
  }
  fetch.state = Fetch::State::kRunning;
  fetch.stream = *stream;
  fetch.location.clear();
  by_stream_.emplace(*stream, id);
}

/// Also those that wait for a place or for the resolver.
void FetcherService::end_late() {
  std::vector<uint64_t> late;
  for (const auto& [id, fetch] : fetches_) {
    if (clock_.now() - fetch->begin >= config_.timeout) {
      late.push_back(id);
    }
  }
  for (const uint64_t id : late) {
    fail(id, Error(Code::kInvalidArgument, "could not be fetched in time (media.timeout)"));
  }
}

void FetcherService::give_all(uint64_t id, std::expected<BlobPtr, Error> outcome) {
  const auto waiters = std::move(fetches_.at(id)->waiters);
  finish(id);
  for (const Fetch::Waiter& waiter : waiters) {
    const auto found = loads_.find(waiter.load);
    if (found == loads_.end()) {
      continue;  // it failed by another of its parts
    }
    Load& load = *found->second;
    if (outcome) {
      load.blobs[waiter.index] = *outcome;
      --load.left;
      end_load(waiter.load);
      continue;
    }
    LoadDone done = std::move(load.done);
    LoadError error{.error = outcome.error().clone(), .path = load.wanted[waiter.index].path};
    leave(waiter.load);
    done(std::unexpected(std::move(error)));
  }
}

void FetcherService::fail(uint64_t id, Error error) {
  const bool refused = error.code() == Code::kInvalidArgument || error.code() == Code::kTooLarge;
  refused ? metrics_.refused.add() : metrics_.failed.add();
  give_all(id, std::unexpected(std::move(error)));
}

std::optional<std::pair<uint64_t, Fetch*>> FetcherService::of_stream(net::HttpStreamId stream) {
  const auto found = by_stream_.find(stream);
  if (found == by_stream_.end()) {
    return std::nullopt;
  }
  Fetch* fetch = fetches_.at(found->second).get();
  return fetch->failed ? std::nullopt : std::optional(std::pair(found->second, fetch));
}

/// Within a callback: the fetch ends after it.
void FetcherService::stop_stream(Fetch& fetch, Error error) {
  fetch.failed = std::move(error);
  broken_.push_back(fetch.stream);
  streams_->cancel(fetch.stream);
}

bool FetcherService::hold(Fetch& fetch, size_t bytes) {
  if (fetch.lease.try_resize(bytes)) {
    return true;
  }
  cache_.clear();
  return fetch.lease.try_resize(bytes);
}

void FetcherService::on_head(net::HttpStreamId stream, int status, std::string_view content_type) {
  const auto found = of_stream(stream);
  if (!found) {
    return;
  }
  Fetch& fetch = *found->second;
  if (is_redirect(status)) {
    fetch.location = streams_->header(stream, "location");
    if (fetch.location.empty()) {
      stop_stream(fetch, Error(Code::kInvalidArgument, "could not be fetched: it leads nowhere"));
    }
    return;
  }
  if (status != 200) {
    stop_stream(fetch, Error(Code::kInvalidArgument,
                             fmt::format("could not be fetched: its server says {}", status)));
    return;
  }
  const std::string_view encoding = streams_->header(stream, "content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    stop_stream(fetch, Error(Code::kInvalidArgument,
                             "could not be fetched: its server compresses it without being asked"));
    return;
  }
  const std::string_view told = streams_->header(stream, "content-length");
  uint64_t length = 0;
  std::from_chars(told.data(), told.data() + told.size(), length);
  if (length > config_.bytes_max) {
    stop_stream(fetch,
                Error(Code::kTooLarge,
                      fmt::format("has more than {} bytes (media.max_bytes)", config_.bytes_max)));
    return;
  }
  fetch.type = media_type_of(content_type);
}

void FetcherService::on_bytes(net::HttpStreamId stream, std::string_view bytes) {
  const auto found = of_stream(stream);
  if (!found || !found->second->location.empty()) {
    return;  // what a redirect says is nobody's picture
  }
  Fetch& fetch = *found->second;
  metrics_.bytes.add(bytes.size());
  const size_t size = fetch.body.size() + bytes.size();
  if (size > config_.bytes_max) {
    stop_stream(fetch,
                Error(Code::kTooLarge,
                      fmt::format("has more than {} bytes (media.max_bytes)", config_.bytes_max)));
  } else if (!hold(fetch, size)) {
    budget_.count_refusal();
    stop_stream(fetch, Error(Code::kOverloaded,
                             "finds no room: too many media are held here "
                             "(media.held_bytes_max), retry"));
  } else {
    fetch.body += bytes;
  }
}

void FetcherService::on_end(net::HttpStreamId stream, Status status) {
  const auto found = of_stream(stream);
  if (!found) {
    return;
  }
  const auto [id, fetch] = *found;
  by_stream_.erase(stream);
  fetch->stream = 0;
  if (!status) {
    const bool late = status.error().code() == Code::kDeadline;
    log::debug(kLogTarget, "a fetch failed",
               {{"host", fetch->url.host}, {"why", status.error().message()}});
    metrics_.failed.add();
    give_all(id, std::unexpected(Error(Code::kInvalidArgument,
                                       late ? "could not be fetched in time (media.timeout)"
                                            : "could not be fetched: its server does not answer "
                                              "properly")));
    return;
  }
  if (!fetch->location.empty()) {
    if (++fetch->redirects > config_.redirects_max) {
      fail(id, Error(Code::kInvalidArgument,
                     "could not be fetched: it leads on too often (media.redirects_max)"));
      return;
    }
    auto next = rules_.check_redirect(fetch->url, fetch->location);
    if (!next) {
      fail(id, std::move(next.error()));
      return;
    }
    fetch->url = std::move(*next);
    resolve(id, *fetch);
    return;
  }
  fetch->lease.release();  // the blob takes its own
  auto blob = make_blob(fetch->kind, {.type = fetch->type, .bytes = std::move(fetch->body)},
                        config_, &budget_);
  if (!blob) {
    fail(id, std::move(blob.error()));
    return;
  }
  metrics_.ok.add();
  metrics_.evictions.add(cache_.add(fetch->key, *blob, clock_.now()));
  give_all(id, std::move(*blob));
}

}  // namespace

Result<std::unique_ptr<Fetcher>> Fetcher::create(const MediaConfig& config, net::ByteBudget& budget,
                                                 const Clock& clock, Metrics& metrics,
                                                 Resolver::Lookup lookup) {
  STATOR_TRY(UrlRules rules, UrlRules::create(config));
  auto fetcher = std::make_unique<FetcherService>(config, std::move(rules), budget, clock, metrics);
  STATOR_CHECK(fetcher->open(std::move(lookup)));
  return fetcher;
}

}  // namespace stator::media
