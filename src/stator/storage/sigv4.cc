// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/sigv4.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>

#include "stator/core/assert.h"

namespace stator::storage {
namespace {

using Key = std::array<unsigned char, 32>;

std::string hex(const Key& bytes) {
  std::string out;
  for (const unsigned char byte : bytes) {
    out += fmt::format("{:02x}", byte);
  }
  return out;
}

Key hmac(std::string_view key, std::string_view text) {
  Key out{};
  unsigned length = 0;
  STATOR_ASSERT(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(),
                     &length) != nullptr,
                "OpenSSL has HMAC-SHA-256");
  return out;
}

std::string_view text_of(const Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Key out{};
  STATOR_ASSERT(
      EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, EVP_sha256(), nullptr) == 1,
      "OpenSSL has SHA-256");
  return hex(out);
}

std::string encode_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || c == '/';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> sign(const AwsRequest& request,
                                                      const AwsCredentials& credentials,
                                                      WallTime now) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const std::string date = fmt::format("{:%Y%m%d}", seconds);
  const std::string stamp = fmt::format("{:%Y%m%dT%H%M%SZ}", seconds);
  auto headers = request.headers;
  headers.emplace_back("host", request.host);
  headers.emplace_back("x-amz-content-sha256", request.payload_hash);
  headers.emplace_back("x-amz-date", stamp);
  if (!credentials.session_token.empty()) {
    headers.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::ranges::sort(headers);
  std::string lines;
  std::string names;
  for (const auto& [name, value] : headers) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            request.query, lines, names, request.payload_hash);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", date, credentials.region);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, scope, sha256_hex(canonical));
  const Key day = hmac("AWS4" + credentials.secret_key, date);
  const Key region = hmac(text_of(day), credentials.region);
  const Key service = hmac(text_of(region), "s3");
  const Key key = hmac(text_of(service), "aws4_request");
  std::erase_if(headers, [](const auto& header) { return header.first == "host"; });
  headers.emplace_back(
      "Authorization",
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                  credentials.access_key, scope, names, hex(hmac(text_of(key), to_sign))));
  return headers;
}

}  // namespace stator::storage
