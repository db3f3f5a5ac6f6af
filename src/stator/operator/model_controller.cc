// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "stator/core/log.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/informer.h"
#include "stator/kube/lease.h"
#include "stator/kube/work_queue.h"
#include "stator/net/http_client.h"
#include "stator/net/thread.h"
#include "stator/operator/model.h"
#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr size_t kAtOnce = 10;
constexpr Duration kRequestMax = 15s;
constexpr Duration kRoundMax = 30s;
constexpr Duration kAgain = 30s;

class ModelService final : public ModelController {
 public:
  ModelService(kube::Client& client, ModelOptions options, Clock& clock, Metrics& metrics)
      : client_(client),
        options_(std::move(options)),
        clock_(clock),
        writer_(client, "stator-operator"),
        queue_(clock),
        loads_(metrics.counter("stator_operator_adapter_loads_total",
                               "Adapters that workers were asked to load")),
        failures_(metrics.counter("stator_operator_adapter_failures_total",
                                  "Of these, requests that failed")) {
    models_ = watch("DynamoModel", "", [](const Value& model) {
      return fmt::format("{}/{}", kube::name_of(model).space,
                         kube::short_hash(model.text_at({"spec", "baseModelName"})));
    });
    slices_ = watch("EndpointSlice", std::string(kLabelBaseModelHash), [](const Value& slice) {
      return fmt::format("{}/{}", kube::name_of(slice).space,
                         kube::label_of(slice, kLabelBaseModelHash));
    });
    started_.store(true);
    thread_ = net::Thread("models", [this] { work(); });
  }

  ~ModelService() override {
    stopping_.store(true);
    queue_.stop();
    thread_.join();
    models_.reset();
    slices_.reset();
  }

 private:
  std::unique_ptr<kube::Informer> watch(std::string_view kind, std::string labels,
                                        std::function<std::string(const Value&)> key) {
    kube::Informer::Options options;
    options.selection = {.space = options_.space, .labels = std::move(labels), .fields = {}};
    options.index_key = std::move(key);
    options.gives_before = true;
    options.on_change = [this, kind](const Value* before, const Value* after) {
      on_change(kind, before, after);
    };
    return std::make_unique<kube::Informer>(client_, kube::resource_of(kind), std::move(options));
  }

  void on_change(std::string_view kind, const Value* before, const Value* after) {
    const Value& object = after == nullptr ? *before : *after;
    const kube::ObjectName name = kube::name_of(object);
    if (options_.wanted && !options_.wanted(name.space)) {
      return;
    }
    if (kind == "DynamoModel") {
      const bool is_own_status = before != nullptr && after != nullptr &&
                                 kube::generation_of(*before) == kube::generation_of(*after) &&
                                 after->find_at({"metadata", "deletionTimestamp"}) == nullptr;
      if (!is_own_status) {
        queue_.add(name.to_string());
      }
    } else if (started_.load()) {
      const std::string key =
          fmt::format("{}/{}", name.space, kube::label_of(object, kLabelBaseModelHash));
      for (const Value& model : models_->find_indexed(key)) {
        queue_.add(kube::name_of(model).to_string());
      }
    }
  }

  void work() {
    while (const auto key = queue_.take()) {
      if (!models_->is_synced() || !slices_->is_synced()) {
        queue_.done(*key, true);
        queue_.add_after(*key, 100ms);
        continue;
      }
      const Status done = reconcile(*key);
      if (!done && done.error().code() != Code::kCancelled) {
        log::warn("models", done.error().message(), {{"model", *key}});
      }
      queue_.done(*key, done.has_value());
    }
  }

  Status reconcile(const std::string& key) {
    const size_t slash = key.find('/');
    const kube::ObjectName name{key.substr(0, slash), key.substr(slash + 1)};
    const auto model = models_->get(name);
    if (!model) {
      return {};
    }
    const std::string base = kube::short_hash(model->text_at({"spec", "baseModelName"}));
    const auto slices = slices_->find_indexed(fmt::format("{}/{}", name.space, base));
    std::vector<ModelEndpoint> endpoints = endpoints_of_model(slices);
    if (model->find_at({"metadata", "deletionTimestamp"}) != nullptr) {
      return take_leave(*model, endpoints);
    }
    STATOR_CHECK(add_finalizer(*model));
    if (is_adapter(*model)) {
      ask_all(*model, endpoints, "POST");
    } else {
      for (ModelEndpoint& endpoint : endpoints) {
        endpoint.ready = true;
      }
    }
    const bool all = std::ranges::all_of(endpoints, &ModelEndpoint::ready);
    if (!all) {
      queue_.add_after(key, kAgain);
    }
    const Value status =
        status_of_model(*model, endpoints, !slices.empty(), kube::rfc3339(clock_.wall_now()));
    const Value* before = model->find("status");
    if (all && !endpoints.empty() &&
        (before == nullptr ||
         before->text_at({"readyEndpoints"}) != status.text_at({"readyEndpoints"}))) {
      tell(*model, {false, "EndpointsReady", fmt::format("{} endpoints", endpoints.size())});
    }
    return writer_.write_status(*model, status);
  }

