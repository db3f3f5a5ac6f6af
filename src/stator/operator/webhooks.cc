// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/webhooks.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <vector>

#include "stator/core/histogram_bounds.h"
#include "stator/core/log.h"
#include "stator/io/replace_file.h"
#include "stator/kube/base64.h"
#include "stator/kube/certificates.h"
#include "stator/kube/child_writer.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/net/thread.h"
#include "stator/operator/admission.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/operator_metrics.h"

namespace stator::op {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr size_t kReviewBytesMax = size_t{16} << 20;  // two objects of 3 MiB, and what is around
constexpr Duration kAuthorityRest = std::chrono::hours(24 * 365);
constexpr int kRaces = 5;

struct Certificates {
  kube::KeyPair authority;  ///< who signs
  std::string bundle;       ///< all authorities that the API server should accept
  kube::KeyPair server;
};

std::string field_of(const Value& secret, std::string_view key) {
  return kube::from_base64(secret.text_at({"data", key})).value_or("");
}

class WebhookService final : public Webhooks, public net::HttpHandler {
 public:
  WebhookService(kube::Client& client, ClusterFacts& facts, WebhookConfig config, Clock& clock,
                 Metrics& metrics)
      : client_(client),
        facts_(facts),
        config_(std::move(config)),
        clock_(clock),
        requests_(metrics.counter("stator_operator_webhook_requests_total", "Reviews answered")),
        denials_(metrics.counter("stator_operator_webhook_denials_total", "Objects refused")),
        seconds_(metrics.histogram("stator_operator_webhook_duration_seconds", "Time of one review",
                                   kBounds)),
        dashboards_(metrics),
        shards_(1, clock, metrics) {}

  ~WebhookService() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
    shards_.stop();
    servers_.clear();
    if (!folder_.empty()) {
      std::error_code ignored;
      std::filesystem::remove_all(folder_, ignored);
    }
  }

  Status open(Metrics& metrics) {
    STATOR_CHECK(make_folder());
    STATOR_CHECK(renew());
    net::HttpServerConfig server;
    server.host = config_.host;
    server.port = config_.port;
    server.body_bytes_max = kReviewBytesMax;
    server.tls_cert_path = certificate_path();
    server.tls_key_path = key_path();
    server.budget_prefix = "webhooks_";
    net::HttpHandler* const handlers[] = {this};
    STATOR_TRY(servers_, net::HttpServer::listen_on_all(shards_, server, handlers, metrics),
               "--webhook-port");
    shards_.start();
    register_hooks();
    thread_ = net::Thread("webhooks", [this] { watch(); });
    return {};
  }

  uint16_t port() const override { return servers_.front()->port(); }

  void on_request(net::HttpExchange& exchange) override {
    const std::string_view path = exchange.request().path();
    const bool known =
        path == "/defaults" || path == "/validate" || path == "/convert" || path == "/restore";
    if (!known) {
      exchange.respond(404, "text/plain", "not found: /defaults, /validate, /convert, /restore\n");
      return;
    }
    const auto review = json::parse(exchange.request().body());
    if (!review || review->find("request") == nullptr) {
      exchange.respond(400, "text/plain", "the body is no review\n");
      return;
    }
    const TimePoint begin = clock_.now();
    const Value answer = answer_to(path, *review);
    requests_.add();
    const Value* allowed = answer.find_at({"response", "allowed"});
    if (allowed != nullptr && !allowed->as_bool().value_or(true)) {
      denials_.add();
      log::info("operator", "refused",
                {{"why", std::string(answer.text_at({"response", "status", "message"}))}});
    }
    exchange.respond(200, "application/json", json::to_text(answer));
    const Duration took = clock_.now() - begin;
    seconds_.observe(std::chrono::duration<double>(took).count());
    if (path == "/validate") {
      dashboards_.on_reviewed(review->text_at({"request", "kind", "kind"}),
                              review->text_at({"request", "operation"}),
                              allowed == nullptr || allowed->as_bool().value_or(true), took);
    }
  }

 private:
  static constexpr std::array<double, 8> kBounds = {0.0001, 0.0003, 0.001, 0.003,
                                                    0.01,   0.03,   0.1,   1};

  Value answer_to(std::string_view path, const Value& review) {
    if (path == "/convert") {
      return review_conversion(review);
    }
    if (path == "/restore") {
      return review_restore(review, find_checkpoint(review));
    }
    AdmissionContext context;
    {
      const std::lock_guard lock(mutex_);
      context = context_;
    }
    return path == "/validate" ? review_validity(review, context)
                               : review_defaults(review, context);
  }

  /// What a pod could be restored from; null for one that starts cold.
  Value find_checkpoint(const Value& review) {
    const Value* pod = review.find_at({"request", "object"});
    const std::string name(pod == nullptr ? std::string_view() : checkpoint_of_pod(*pod));
    if (name.empty()) {
      return {};
    }
    auto found = client_.get(kube::resource_of("DynamoCheckpoint"),
                             {std::string(review.text_at({"request", "namespace"})), name});
    return found ? std::move(*found) : Value();
  }

  std::string certificate_path() const { return folder_ + "/tls.crt"; }
  std::string key_path() const { return folder_ + "/tls.key"; }

  Status make_folder() {
    std::error_code failed;
    std::string pattern =
        (std::filesystem::temp_directory_path(failed) / "stator-webhooks-XXXXXX").string();
    if (failed || ::mkdtemp(pattern.data()) == nullptr) {
      return Error(
          Code::kUnavailable,
          "the webhooks need a folder for their certificate: set TMPDIR to one that can be "
          "written");
    }
    folder_ = pattern;
    return {};
  }

  // ---------------------------------------------------------------------------- certificates

