// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "stator/net/detail/ssl_context.h"
#include "stator/net/http_client.h"
#include "stator/net/test/http_server_fixture.h"
#include "stator/net/test/test_certificate.h"

namespace stator::net {
namespace {

class HttpTlsTest : public HttpServerTest {
 protected:
  HttpTlsTest() {
    config.tls_cert_path = certificate.cert_path();
    config.tls_key_path = certificate.key_path();
    options.tls_ca_path = certificate.cert_path();
  }
  std::string url(std::string_view path) const {
    return "https://127.0.0.1:" + std::to_string(server->port()) + std::string(path);
  }

  TestCertificate certificate;
  HttpClientOptions options;
};

TEST_F(HttpTlsTest, ServesAVerifyingClient) {
  start_echo();

  const auto response =
      http_request({.method = "POST", .url = url("/secure"), .body = "secret"}, options);

  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->body, "POST /secure secret");
}

TEST_F(HttpTlsTest, CarriesBodiesOfManyRecordsBothWays) {
  start([](HttpExchange& exchange) { exchange.respond(200, "", exchange.request().body()); });
  const std::string body(5'000'000, 'b');

  const auto response = http_request({.method = "POST", .url = url("/"), .body = body}, options);

  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_TRUE(response->body == body);
}

TEST_F(HttpTlsTest, StreamsOverTls) {
  start([](HttpExchange& exchange) {
    exchange.start_stream(200, "text/event-stream");
    exchange.write("data: 1\n\n");
    exchange.write(std::string(1'000'000, 'x'));
    exchange.finish();
  });

  const auto response = http_request({.url = url("/")}, options);

  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(response->body.size(), 1'000'009U);
}

TEST_F(HttpTlsTest, AClientThatDoesNotTrustTheCertificateFails) {
  start_echo();

  const auto response = http_request({.url = url("/")});

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kUnavailable);
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
}

TEST_F(HttpTlsTest, ClosesAClientThatSpeaksPlainText) {
  start_echo();
  RawClient client = connect();

  ASSERT_TRUE(client.send(get("/")));

  client.read_to_end();
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
}

TEST_F(HttpTlsTest, ClosesAClientThatNeverShakesHands) {
  config.header_timeout = std::chrono::milliseconds(20);
  start_echo();
  RawClient client = connect();

  EXPECT_EQ(client.read_to_end(), "");
}

// As a certificate manager does it: new files under the old names.
TEST_F(HttpTlsTest, ANewConnectionHasTheNewCertificate) {
  start_echo();
  const TestCertificate renewed;
  const auto put = [](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to + ".new");
    std::filesystem::rename(to + ".new", to);
  };
  const std::string trusted = certificate.cert_path() + ".trusted";
  std::filesystem::copy_file(certificate.cert_path(), trusted);
  options.tls_ca_path = trusted;

  put(renewed.cert_path(), certificate.cert_path());  // half of it: not usable yet
  EXPECT_TRUE(http_request({.url = url("/")}, options).has_value());

  put(renewed.key_path(), certificate.key_path());
  EXPECT_FALSE(http_request({.url = url("/")}, options).has_value());
  options.tls_ca_path = renewed.cert_path();
  EXPECT_TRUE(http_request({.url = url("/")}, options).has_value());
}

TEST_F(HttpTlsTest, NamesAKeyItCannotUse) {
  config.port = 0;
  config.host = "127.0.0.1";
  config.tls_key_path = certificate.cert_path();

  const auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);

  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_NE(made.error().message().find("--tls-key-path"), std::string::npos);
}

TEST_F(HttpTlsTest, NamesAMissingCertificate) {
  config.tls_cert_path = "/nonexistent/cert.pem";

  const auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);

  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message().find("/nonexistent/cert.pem"), std::string::npos);
}

TEST_F(HttpTlsTest, NeedsBothCertificateAndKey) {
  config.tls_key_path.clear();

  const auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);

  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
}

TEST(SslContext, SaysWhichFileIsNotThere) {
  const auto context =
      detail::make_ssl_context(TLS_server_method(), "/no/such/cert.pem", "/no/such/key.pem");
  ASSERT_FALSE(context);
  EXPECT_EQ(context.error().message(), "TLS file /no/such/cert.pem: no such file");
}

}  // namespace
}  // namespace stator::net