  Status add_finalizer(const Value& model) {
    if (!is_adapter(model)) {
      return {};
    }
    Value list = model.at("metadata").at("finalizers");
    for (const Value& each : list.elements()) {
      if (each.text() == kFinalizer) {
        return {};
      }
    }
    list.push_back(kFinalizer);
    return set_finalizers(model, std::move(list));
  }

  Status set_finalizers(const Value& model, Value list) {
    Value patch = Value::object();
    patch["metadata"]["finalizers"] = std::move(list);
    patch["metadata"]["resourceVersion"] = model.text_at({"metadata", "resourceVersion"});
    STATOR_TRY(const Value patched,
               client_.merge_patch(kube::resource_of("DynamoModel"), kube::name_of(model), patch));
    return {};
  }

  /// Workers that cannot be reached do not hold a model up: what they had loaded goes with them.
  Status take_leave(const Value& model, std::vector<ModelEndpoint>& endpoints) {
    Value rest = Value::array();
    bool is_ours = false;
    for (const Value& each : model.at("metadata").at("finalizers").elements()) {
      if (each.text() == kFinalizer) {
        is_ours = true;
      } else {
        rest.push_back(each);
      }
    }
    if (!is_ours) {
      return {};
    }
    if (is_adapter(model)) {
      ask_all(model, endpoints, "DELETE");
    }
    return set_finalizers(model, std::move(rest));
  }

  /// Asks every endpoint, a few at a time; `ready` of each says whether it agreed.
  void ask_all(const Value& model, std::vector<ModelEndpoint>& endpoints,
               const std::string& method) {
    const TimePoint end = clock_.now() + kRoundMax;
    std::atomic<size_t> next{0};
    std::vector<net::Thread> askers;
    for (size_t i = 0; i < std::min(kAtOnce, endpoints.size()); ++i) {
      askers.emplace_back(fmt::format("adapter-{}", i), [&] {
        for (size_t own = next.fetch_add(1); own < endpoints.size(); own = next.fetch_add(1)) {
          const Duration left = end - clock_.now();
          if (left <= Duration::zero() || stopping_.load()) {
            return;
          }
          endpoints[own].ready =
              ask(model, endpoints[own], method, std::min<Duration>(left, kRequestMax));
        }
      });
    }
    askers.clear();
  }

  bool ask(const Value& model, const ModelEndpoint& endpoint, const std::string& method,
           Duration timeout) {
    const std::string name(model.text_at({"spec", "modelName"}));
    net::HttpClientRequest request{.method = method, .url = endpoint.address + "/v1/loras"};
    if (method == "DELETE") {
      request.url += "/" + name;
    } else {
      Value body = Value::object();
      body["lora_name"] = name;
      body["source"]["uri"] = model.text_at({"spec", "source", "uri"});
      request.body = json::to_text(body);
      request.headers = {{"content-type", "application/json"}};
    }
    if (!options_.token.empty()) {
      request.headers.emplace_back("authorization", "Bearer " + options_.token);
    }
    loads_.add();
    const auto answer = net::http_request(
        request,
        {.timeout = timeout, .body_bytes_max = size_t{1} << 20, .follow_redirects = false});
    const bool good = answer && answer->status >= 200 && answer->status < 300;
    if (!good) {
      failures_.add();
      log::warn(
          "models", "a worker did not take an adapter",
          {{"adapter", name},
           {"worker", endpoint.address},
           {"why", answer ? fmt::format("HTTP {}: {}", answer->status, answer->body.substr(0, 200))
                          : answer.error().message()}});
    }
    return good;
  }

  void tell(const Value& object, const kube::Happening& happening) {
    client_
        .create(kube::resource_of("Event"),
                kube::make_event(object, happening, options_.holder,
                                 kube::rfc3339_micro(clock_.wall_now())))
        .ignore("an event is told once, or not");
  }

  kube::Client& client_;
  ModelOptions options_;
  Clock& clock_;
  kube::ChildWriter writer_;
  kube::WorkQueue queue_;
  Counter loads_;
  Counter failures_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<kube::Informer> models_;
  std::unique_ptr<kube::Informer> slices_;
  net::Thread thread_;
};

}  // namespace

std::unique_ptr<ModelController> start_model_controller(kube::Client& client, ModelOptions options,
                                                        Clock& clock, Metrics& metrics) {
  return std::make_unique<ModelService>(client, std::move(options), clock, metrics);
}

}  // namespace stator::op
