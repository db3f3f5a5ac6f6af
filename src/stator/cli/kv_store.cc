// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/app/kv_store_discovery.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/cli/command.h"
#include "stator/connectors/lmcache_server.h"
#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/net/http_server.h"
#include "stator/net/loopback.h"
#include "stator/net/shard.h"
#include "stator/storage/cache_service.h"
#include "stator/storage/http_store.h"
#include "stator/storage/io_pool.h"

namespace stator::cli {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kOctets = "application/octet-stream";
constexpr uint32_t kThreads = 4;
/// Names of one question.
constexpr size_t kNamesMax = 65'536;
constexpr uint64_t kHostBytesDefault = uint64_t{1} << 30;
constexpr uint64_t kDirBytesDefault = uint64_t{10} << 30;

struct Answer {
  int status = 200;
  std::string_view type = kJson;
  std::shared_ptr<const std::string> body;  // shared with the cache
};

Answer answer_error(const Error& error) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("error").value(error.message()).end_object();
  const int status = error.code() == Code::kCorrupt ? 400 : error.info().http_status;
  return {.status = status, .body = std::make_shared<const std::string>(std::move(body))};
}

Result<size_t> count_blocks(storage::CacheService& cache, std::string_view text) {
  STATOR_TRY(const json::Value body, json::parse(text, {.values_max = kNamesMax}));
  const auto space = storage::parse_digest(body.text_at({"namespace"}));
  const json::Value* const blocks = body.find("blocks");
  if (!space || blocks == nullptr) {
    return Error(Code::kInvalidArgument, "namespace (32 hex digits) and blocks are needed");
  }
  std::vector<kv::LineageHash> names;
  for (const json::Value& block : blocks->elements()) {
    const auto name = kv::LineageHash::parse(block.text());
    if (!name) {
      return Error(Code::kInvalidArgument, fmt::format("'{}' names no block", block.text()));
    }
    names.push_back(*name);
  }
  return cache.count(*space, names);
}

/// What a router asks: it knows sequence hashes, no namespaces.
Result<std::string> check_blocks(storage::CacheService& cache, std::string_view text) {
  STATOR_TRY(const json::Value body, json::parse(text, {.values_max = kNamesMax}));
  const json::Value* const hashes = body.find("block_hashes");
  if (hashes == nullptr || !hashes->is_array()) {
    return Error(Code::kInvalidArgument, "block_hashes is needed");
  }
  std::vector<kv::LineageHash> names;
  blocks::SequenceHash before;
  for (const json::Value& hash : hashes->elements()) {
    const auto number = hash.as_uint64();
    const auto name = number ? kv::LineageHash::make(static_cast<uint32_t>(names.size()),
                                                     blocks::SequenceHash(*number), before)
                             : std::nullopt;
    if (!name) {
      return Error(Code::kInvalidArgument, "block_hashes are numbers of 64 bits");
    }
    before = blocks::SequenceHash(*number);
    names.push_back(*name);
  }
  std::string out;
  json::Writer json(out);
  json.begin_object().key("ranges").begin_array();
  for (const auto& [first, behind] : cache.ranges(names)) {
    json.begin_array().value(uint64_t{first}).value(uint64_t{behind}).end_array();
  }
  json.end_array().end_object();
  return out;
}

struct Address {
  std::string host;
  uint16_t port = 0;
};

Result<Address> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  Address out;
  const std::string_view port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size()) {
    return Error(Code::kInvalidArgument, fmt::format("{}: HOST:PORT, port 0 = any", text));
  }
  out.host = colon == std::string_view::npos || colon == 0 ? "127.0.0.1" : text.substr(0, colon);
  return out;
}

/// Where engines reach the store.
Result<std::string> advertised(const Invocation& invocation, const std::string& host,
                               uint16_t port) {
  std::string given = option_of(invocation, "--advertise", "");
  if (!given.empty()) {
    return given;
  }
  if (host == "0.0.0.0" || host == "::") {
    return Error(Code::kInvalidArgument,
                 "a store that listens on all addresses needs --advertise HOST:PORT, by which "
                 "engines find it through discovery");
  }
  return fmt::format("{}:{}", host, port);
}

