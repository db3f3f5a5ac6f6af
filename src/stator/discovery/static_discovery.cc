// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/static_discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/discovery/view_hub.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/net/grpc_callers.h"
#include "stator/net/grpc_channel.h"
#include "stator/net/shard.h"
#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::discovery {
namespace {

constexpr std::string_view kDescribe = "/stator.worker.v1.Worker/Describe";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

Status check_address(std::string_view address) {
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  const std::string_view digits =
      colon == std::string_view::npos ? std::string_view() : address.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (colon == 0 || digits.empty() || error != std::errc() ||
      end != digits.data() + digits.size() || port == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is not the HOST:PORT of a worker", address));
  }
  return {};
}

/// With `between` between them, each once; lines may end in a comment.
Result<std::vector<std::string>> split_addresses(std::string_view text, char between) {
  std::vector<std::string> out;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(between));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    item = trimmed(item.substr(0, item.find('#')));
    if (item.empty()) {
      continue;
    }
    STATOR_CHECK(check_address(item));
    if (std::ranges::find(out, item) == out.end()) {
      out.emplace_back(item);
    }
  }
  if (out.size() > kStaticWorkersMax) {
    return Error(Code::kInvalidArgument, fmt::format("{} workers are named, at most {} may be",
                                                     out.size(), kStaticWorkersMax));
  }
  return out;
}

/// What a worker says of itself. It need not know the address it is reached at.
Result<InstanceRecord> read_record(std::string_view text, const std::string& address) {
  auto value = json::parse(text);
  if (!value || !value->is_object()) {
    return Error(Code::kCorrupt, "its record is no JSON object");
  }
  (*value)["address"] = address;
  return parse_instance_record(json::to_text(*value));
}

class NoRegistration final : public Registration {
 public:
  Status update(InstanceRecord record) override { return validate(record); }
};

