// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/plugins.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "stator/core/log.h"

namespace stator::transfer {
namespace {

constexpr size_t kCauseBytes = 512;
constexpr int64_t kInfoMax = int64_t{1} << 20;
/// A request is looked at without sleep for so long, because most are over sooner than a thread
/// wakes up.
constexpr Duration kSpin = std::chrono::microseconds(50);
constexpr uint32_t kWaitMicros = 1000;

stator_transfer_range range_of(const Desc& desc) {
  return {.addr = desc.addr, .len = desc.len, .dev = desc.dev};
}

std::string join(const Params& params) {
  std::string out;
  for (const auto& [key, value] : params) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", key, value);
  }
  return out;
}

std::vector<stator_transfer_pair> pairs_of(const Job& job) {
  std::vector<stator_transfer_pair> pairs;
  pairs.reserve(job.pairs.size());
  for (size_t i = 0; i < job.pairs.size(); ++i) {
    const Pair pair = job.pairs[i];
    pairs.push_back({.local = range_of(pair.local), .remote = range_of(pair.remote)});
  }
  return pairs;
}

/// A table's backend as the agent sees it.
class PluginBackend final : public Backend {
 public:
  PluginBackend(const stator_transfer_backend_v1& table, Host& host, Clock& clock)
      : table_(table), host_(host), clock_(clock), agent_(host.name()) {
    offered_ = {.size = sizeof offered_,
                .context = &host_,
                .agent = agent_.c_str(),
                .epoch = host_.epoch(),
                .deliver = [](void* context, const char* peer, const void* message, size_t size) {
                  static_cast<Host*>(context)->deliver(
                      peer, std::string(static_cast<const char*>(message), size));
                }};
  }
  ~PluginBackend() override {
    if (self_ != nullptr) {
      table_.destroy(self_);
    }
  }
  bool start(const Params& params, std::string& cause) {
    std::array<char, kCauseBytes> why{};
    self_ = table_.create(&offered_, join(params).c_str(), why.data(), why.size());
    why.back() = '\0';
    cause = why.data();
    return self_ != nullptr;
  }

  std::string_view type() const override { return table_.name; }
  bool supports(MemType local, MemType remote) const override {
    return table_.supports(self_, static_cast<int>(local), static_cast<int>(remote)) != 0;
  }
  bool supports_remote() const override {
    return (table_.capabilities & STATOR_BACKEND_REMOTE) != 0;
  }

  Outcome attach(MemType type, const Desc& range) override {
    if (table_.register_mem == nullptr ||
        (table_.mem_types & (1U << static_cast<uint32_t>(type))) == 0) {
      return Outcome::kSuccess;
    }
    const stator_transfer_range one = range_of(range);
    return outcome(table_.register_mem(self_, static_cast<int>(type), &one));
  }
  void detach(MemType type, const Desc& range) override {
    if (table_.deregister_mem != nullptr &&
        (table_.mem_types & (1U << static_cast<uint32_t>(type))) != 0) {
      const stator_transfer_range one = range_of(range);
      table_.deregister_mem(self_, static_cast<int>(type), &one);
    }
  }
  Outcome open(MemType type, std::string_view meta, uint64_t& dev) override {
    return table_.open == nullptr ? Outcome::kNotSupported
                                  : outcome(table_.open(self_, static_cast<int>(type),
                                                        std::string(meta).c_str(), &dev));
  }
  void close(uint64_t dev) override {
    if (table_.close != nullptr) {
      table_.close(self_, dev);
    }
  }
  bool query(uint64_t dev, uint64_t& bytes) override {
    return table_.query != nullptr && table_.query(self_, dev, &bytes) == STATOR_SUCCESS;
  }

  std::string connection() const override {
    const int64_t size = std::clamp<int64_t>(table_.conn_info(self_, nullptr, 0), 0, kInfoMax);
    std::string info(static_cast<size_t>(size), '\0');
    const int64_t given = table_.conn_info(self_, info.data(), info.size());
    return given == size ? info : std::string();
  }
  Outcome connect(const Metadata& peer, std::string_view connection) override {
    return outcome(table_.connect(self_, peer.agent.c_str(), connection.data(), connection.size()));
  }
  void disconnect(std::string_view peer) override {
    if (table_.disconnect != nullptr) {
      table_.disconnect(self_, std::string(peer).c_str());
    }
  }
  Outcome notify(std::string_view peer, std::string_view message) override {
    return table_.notify == nullptr ? Outcome::kNotSupported
                                    : outcome(table_.notify(self_, std::string(peer).c_str(),
                                                            message.data(), message.size()));
  }

