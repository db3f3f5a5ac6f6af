// SPDX-License-Identifier: Apache-2.0
#include "stator/media/fetcher_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "stator/net/test/http_server_fixture.h"

namespace stator::media {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::Not;

std::string gif(char width) {
  return "GIF89a"s + width + "\0\1\0"s;
}

/// A fetcher that finds every name at this host's own server, unless a test says otherwise.
class FetcherTest : public net::HttpServerTest {
 protected:
  using Loaded = std::expected<std::vector<BlobPtr>, LoadError>;

  void TearDown() override {
    fetcher_.reset();
    HttpServerTest::TearDown();
  }
  void open(MediaConfig config = {.allow_private = true}) {
    auto made = Fetcher::create(config, budget_, clock_, metrics, [this](const std::string& host) {
      ++lookups_;
      return lookup_ ? lookup_(host)
                     : Result<std::vector<IpAddress>>({*parse_address("127.0.0.1")});
    });
    ASSERT_TRUE(made) << made.error().message();
    fetcher_ = std::move(*made);
  }
  /// A server that answers every path with its own text and counts.
  void serve(std::function<void(net::HttpExchange&)> handler) {
    start([this, handler = std::move(handler)](net::HttpExchange& exchange) {
      ++requests_;
      handler(exchange);
    });
  }
  void serve_gif() {
    serve([](net::HttpExchange& exchange) { exchange.respond(200, "image/gif", gif(7)); });
  }
  std::string url(const std::string& path = "/a.gif", const std::string& host = "images.example") {
    return fmt::format("http://{}:{}{}", host, server->port(), path);
  }
  Loaded load(const std::vector<std::string>& urls) {
    std::vector<Wanted> wanted;
    for (const std::string& each : urls) {
      wanted.push_back({.source = each, .path = fmt::format("part {}", wanted.size())});
    }
    std::promise<Loaded> promise;
    fetcher_->load(std::move(wanted),
                   [&promise](Loaded blobs) { promise.set_value(std::move(blobs)); });
    return promise.get_future().get();
  }
  std::string refusal(const std::string& each) {
    const Loaded loaded = load({each});
    if (loaded) {
      return "";
    }
    code_ = loaded.error().error.code();
    return loaded.error().error.message();
  }

  SystemClock clock_;
  net::ByteBudget budget_{"media", 64 << 20, metrics};
  std::function<Result<std::vector<IpAddress>>(const std::string&)> lookup_;
  std::atomic<int> lookups_{0};
  std::atomic<int> requests_{0};
  Code code_ = Code::kInternal;
  std::unique_ptr<Fetcher> fetcher_;
};

TEST_F(FetcherTest, FetchesByNameAndChecksWhatCame) {
  std::atomic<bool> asked_well{false};
  serve([&](net::HttpExchange& exchange) {
    const net::HttpRequest& request = exchange.request();
    asked_well = request.header("host") == fmt::format("images.example:{}", server->port()) &&
                 request.header("accept-encoding") == "identity" &&
                 request.header("user-agent") == "stator-media/1";
    exchange.respond(200, "text/plain", gif(7));
  });
  open();
  const Loaded loaded = load({url()});
  ASSERT_TRUE(loaded) << loaded.error().error.message();
  EXPECT_EQ(loaded->front()->type, "image/gif");
  EXPECT_EQ(loaded->front()->width, 7U);
  EXPECT_TRUE(asked_well);
  EXPECT_TRUE(shows_metric("stator_media_fetches_total{outcome=\"ok\"} 1"));
}

TEST_F(FetcherTest, BlobsComeInOrderAndTheFirstFailureNamesItsPart) {
  serve([](net::HttpExchange& exchange) {
    const auto path = exchange.request().path();
    path == "/bad" ? exchange.respond(404, "text/plain", "no")
                   : exchange.respond(200, "image/gif", gif(static_cast<char>(path[1] - '0')));
  });
  open();
  const Loaded loaded = load({url("/3"), url("/1"), url("/2")});
  ASSERT_TRUE(loaded);
  EXPECT_EQ((*loaded)[0]->width, 3U);
  EXPECT_EQ((*loaded)[1]->width, 1U);
  EXPECT_EQ((*loaded)[2]->width, 2U);
  const Loaded failed = load({url("/4"), url("/bad")});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().path, "part 1");
  EXPECT_EQ(failed.error().error.code(), Code::kInvalidArgument);
  EXPECT_THAT(failed.error().error.message(), HasSubstr("404"));
}

