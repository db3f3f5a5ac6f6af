// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/storage/object_dialect.h"

namespace stator::storage {
namespace {

constexpr std::string_view kScheme = "s3://";

class S3Dialect final : public ObjectDialect {
 public:
  explicit S3Dialect(const S3Options& options)
      : bucket_(options.bucket), credentials_(options.credentials), base_(options.endpoint) {
    while (base_.ends_with('/')) {
      base_.pop_back();
    }
    if (base_.empty()) {
      host_ = fmt::format("{}.s3.{}.amazonaws.com", bucket_, credentials_.region);
      base_ = "https://" + host_;
    } else {
      const size_t scheme = base_.find("://");
      host_ = base_.substr(scheme == std::string::npos ? 0 : scheme + 3);
      path_prefix_ = "/" + encode_path(bucket_);
    }
  }

  net::HttpClientRequest request(const ObjectCall& call, WallTime now) const override {
    std::string path = path_prefix_ + call.path;
    if (path.empty()) {
      path = "/";
    }
    const bool plain = base_.starts_with("http://");
    const std::string payload_hash =
        plain || call.body.empty() ? sha256_hex(call.body) : std::string("UNSIGNED-PAYLOAD");
    AwsRequest request{.method = call.method,
                       .host = host_,
                       .path = path,
                       .query = {},
                       .headers = {},
                       .payload_hash = payload_hash};
    if (call.only_new) {
      request.headers.emplace_back("if-none-match", "*");
    }
    return {.method = std::string(call.method),
            .url = base_ + path,
            .headers = sign(request, credentials_, now),
            .body = std::string(call.body)};
  }

  std::string place() const override { return fmt::format("bucket '{}' at {}", bucket_, base_); }

 private:
  const std::string bucket_;
  const AwsCredentials credentials_;
  std::string base_;         // scheme and host
  std::string host_;         // of the Host header
  std::string path_prefix_;  // "/BUCKET", or nothing
};

}  // namespace

Result<S3Options> parse_s3_url(std::string_view url) {
  if (!url.starts_with(kScheme)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is not of the form s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or "
                             "file:///FOLDER",
                             url));
  }
  url.remove_prefix(kScheme.size());
  const size_t slash = url.find('/');
  S3Options options;
  options.bucket = url.substr(0, slash);
  if (slash != std::string_view::npos) {
    options.prefix = url.substr(slash + 1);
  }
  while (options.prefix.ends_with('/')) {
    options.prefix.pop_back();
  }
  if (options.bucket.empty()) {
    return Error(Code::kInvalidArgument, "s3:// has no bucket: s3://BUCKET/PREFIX");
  }
  return options;
}

std::unique_ptr<ObjectDialect> make_s3_dialect(const S3Options& options) {
  return std::make_unique<S3Dialect>(options);
}

}  // namespace stator::storage
