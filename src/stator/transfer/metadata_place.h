// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/net/thread.h"
#include "stator/transfer/agent.h"

namespace stator::transfer {

/// Where agents leave their metadata for others, or the other agent itself. Thread-safe; methods
/// block, two seconds at most.
///
///   STATOR_TRY(auto place, open_metadata_place("etcd://10.0.0.5:2379"));
///   place->put("prefill-0", agent.local_md());                  // on one host
///   agent.load_remote_md(*place->get("prefill-0"), peer);       // on another
class MetadataPlace {
 public:
  virtual ~MetadataPlace() = default;
  virtual Status put(const std::string& agent, const std::string& blob) = 0;
  /// kNotFound: nobody of that name left any.
  virtual Result<std::string> get(const std::string& agent) = 0;
  /// Takes back what was put under the name; of nothing is no error.
  virtual Status erase(const std::string& agent) = 0;
  /// Names that begin so, sorted, 10,000 at most. kUnsupported: another agent has no list.
  virtual Result<std::vector<std::string>> list(const std::string& prefix) = 0;
};

/// "etcd://HOST:PORT": keys /nixl/agents/AGENT/metadata, by etcd's JSON gateway; "file:///DIR": a
/// shared folder; "tcp://HOST:PORT": the MetadataListener of another agent, which loads what is put
/// and gives its own. kInvalidArgument for anything else.
Result<std::unique_ptr<MetadataPlace>> open_metadata_place(std::string_view url);

/// Answers others who ask an agent for its metadata, and loads theirs: what tcp:// speaks to. One
/// thread, one connection at a time, two seconds each. Whoever reaches the port may make the agent
/// know a peer: listen where only agents are.
class MetadataListener {
 public:
  /// `port` 0: any free one. `agent` outlives it. kUnavailable: the address cannot be listened on.
  static Result<std::unique_ptr<MetadataListener>> start(Agent& agent, const std::string& host,
                                                         uint16_t port);
  ~MetadataListener();
  MetadataListener(const MetadataListener&) = delete;
  MetadataListener& operator=(const MetadataListener&) = delete;

  uint16_t port() const { return port_; }

 private:
  MetadataListener(Agent& agent, io::FileDescriptor listener, uint16_t port);
  void serve();
  void answer(int connection);

  Agent& agent_;
  const io::FileDescriptor listener_;
  const uint16_t port_;
  std::atomic<bool> stopping_{false};
  net::Thread thread_;
};

/// A request or an answer between listener and place: 16 bytes little-endian, then the two texts.
///   0 magic 'SXMX'   4 kind u32   8 bytes of the name u32   12 bytes of the blob u32
struct MetadataFrame {
  static constexpr size_t kBytes = 16;
  static constexpr uint32_t kNameMax = 4096;
  static constexpr uint32_t kBlobMax = 64U << 20;
  enum class Kind : uint32_t { kGet = 1, kPut, kErase, kOk, kNotFound, kRefused };
  Kind kind = Kind::kGet;
  uint32_t name_bytes = 0;
  uint32_t blob_bytes = 0;
};
std::string encode(const MetadataFrame& frame);
/// Nothing for a head that encode() did not write.
std::optional<MetadataFrame> decode_metadata_frame(std::string_view bytes);

}  // namespace stator::transfer