/// Null without the flag.
Result<std::unique_ptr<connectors::LmcacheServer>> open_lmcache(const Invocation& invocation,
                                                                storage::CacheService& cache,
                                                                Metrics& metrics) {
  const std::string text = option_of(invocation, "--lmcache-listen", "");
  if (text.empty()) {
    return std::unique_ptr<connectors::LmcacheServer>();
  }
  STATOR_TRY(const Address address, parse_address(text), "--lmcache-listen");
  STATOR_TRY(auto server, connectors::LmcacheServer::open(
                              {.host = address.host, .port = address.port}, cache, metrics));
  log::info("store", "ready for LMCache",
            {{"remote_url", fmt::format("lm://{}:{}", address.host, server->port())}});
  return server;
}

/// S1  Requests are answered on the loop; what may wait for the disk is done by the pool, and its
///     answer comes back by post(). At most one is open per connection.
class StoreServer final : private net::HttpHandler {
 public:
  StoreServer(storage::CacheService& cache, Clock& clock, Metrics& metrics)
      : cache_(cache), metrics_(metrics), shards_(1, clock, metrics), pool_(kThreads) {}

  Status open(const std::string& host, uint16_t port) {
    net::HttpServerConfig http;
    http.host = host;
    http.port = port;
    http.body_bytes_max = storage::BlockHeader::kPayloadMax + storage::BlockHeader::kBytes;
    http.budget_prefix = "store_";
    STATOR_TRY(http_, net::HttpServer::listen(shards_.shard(0), http, *this, metrics_), "--listen");
    shards_.start();
    return {};
  }
  uint16_t port() const { return http_->port(); }
  void close() {
    pool_.settle();
    if (!shards_.shard(0).run_and_wait([this] { http_.reset(); })) {
      log::warn("store", "too busy to close its connections in order");
    }
    shards_.stop();
  }

 private:
  /// A request that waits for the disk.
  struct Open final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone /*reason*/) override { exchange = nullptr; }
    net::HttpExchange* exchange = nullptr;
  };

  void on_request(net::HttpExchange& exchange) override {
    net::HttpRequest& request = exchange.request();
    const std::string_view path = request.path();
    if (path == "/metrics") {
      exchange.respond(200, Metrics::kContentType, metrics_.render());
    } else if (path == "/health" || path == "/live") {
      exchange.respond(200, kJson, R"({"status":"healthy"})");
    } else if (path.starts_with(storage::kStoreBlocks)) {
      on_block(exchange, path.substr(storage::kStoreBlocks.size()));
    } else if (path == storage::kStoreCount && request.method() == "POST") {
      const auto count = count_blocks(cache_, request.body());
      respond(exchange, count ? Answer{.body = std::make_shared<const std::string>(
                                           fmt::format(R"({{"count":{}}})", *count))}
                              : answer_error(count.error()));
    } else if (path == storage::kStoreCheck && request.method() == "POST") {
      auto ranges = check_blocks(cache_, request.body());
      respond(exchange,
              ranges ? Answer{.body = std::make_shared<const std::string>(std::move(*ranges))}
                     : answer_error(ranges.error()));
    } else {
      respond(exchange, answer_error(Error(Code::kNotFound, "nothing answers here")));
    }
  }

  void on_block(net::HttpExchange& exchange, std::string_view path) {
    net::HttpRequest& request = exchange.request();
    const size_t slash = path.find('/');
    const auto space = storage::parse_digest(path.substr(0, slash));
    const auto name = slash == std::string_view::npos
                          ? std::nullopt
                          : kv::LineageHash::parse(path.substr(slash + 1));
    const bool puts = request.method() == "PUT";
    if (!space || !name || (!puts && request.method() != "GET" && request.method() != "HEAD")) {
      respond(exchange, answer_error(Error(Code::kInvalidArgument,
                                           "GET, HEAD or PUT /v1/blocks/NAMESPACE/BLOCK")));
      return;
    }
    const uint64_t id = ++last_;
    auto open = std::make_unique<Open>();
    open->exchange = &exchange;
    exchange.set_observer(open.get());
    open_.emplace(id, std::move(open));
    pool_.post(
        puts ? storage::IoPool::Lane::kSave : storage::IoPool::Lane::kLoad,
        [this, id, space = *space, name = *name, puts, body = request.take_body()]() mutable {
          Answer answer = puts ? put(space, name, std::move(body)) : get(space, name);
          if (!shards_.shard(0).post(
                  [this, id, answer = std::move(answer)] { finish(id, answer); })) {
            log::warn("store", "an answer is lost: the server is stopping");
          }
        });
  }

  Answer put(const storage::Digest& space, const kv::LineageHash& name, std::string body) {
    const Status done = cache_.put(space, name, std::move(body));
    return done ? Answer{.status = 201, .body = std::make_shared<const std::string>("{}")}
                : answer_error(done.error());
  }
  Answer get(const storage::Digest& space, const kv::LineageHash& name) {
    auto record = cache_.get(space, name);
    return record ? Answer{.type = kOctets, .body = std::move(*record)}
                  : answer_error(record.error());
  }

  void finish(uint64_t id, const Answer& answer) {
    const auto found = open_.find(id);
    if (net::HttpExchange* const exchange = found->second->exchange; exchange != nullptr) {
      exchange->set_observer(nullptr);
      respond(*exchange, answer);
    }
    open_.erase(found);
  }
  static void respond(net::HttpExchange& exchange, const Answer& answer) {
    exchange.respond(answer.status, answer.type, *answer.body);
  }

  storage::CacheService& cache_;
  Metrics& metrics_;
  net::ShardSet shards_;
  std::unique_ptr<net::HttpServer> http_;
  FlatMap<uint64_t, std::unique_ptr<Open>> open_;
  uint64_t last_ = 0;
  storage::IoPool pool_;
};

}  // namespace