TEST_F(FetcherTest, AnAddressInsideIsNeverConnectedTo) {
  serve_gif();
  open({.allowed_hosts = fmt::format("images.example:{}", server->port())});
  EXPECT_THAT(refusal(url()), HasSubstr("loopback"));
  // One bad address among good ones is enough.
  lookup_ = [](const std::string&) -> Result<std::vector<IpAddress>> {
    return std::vector{*parse_address("93.184.216.34"), *parse_address("127.0.0.1")};
  };
  EXPECT_THAT(refusal(url("/b")), HasSubstr("loopback"));
  lookup_ = [](const std::string&) -> Result<std::vector<IpAddress>> {
    return std::vector{*parse_address("64:ff9b::a9fe:a9fe")};
  };
  EXPECT_THAT(refusal(url("/c")), HasSubstr("link-local"));
  EXPECT_EQ(requests_, 0);
}

TEST_F(FetcherTest, TheCheckedAddressIsTheOneThatIsConnectedTo) {
  serve_gif();
  open();
  // A name that means something else each time it is asked for.
  lookup_ = [this](const std::string&) -> Result<std::vector<IpAddress>> {
    return std::vector{*parse_address(lookups_ == 1 ? "127.0.0.1" : "127.0.0.2")};
  };
  EXPECT_EQ(refusal(url("/a", "rebinding.example")), "");
  EXPECT_EQ(lookups_, 1);
  EXPECT_EQ(requests_, 1);
}

TEST_F(FetcherTest, RedirectsAreCheckedAndBounded) {
  serve([this](net::HttpExchange& exchange) {
    const std::string path(exchange.request().path());
    const auto lead = [&](const std::string& to) {
      const net::HttpHeader header{"location", to};
      exchange.respond(302, "text/plain", "elsewhere", std::span(&header, 1));
    };
    if (path == "/end") {
      exchange.respond(200, "image/gif", gif(7));
    } else if (path == "/once") {
      lead("/end");
    } else if (path == "/inside") {
      lead(url("/end", "other.example"));
    } else if (path == "/nowhere") {
      exchange.respond(302, "text/plain", "");
    } else {
      lead(path + "x");
    }
  });
  open({.allowed_hosts = fmt::format("images.example:{}", server->port()), .allow_private = true});
  EXPECT_EQ(refusal(url("/once")), "");
  EXPECT_THAT(refusal(url("/inside")), HasSubstr("media.allowed_hosts"));
  EXPECT_THAT(refusal(url("/nowhere")), HasSubstr("nowhere"));
  requests_ = 0;
  EXPECT_THAT(refusal(url("/loop")), HasSubstr("media.redirects_max"));
  EXPECT_EQ(requests_, 4);
}

