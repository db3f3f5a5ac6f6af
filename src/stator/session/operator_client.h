// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "stator/core/result.h"
#include "stator/net/grpc_channel.h"
#include "stator/net/shard.h"
#include "stator/net/tls_files.h"
#include "stator/session/operator_wish.h"

namespace stator::session {

/// Carries operators' wishes to workers of other processes (Worker.Operate), a connection each:
/// operators are few and rarely ask.
///
/// On the loop of the shard it was made for, or while that does not run. Wishes that are open when
/// it is destroyed are told nothing.
class OperatorClient {
 public:
  /// kIo names the TLS file that cannot be used. `shard` outlives it.
  static Result<std::unique_ptr<OperatorClient>> create(const std::optional<net::TlsFiles>& tls,
                                                        net::Shard& shard);
  OperatorClient(const OperatorClient&) = delete;
  OperatorClient& operator=(const OperatorClient&) = delete;
  ~OperatorClient();

  /// `done` on the loop, never from inside: 502 for a worker that does not answer, 501 for one
  /// that knows no such call, 504 after 130 s.
  void ask(const std::string& address, const OperatorWish& wish, OperatorDone done);

 private:
  struct Call;
  OperatorClient(std::shared_ptr<const net::ClientTls> tls, std::string server_name,
                 net::Shard& shard);

  const std::shared_ptr<const net::ClientTls> tls_;
  const std::string server_name_;
  net::Shard& shard_;
  std::map<uint64_t, std::unique_ptr<Call>> calls_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is posted
  uint64_t last_ = 0;
};

}  // namespace stator::session