Status run_store(Invocation& invocation) {
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  Signals signals;
  storage::CacheServiceOptions options{.host_bytes = kHostBytesDefault,
                                       .folder = option_of(invocation, "--dir", ""),
                                       .folder_bytes = kDirBytesDefault};
  if (const std::string text = option_of(invocation, "--host-bytes", ""); !text.empty()) {
    STATOR_TRY(options.host_bytes, parse_bytes(text), "--host-bytes");
  }
  if (const std::string text = option_of(invocation, "--dir-bytes", ""); !text.empty()) {
    STATOR_TRY(options.folder_bytes, parse_bytes(text), "--dir-bytes");
  }
  app::KvSettings budget;
  budget.host_bytes = options.host_bytes;
  budget.disk = options.folder;
  budget.disk_bytes = options.folder.empty() ? 0 : options.folder_bytes;
  STATOR_CHECK(app::check_budgets(budget, 1, 0));
  STATOR_TRY(const Address address,
             parse_address(option_of(invocation, "--listen", "127.0.0.1:8095")), "--listen");
  storage::CacheService cache(options, clock, metrics);
  cache.recover();
  StoreServer server(cache, clock, metrics);
  STATOR_CHECK(server.open(address.host, address.port));
  STATOR_TRY(const auto lmcache, open_lmcache(invocation, cache, metrics));
  std::unique_ptr<discovery::Discovery> discovery;
  std::unique_ptr<discovery::Registration> published;  // withdrawn before the port is closed
  if (invocation.settings.discovery != "memory") {
    STATOR_TRY(const std::string reached, advertised(invocation, address.host, server.port()));
    STATOR_TRY(discovery, app::open_discovery(invocation.settings, clock, metrics));
    STATOR_TRY(published, app::publish_store(*discovery, reached, clock));
  }
  if (!net::is_loopback_host(address.host)) {
    log::warn("store",
              "this service asks nobody who they are: whoever reaches its port may put KV blocks "
              "that engines use; let only workers reach it",
              {{"host", address.host}});
  }
  log::info("store", "ready",
            {{"address", fmt::format("{}:{}", net::host_in_url(address.host), server.port())},
             {"host_bytes", options.host_bytes},
             {"dir", options.folder}});
  app::announce(
      invocation.settings, "store",
      fmt::format(R"("url":"http://127.0.0.1:{}","port":{},"lmcache_port":{})", server.port(),
                  server.port(), lmcache == nullptr ? 0 : lmcache->port()));
  signals.wait();
  published.reset();
  server.close();
  return {};
}

}  // namespace stator::cli