/// S1  A worker is in the view from its first answer until `failures_max` questions in a row were
///     in vain, or its address is not named any more.
/// S2  Everything but `hub_` is the loop's.
class StaticDiscovery final : public Discovery {
 public:
  StaticDiscovery(StaticOptions options, std::shared_ptr<const net::ClientTls> tls,
                  Metrics& metrics)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        instances_(
            metrics.gauge("stator_runtime_discovery_instances", "instances in the discovery view")),
        failures_(metrics.counter("stator_discovery_static_failures_total",
                                  "questions to named workers that were not answered")),
        shards_(1, clock_, metrics) {
    shards_.start();
    STATOR_ASSERT(loop().post([this] { ask_all(); }), "the loop just started");
  }
  ~StaticDiscovery() override {
    shards_.stop();
    timer_ = {};  // the loop has ended: this thread may touch what was its own
    workers_.clear();
  }

  Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) override {
    STATOR_CHECK(validate(record));
    return std::make_unique<NoRegistration>();
  }
  std::vector<InstanceRecord> list(const InstanceQuery& query) override { return hub_.list(query); }
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                               DiscoveryListener& listener) override {
    return hub_.watch(std::move(query), shard, listener);
  }

 private:
  struct Worker {
    std::string address;
    std::unique_ptr<net::GrpcChannel> channel;
    std::unique_ptr<net::GrpcUnaryCall> call;  // null: none is under way
    std::optional<InstanceRecord> record;      // as it stands in the view
    uint32_t failures = 0;
    bool answered = false;  // `call` has been

    static const std::string& address_of(const std::unique_ptr<Worker>& worker) {
      return worker->address;
    }
  };

  net::Shard& loop() { return shards_.shard(0); }

  void ask_all() {
    read_list();
    for (const auto& worker : workers_) {
      if (worker->call == nullptr || worker->answered) {
        ask(*worker);
      }
    }
    timer_ = loop().after(options_.interval, [this] { ask_all(); });
  }

  /// A file that cannot be read changes nothing.
  void read_list() {
    std::vector<std::string> named = options_.addresses;
    if (!options_.file.empty()) {
      auto listed = read_static_file();
      if (!listed) {
        log::warn("discovery", "the list of workers cannot be used; the last one holds",
                  {{"file", options_.file}, {"why", listed.error().message()}});
        return;
      }
      named = std::move(*listed);
    }
    std::erase_if(workers_, [&](const std::unique_ptr<Worker>& worker) {
      const bool gone = std::ranges::find(named, worker->address) == named.end();
      if (gone) {
        forget(*worker);
      }
      return gone;
    });
    for (const std::string& address : named) {
      if (std::ranges::find(workers_, address, &Worker::address_of) == workers_.end()) {
        auto worker = std::make_unique<Worker>();
        worker->address = address;
        worker->channel = net::GrpcChannel::open({.address = address, .tls = tls_}, loop());
        workers_.push_back(std::move(worker));
      }
    }
  }

  Result<std::vector<std::string>> read_static_file() const {
    STATOR_TRY(const std::string text, io::read_file(options_.file));
    return split_addresses(text, '\n');
  }

  void ask(Worker& worker) {
    worker.answered = false;
    worker.call = std::make_unique<net::GrpcUnaryCall>(
        *worker.channel,
        net::GrpcChannelCall{.path = std::string(kDescribe), .deadline = options_.timeout},
        std::string_view(),
        [this, &worker](const net::GrpcOutcome& outcome, std::string_view answer) {
          worker.answered = true;
          take(worker, outcome, answer);
        });
  }

  void take(Worker& worker, const net::GrpcOutcome& outcome, std::string_view answer) {
    worker::v1::DescribeResponse response;
    const bool read =
        outcome.ok() && response.ParseFromArray(answer.data(), static_cast<int>(answer.size()));
    auto record = read ? read_record(response.record_json(), worker.address)
                       : Result<InstanceRecord>(Error(Code::kUnavailable, outcome.message));
    if (!record) {
      failures_.add();
      if (++worker.failures == options_.failures_max) {
        log::warn("discovery", "a named worker does not answer",
                  {{"address", worker.address}, {"why", record.error().message()}});
        forget(worker);
      }
      return;
    }
    worker.failures = 0;
    record->state = InstanceState::kReady;  // it answers; its sessions say when it drains
    if (worker.record != *record) {
      show(worker, std::move(*record));
    }
  }

  void show(Worker& worker, InstanceRecord record) {
    std::vector<InstanceChange> changes;
    if (worker.record && worker.record->key != record.key) {
      changes.push_back({worker.record->key, nullptr});
    }
    log::info("discovery", "a named worker is there",
              {{"address", worker.address}, {"worker", record.key.worker.value()}});
    changes.push_back({record.key, std::make_shared<const InstanceRecord>(record)});
    worker.record = std::move(record);
    apply(std::move(changes));
  }

  void forget(Worker& worker) {
    if (worker.record) {
      apply({{worker.record->key, nullptr}});
      worker.record.reset();
    }
  }

  void apply(std::vector<InstanceChange> changes) {
    hub_.apply(std::move(changes));
    instances_.set(static_cast<double>(hub_.size()));
  }

  const StaticOptions options_;
  const std::shared_ptr<const net::ClientTls> tls_;  // shared with channels; null: plain
  Gauge instances_;
  Counter failures_;
  ViewHub hub_;
  SystemClock clock_;  // only paces the loop
  net::ShardSet shards_;
  net::Timer timer_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

Result<StaticOptions> parse_static_list(std::string_view text) {
  StaticOptions options;
  if (text.starts_with('@') || text.starts_with('/') || text.starts_with('.')) {
    options.file = text.substr(text.starts_with('@') ? 1 : 0);
    return options;
  }
  STATOR_TRY(options.addresses, split_addresses(text, ','));
  return options;
}

Result<std::unique_ptr<Discovery>> open_static_discovery(StaticOptions options, Metrics& metrics) {
  if (!options.file.empty()) {
    STATOR_TRY(const std::string text, io::read_file(options.file));
    STATOR_TRY(options.addresses, split_addresses(text, '\n'), options.file);
  }
  STATOR_TRY(auto tls, net::load_client_tls(options.tls));
  return std::make_unique<StaticDiscovery>(std::move(options), std::move(tls), metrics);
}

}  // namespace stator::discovery