  /// What the Secret has, as far as it is good for another while.
  Result<Certificates> certificates_from(const Value& secret, bool& changed) {
    const WallTime now = clock_.wall_now();
    Certificates made{{field_of(secret, "ca.crt"), field_of(secret, "ca.key")},
                      field_of(secret, "ca.crt"),
                      {field_of(secret, "tls.crt"), field_of(secret, "tls.key")}};
    const auto authority_end = kube::end_of_certificate(made.authority.certificate);
    if (!authority_end || made.authority.key.empty() || *authority_end - now < kAuthorityRest) {
      // Servers that still have a certificate of the old one stay good for the API server.
      STATOR_TRY(made.authority, kube::make_authority("stator-webhooks", now));
      made.bundle = made.authority.certificate + (authority_end ? made.bundle : "");
      changed = true;
    }
    const auto end = kube::end_of_certificate(made.server.certificate);
    const std::vector<std::string> hosts = hosts_of(config_.address);
    if (!end || *end - now < config_.lifetime / 3 ||
        !kube::certifies(made.server, made.authority.certificate, hosts)) {
      STATOR_TRY(made.server,
                 kube::make_server_certificate(made.authority, hosts, now, config_.lifetime));
      changed = true;
    }
    return made;
  }

  /// Reads the Secret, renews what is too old, and has the server's files as it says. Several
  /// operators may do so at once: who is too late takes what the first one wrote.
  Status renew() {
    const kube::Resource& resource = kube::resource_of("Secret");
    const kube::ObjectName name{config_.secret_space, config_.secret_name};
    for (int race = 0; race < kRaces; ++race) {
      auto stored = client_.get(resource, name);
      if (!stored && stored.error().code() != Code::kNotFound) {
        return stored.error().clone();
      }
      bool changed = false;
      STATOR_TRY(const Certificates made,
                 certificates_from(stored ? *stored : Value::object(), changed));
      if (changed) {
        Value secret = stored ? *stored : kube::make_object(resource, name);
        secret["type"] = "Opaque";
        Value& data = secret["data"];
        data["ca.crt"] = kube::to_base64(made.bundle);
        data["ca.key"] = kube::to_base64(made.authority.key);
        data["tls.crt"] = kube::to_base64(made.server.certificate);
        data["tls.key"] = kube::to_base64(made.server.key);
        const auto written =
            stored ? client_.replace(resource, secret) : client_.create(resource, secret);
        if (!written && written.error().code() == Code::kAlreadyExists) {
          continue;
        }
        if (!written) {
          return written.error().clone();
        }
        log::info("operator", "webhook certificate issued",
                  {{"secret", name.to_string()}, {"hosts", hosts_of(config_.address).front()}});
      }
      return use(made);
    }
    return Error(Code::kUnavailable,
                 fmt::format("Secret {} changes all the time", name.to_string()));
  }

  Status use(const Certificates& made) {
    if (made.server.certificate == used_) {
      return {};
    }
    STATOR_CHECK(io::replace_file(key_path(), made.server.key));
    STATOR_CHECK(io::replace_file(certificate_path(), made.server.certificate));
    used_ = made.server.certificate;
    config_.address.ca_bundle = made.bundle;
    return {};
  }

  /// What is installed from now on is allowed from now on.
  void look_at_cluster() {
    Environment seen = facts_.environment();
    const std::lock_guard lock(mutex_);
    context_ = {.environment = std::move(seen), .operator_user = config_.address.operator_user};
  }

  /// Tells the API server where we are and whom to believe.
  void register_hooks() {
    if (config_.address.operator_user.empty()) {
      config_.address.operator_user = facts_.user();
    }
    look_at_cluster();
    WebhookAddress address = config_.address;
    if (!address.url.empty() && config_.port == 0) {
      address.url += fmt::format(":{}", port());
    }
    for (const Value& object : make_webhook_objects(address)) {
      const kube::Resource& resource = kube::resource_of(object.text_at({"kind"}));
      const kube::ObjectName name = kube::name_of(object);
      const auto live = client_.get(resource, name);
      if (live && kube::covers(*live, object)) {
        continue;
      }
      const bool is_crd = resource.kind == "CustomResourceDefinition";
      if (!live && (is_crd || live.error().code() != Code::kNotFound)) {
        log::warn("operator", live.error().message());
        continue;
      }
      const auto written = client_.apply(resource, object, {.manager = "stator-webhooks"});
      if (!written) {
        log::warn("operator", written.error().message());
      }
    }
  }

  void watch() {
    TimePoint looked = clock_.now();
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, config_.facts_interval, [&] { return stopping_; });
        if (stopping_) {
          return;
        }
      }
      if (clock_.now() - looked < config_.look_interval) {
        look_at_cluster();
        continue;
      }
      looked = clock_.now();
      if (const Status renewed = renew(); !renewed) {
        log::warn("operator", renewed.error().message());
      }
      register_hooks();
    }
  }

  kube::Client& client_;
  ClusterFacts& facts_;
  WebhookConfig config_;  ///< after open(): of the thread
  Clock& clock_;
  Counter requests_;
  Counter denials_;
  Histogram seconds_;
  OperatorMetrics dashboards_;
  std::string folder_;
  std::string used_;  ///< the certificate in the files
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  AdmissionContext context_;
  net::ShardSet shards_;
  std::vector<std::unique_ptr<net::HttpServer>> servers_;
  net::Thread thread_;
};

}  // namespace

Result<std::unique_ptr<Webhooks>> Webhooks::start(kube::Client& client, ClusterFacts& facts,
                                                  WebhookConfig config, Clock& clock,
                                                  Metrics& metrics) {
  auto service = std::make_unique<WebhookService>(client, facts, std::move(config), clock, metrics);
  STATOR_CHECK(service->open(metrics));
  return service;
}

}  // namespace stator::op
