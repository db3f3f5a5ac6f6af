// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <vector>

#include "stator/storage/object_dialect.h"

namespace stator::storage {
namespace {

constexpr std::string_view kScheme = "az://";
constexpr std::string_view kVersion = "2021-08-06";
constexpr std::string_view kType = "application/octet-stream";

/// Nothing: it is not base64.
std::optional<std::string> from_base64(std::string_view text) {
  std::string out(text.size(), '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || text.empty()) {
    return std::nullopt;
  }
  const size_t padding = text.size() - std::min(text.find('='), text.size());
  out.resize(static_cast<size_t>(size) - std::min(padding, static_cast<size_t>(size)));
  return out;
}

std::string base64_hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, 32> digest{};
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &length);
  std::array<unsigned char, 64> out{};
  const int size = EVP_EncodeBlock(out.data(), digest.data(), static_cast<int>(digest.size()));
  return {reinterpret_cast<const char*>(out.data()), static_cast<size_t>(size)};
}

class AzureDialect final : public ObjectDialect {
 public:
  AzureDialect(const AzureOptions& options, std::string key)
      : container_(options.container),
        account_(options.account),
        key_(std::move(key)),
        sas_(options.sas_token),
        base_(options.endpoint) {
    while (base_.ends_with('/')) {
      base_.pop_back();
    }
    if (base_.empty()) {
      base_ = fmt::format("https://{}.blob.core.windows.net", account_);
    }
    const size_t scheme = base_.find("://");
    const size_t slash = base_.find('/', scheme == std::string::npos ? 0 : scheme + 3);
    base_path_ = slash == std::string::npos ? "" : base_.substr(slash);
  }

  net::HttpClientRequest request(const ObjectCall& call, WallTime now) const override {
    const std::string path = "/" + encode_path(container_) + call.path;
    const bool whole = call.path.empty();  // the container itself
    std::string query = whole ? "?restype=container" : "";
    std::vector<std::pair<std::string, std::string>> headers = {
        {"x-ms-date", fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}",
                                  std::chrono::floor<std::chrono::seconds>(now))},
        {"x-ms-version", std::string(kVersion)}};
    if (call.method == "PUT") {
      headers.insert(headers.begin(), {"x-ms-blob-type", "BlockBlob"});
    }
    if (sas_.empty()) {
      headers.emplace_back("Authorization", authorization(call, path, headers));
    } else {
      query += (query.empty() ? "?" : "&") + sas_;
    }
    if (call.only_new) {
      headers.emplace_back("If-None-Match", "*");
    }
    if (!call.body.empty()) {
      headers.emplace_back("Content-Type", kType);
    }
    return {.method = std::string(call.method),
            .url = base_ + path + query,
            .headers = std::move(headers),
            .body = std::string(call.body)};
  }

  std::string place() const override {
    return fmt::format("container '{}' at {}", container_, base_);
  }

 private:
  /// `headers`: those that begin with x-ms-, sorted.
  std::string authorization(const ObjectCall& call, const std::string& path,
                            const std::vector<std::pair<std::string, std::string>>& headers) const {
    std::string text(call.method);
    text += "\n\n\n";  // no Content-Encoding, no Content-Language
    text += call.body.empty() ? "\n" : fmt::format("{}\n", call.body.size());
    text += "\n";  // no Content-MD5
    text += call.body.empty() ? "\n" : fmt::format("{}\n", kType);
    text += "\n\n\n";  // no Date, If-Modified-Since, If-Match
    text += call.only_new ? "*\n" : "\n";
    text += "\n\n";  // no If-Unmodified-Since, no Range
    for (const auto& [name, value] : headers) {
      text += fmt::format("{}:{}\n", name, value);
    }
    text += fmt::format("/{}{}{}", account_, base_path_, path);
    text += call.path.empty() ? "\nrestype:container" : "";
    return fmt::format("SharedKey {}:{}", account_, base64_hmac(key_, text));
  }

  const std::string container_;
  const std::string account_;
  const std::string key_;  // bytes
  const std::string sas_;
  std::string base_;       // scheme, host and what stands before the container
  std::string base_path_;  // of these, the path
};

}  // namespace

Result<AzureOptions> parse_azure_url(std::string_view url) {
  if (!url.starts_with(kScheme)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is not of the form az://CONTAINER/PREFIX", url));
  }
  url.remove_prefix(kScheme.size());
  const size_t slash = url.find('/');
  AzureOptions options;
  options.container = url.substr(0, slash);
  if (slash != std::string_view::npos) {
    options.prefix = url.substr(slash + 1);
  }
  while (options.prefix.ends_with('/')) {
    options.prefix.pop_back();
  }
  if (options.container.empty()) {
    return Error(Code::kInvalidArgument, "az:// has no container: az://CONTAINER/PREFIX");
  }
  return options;
}

Result<std::unique_ptr<ObjectDialect>> make_azure_dialect(const AzureOptions& options) {
  if (options.account.empty()) {
    return Error(Code::kInvalidArgument,
                 "az:// needs an account: set AZURE_STORAGE_ACCOUNT (kv.azure_account)");
  }
  AzureOptions used = options;
  if (used.sas_token.starts_with('?')) {
    used.sas_token.erase(0, 1);
  }
  auto key = from_base64(options.key);
  if (used.sas_token.empty() && !key) {
    return Error(Code::kInvalidArgument,
                 "az:// needs the account's key, base64, in AZURE_STORAGE_KEY (kv.azure_key), or a "
                 "SAS token in AZURE_STORAGE_SAS_TOKEN (kv.azure_sas_token)");
  }
  return std::make_unique<AzureDialect>(used, key.value_or(""));
}

}  // namespace stator::storage