  Ended run(const Job& job) override {
    const std::vector<stator_transfer_pair> pairs = pairs_of(job);
    const std::string peer(job.peer);
    const stator_transfer_job posted{.size = sizeof posted,
                                     .op = job.op == Op::kRead ? STATOR_READ : STATOR_WRITE,
                                     .local_mem = static_cast<int>(job.local_type),
                                     .remote_mem = static_cast<int>(job.remote_type),
                                     .peer = peer.c_str(),
                                     .pairs = pairs.data(),
                                     .count = pairs.size(),
                                     .notification = job.notification.data(),
                                     .notification_size = job.notification.size()};
    Ended ended;
    void* request = nullptr;
    int status = table_.post(self_, &posted, &request);
    const TimePoint spin_until = clock_.now() + kSpin;
    while (status == STATOR_IN_PROGRESS && !*job.canceled) {
      status = table_.check(self_, request, &ended.failed_pair);
      const TimePoint now = clock_.now();
      if (status != STATOR_IN_PROGRESS || now > job.deadline) {
        break;
      }
      if (now > spin_until) {
        rest(request);
      }
    }
    ended.outcome = status == STATOR_IN_PROGRESS ? Outcome::kCanceled : outcome(status);
    if (ended.outcome != Outcome::kSuccess) {
      ended.cause = fmt::format("backend {}: {}", table_.name, to_string(ended.outcome));
    }
    while (request != nullptr && table_.release(self_, request) == STATOR_IN_PROGRESS) {
      rest(request);  // its memory is in use until then
    }
    return ended;
  }

 private:
  static Outcome outcome(int status) {
    return status > STATOR_IN_PROGRESS || status < STATOR_NO_TELEMETRY
               ? Outcome::kUnknown
               : static_cast<Outcome>(static_cast<int8_t>(status));
  }
  void rest(void* request) {
    if (table_.wait != nullptr) {
      table_.wait(self_, request, kWaitMicros);
    } else {
      std::this_thread::yield();
    }
  }

  const stator_transfer_backend_v1& table_;
  Host& host_;
  Clock& clock_;
  const std::string agent_;
  stator_transfer_host offered_{};
  void* self_ = nullptr;
};

/// The table of a shared library, or null and why.
const stator_transfer_backend_v1* load_table(const std::string& path, std::string& cause) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    cause = why == nullptr ? "it does not load" : why;
    return nullptr;
  }
  void* const symbol = ::dlsym(library, STATOR_TRANSFER_PLUGIN_SYMBOL);
  if (symbol == nullptr) {
    cause = "it has no function " STATOR_TRANSFER_PLUGIN_SYMBOL;
    return nullptr;
  }
  const auto* const table = reinterpret_cast<stator_transfer_plugin_function>(symbol)();
  cause = refuse_table(table);
  return cause.empty() ? table : nullptr;
}

}  // namespace

std::string refuse_table(const stator_transfer_backend_v1* table) {
  if (table == nullptr) {
    return "it gives no table";
  }
  if (table->api_version != STATOR_TRANSFER_BACKEND_API) {
    return fmt::format("it is written for version {} of the interface, this library has {}",
                       table->api_version, STATOR_TRANSFER_BACKEND_API);
  }
  if (table->size < sizeof *table) {
    return "its table is shorter than its version's";
  }
  const bool remote = (table->capabilities & STATOR_BACKEND_REMOTE) != 0;
  const bool notify = (table->capabilities & STATOR_BACKEND_NOTIFY) != 0;
  if (table->name == nullptr || *table->name == '\0' || table->create == nullptr ||
      table->destroy == nullptr || table->supports == nullptr || table->post == nullptr ||
      table->check == nullptr || table->release == nullptr ||
      (remote && (table->conn_info == nullptr || table->connect == nullptr)) ||
      (notify && table->notify == nullptr)) {
    return "its table lacks functions that it must have";
  }
  return {};
}

const Plugins& Plugins::of_this_process() {
  static const Plugins plugins([] {
    const char* const folder = std::getenv("STATOR_TRANSFER_PLUGIN_DIR");
    return std::string(folder == nullptr ? "" : folder);
  }());
  return plugins;
}

Plugins::Plugins(const std::string& folder) : tables_{&ucx_table(), &cuda_table()} {
  std::vector<std::string> paths;
  std::error_code failed;
  if (!folder.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
      if (entry.path().extension() == ".so") {
        paths.push_back(entry.path().string());
      }
    }
    if (failed) {
      log::error("transfer", "the folder of transfer plug-ins cannot be read",
                 {{"STATOR_TRANSFER_PLUGIN_DIR", folder}, {"reason", failed.message()}});
    }
  }
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    std::string cause;
    const auto* const table = load_table(path, cause);
    if (table != nullptr && find(table->name) != nullptr) {
      cause = fmt::format("there is a backend \"{}\" already", table->name);
    }
    if (!cause.empty()) {
      log::error("transfer", "a transfer plug-in is refused", {{"file", path}, {"reason", cause}});
      continue;
    }
    tables_.push_back(table);
  }
}

std::vector<std::string> Plugins::names() const {
  std::vector<std::string> out;
  for (const auto* const table : tables_) {
    out.emplace_back(table->name);
  }
  return out;
}

const stator_transfer_backend_v1* Plugins::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      tables_, [&](const auto* table) { return std::string_view(table->name) == name; });
  return found == tables_.end() ? nullptr : *found;
}

std::unique_ptr<Backend> make_plugin_backend(const stator_transfer_backend_v1& table, Host& host,
                                             const Params& params, Clock& clock,
                                             std::string& cause) {
  auto made = std::make_unique<PluginBackend>(table, host, clock);
  return made->start(params, cause) ? std::move(made) : nullptr;
}

}  // namespace stator::transfer
