// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "stator/io/read_file.h"
#include "stator/net/http_client.h"
#include "stator/scaling/prometheus_query.h"
#include "stator/scaling/source.h"

namespace stator::scaling {
namespace {

constexpr uint64_t kTokenBytesMax = 64UL << 10;

class PageSource final : public Source {
 public:
  PageSource(std::vector<std::string> urls, Duration timeout) : urls_(std::move(urls)) {
    options_.timeout = timeout;
    options_.connect_timeout = timeout;
    options_.body_bytes_max = kPageBytesMax;
  }

  void look(PageObserver& observer) override {
    for (const std::string& url : urls_) {
      const auto page = read(url);
      if (page) {
        observer.add(url, *page);
      } else {
        observer.fail(url, page.error().message());
      }
    }
  }

 private:
  Result<MetricsPage> read(const std::string& url) {
    STATOR_TRY(
        const net::HttpClientResponse response,
        client_.request({.method = "GET", .url = url + "/metrics", .headers = {}, .body = {}},
                        options_));
    if (response.status != 200) {
      return Error(Code::kUnavailable, fmt::format("/metrics answered {}", response.status));
    }
    return MetricsPage::parse(response.body);
  }

  const std::vector<std::string> urls_;
  net::HttpClient client_;
  net::HttpClientOptions options_;
};

class OwnSource final : public Source {
 public:
  explicit OwnSource(std::function<std::string()> render) : render_(std::move(render)) {}
  void look(PageObserver& observer) override {
    const auto page = MetricsPage::parse(render_());
    if (page) {
      observer.add("this process", *page);
    } else {
      observer.fail("this process", page.error().message());
    }
  }

 private:
  const std::function<std::string()> render_;
};

std::string percent(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || c == '.';
    out += plain ? std::string(1, c)
                 : fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

class PrometheusSource final : public Source {
 public:
  PrometheusSource(PrometheusOptions options, const ObserverConfig& observer)
      : options_(std::move(options)), query_("query=" + percent(make_query(observer))) {
    client_options_.timeout = options_.timeout;
    client_options_.connect_timeout = options_.timeout;
    client_options_.body_bytes_max = kPageBytesMax;
    client_options_.tls_ca_path = options_.ca_path;
    client_options_.tls_insecure = options_.insecure;
  }

  void look(PageObserver& observer) override {
    const auto pages = ask();
    if (!pages) {
      observer.fail(options_.url, pages.error().message());
      return;
    }
    if (pages->empty()) {
      observer.fail(options_.url, "it has no series of this model's frontends");
    }
    for (const auto& [instance, page] : *pages) {
      observer.add(instance, page);
    }
  }

 private:
  Result<std::map<std::string, MetricsPage>> ask() {
    net::HttpClientRequest request{
        .method = "POST",
        .url = options_.url + "/api/v1/query",
        .headers = {{"Content-Type", "application/x-www-form-urlencoded"}},
        .body = query_};
    if (!options_.query_params.empty()) {
      request.body += "&" + options_.query_params;
    }
    std::string token = options_.token;
    if (!options_.token_file.empty()) {
      STATOR_TRY(token, io::read_file(options_.token_file, kTokenBytesMax), "bearer token");
      while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) {
        token.pop_back();
      }
    }
    if (!token.empty()) {
      request.headers.emplace_back("Authorization", "Bearer " + token);
    }
    STATOR_TRY(const net::HttpClientResponse response, client_.request(request, client_options_));
    if (response.status / 100 != 2 && !response.body.starts_with('{')) {
      return Error(Code::kUnavailable, fmt::format("it answered {}", response.status));
    }
    return parse_vector(response.body);
  }

  const PrometheusOptions options_;
  const std::string query_;
  net::HttpClient client_;
  net::HttpClientOptions client_options_;
};

}  // namespace

std::unique_ptr<Source> make_page_source(std::vector<std::string> urls, Duration timeout) {
  return std::make_unique<PageSource>(std::move(urls), timeout);
}

std::unique_ptr<Source> make_own_source(std::function<std::string()> render) {
  return std::make_unique<OwnSource>(std::move(render));
}

std::unique_ptr<Source> make_prometheus_source(PrometheusOptions options,
                                               const ObserverConfig& observer) {
  return std::make_unique<PrometheusSource>(std::move(options), observer);
}

}  // namespace stator::scaling
