// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/net/http_client.h"
#include "stator/storage/sigv4.h"

namespace stator::storage {

/// One request to an object store, before it is addressed and signed.
struct ObjectCall {
  std::string_view method;
  std::string path;  ///< behind bucket or container, percent-encoded, from '/'; empty: that itself
  std::string_view body{};
  bool only_new = false;  ///< If-None-Match: the key must not be there
};

/// How one kind of object store wants requests addressed and signed. Immutable.
class ObjectDialect {
 public:
  virtual ~ObjectDialect() = default;
  virtual net::HttpClientRequest request(const ObjectCall& call, WallTime now) const = 0;
  /// "bucket 'b' at http://…", for messages.
  virtual std::string place() const = 0;
};

struct S3Options {
  std::string bucket;
  std::string prefix;  ///< of keys
  /// "http://127.0.0.1:9000": path-style requests go there. Empty:
  /// https://BUCKET.s3.REGION.amazonaws.com
  std::string endpoint;
  AwsCredentials credentials;
};
/// "s3://BUCKET/PREFIX". kInvalidArgument for anything else.
Result<S3Options> parse_s3_url(std::string_view url);
/// Requests of one S3 bucket, by SigV4.
std::unique_ptr<ObjectDialect> make_s3_dialect(const S3Options& options);

struct AzureOptions {
  std::string container;
  std::string prefix;  ///< of names
  /// "http://127.0.0.1:10000/devstoreaccount1", the account in its path. Empty:
  /// https://ACCOUNT.blob.core.windows.net
  std::string endpoint;
  std::string account;
  std::string key;  ///< base64; with `sas_token` not needed
  std::string sas_token;
};
/// "az://CONTAINER/PREFIX". kInvalidArgument for anything else.
Result<AzureOptions> parse_azure_url(std::string_view url);
/// Requests of one container of Azure Blob Storage, by Shared Key or with a SAS token.
/// kInvalidArgument: no account, or a key that is not base64. Source: "Authorize with Shared Key",
/// "Put Blob", version 2021-08-06 of the Blob service's REST API.
Result<std::unique_ptr<ObjectDialect>> make_azure_dialect(const AzureOptions& options);

}  // namespace stator::storage