TEST_F(FetcherTest, RefusesWhatIsTooLargeCompressedOrNoImage) {
  serve([](net::HttpExchange& exchange) {
    const auto path = exchange.request().path();
    const net::HttpHeader gzip{"content-encoding", "gzip"};
    if (path == "/large") {
      exchange.respond(200, "image/gif", gif(1) + std::string(5000, 'x'));
    } else if (path == "/chunks") {
      exchange.start_stream(200, "image/gif");
      exchange.write(gif(1) + std::string(5000, 'x'));
      exchange.finish();
    } else if (path == "/gzip") {
      exchange.respond(200, "image/gif", gif(1), std::span(&gzip, 1));
    } else if (path == "/html") {
      exchange.respond(200, "image/gif", "<html>");
    } else {
      exchange.respond(200, "image/gif", "GIF89a\xFF\x7F\xFF\x7F"s);
    }
  });
  open({.allow_private = true, .bytes_max = 1000});
  EXPECT_THAT(refusal(url("/large")), HasSubstr("media.max_bytes"));
  EXPECT_EQ(code_, Code::kTooLarge);
  EXPECT_THAT(refusal(url("/chunks")), HasSubstr("media.max_bytes"));
  EXPECT_THAT(refusal(url("/gzip")), HasSubstr("compresses"));
  EXPECT_THAT(refusal(url("/html")), HasSubstr("no image"));
  EXPECT_THAT(refusal(url("/bomb")), HasSubstr("media.image_pixels_max"));
}

TEST_F(FetcherTest, FailuresSayNothingOfTheNetwork) {
  serve_gif();
  open();
  const std::string closed = refusal("http://images.example:1/");
  EXPECT_THAT(closed, HasSubstr("does not answer properly"));
  EXPECT_THAT(closed, Not(HasSubstr("127.0.0.1")));
  EXPECT_EQ(code_, Code::kInvalidArgument);
  lookup_ = [](const std::string&) -> Result<std::vector<IpAddress>> {
    return Error(Code::kInvalidArgument, "the URL's host is not known");
  };
  EXPECT_THAT(refusal(url()), HasSubstr("not known"));
}

TEST_F(FetcherTest, ASilentServerIsGivenUp) {
  serve([](net::HttpExchange&) {});
  open({.allow_private = true, .timeout = 100ms});
  EXPECT_THAT(refusal(url()), HasSubstr("media.timeout"));
}

TEST_F(FetcherTest, EqualSourcesAreOneFetchAndAreKept) {
  serve_gif();
  open();
  ASSERT_TRUE(load({url(), url(), url()}));
  EXPECT_EQ(requests_, 1);
  ASSERT_TRUE(load({url()}));
  EXPECT_EQ(requests_, 1);
  EXPECT_TRUE(shows_metric("stator_media_cache_hits_total 1"));
}

TEST_F(FetcherTest, WithoutACacheEachRequestFetchesAnew) {
  serve_gif();
  open({.allow_private = true, .cache_bytes = 0});
  ASSERT_TRUE(load({url()}));
  ASSERT_TRUE(load({url()}));
  EXPECT_EQ(requests_, 2);
  EXPECT_EQ(budget_.used(), 0U);
}

TEST_F(FetcherTest, MoreThanMayRunWaitForTheirTurn) {
  serve_gif();
  open({.allow_private = true, .fetches_max = 2, .cache_bytes = 0});
  std::vector<std::string> urls;
  for (int i = 0; i < 20; ++i) {
    urls.push_back(url(fmt::format("/{}", i)));
  }
  ASSERT_TRUE(load(urls));
  EXPECT_EQ(requests_, 20);
}

TEST_F(FetcherTest, ACancelledLoadClosesItsConnection) {
  struct Gone final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone) override { gone = true; }
    std::atomic<bool> gone{false};
  } gone;
  serve([&](net::HttpExchange& exchange) { exchange.set_observer(&gone); });
  open();
  const auto id = fetcher_->load({{.source = url(), .path = "part"}},
                                 [](Loaded) { ADD_FAILURE() << "it was cancelled"; });
  ASSERT_TRUE(net::eventually([&] { return requests_ == 1; }));
  fetcher_->cancel(id);
  EXPECT_TRUE(net::eventually([&] { return gone.gone.load(); }));
  EXPECT_TRUE(net::eventually(
      [&] { return shows_metric("stator_media_fetches_total{outcome=\"cancelled\"} 1"); }));
}

}  // namespace
}  // namespace stator::media
