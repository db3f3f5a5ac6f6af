// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/transfer/range_list.h"
#include "stator/transfer/types.h"

namespace stator::transfer {

using Params = std::map<std::string, std::string, std::less<>>;

/// One transfer on its way. Everything outlives run().
struct Job {
  Op op = Op::kRead;
  MemType local_type = MemType::kDram;
  MemType remote_type = MemType::kDram;
  Pairs pairs;
  std::string_view peer;          ///< empty: this agent (files, objects)
  std::string_view notification;  ///< told to the peer when all bytes are there; empty: nothing
  TimePoint deadline;
  const std::atomic<bool>* canceled = nullptr;
};

/// How it ended: which pair failed, and why.
struct Ended {
  Outcome outcome = Outcome::kSuccess;
  size_t failed_pair = 0;
  std::string cause;
};

/// What an agent offers to its backends: what others may read and write, and where notifications
/// go.
class Host {
 public:
  virtual ~Host() = default;
  virtual const std::string& name() const = 0;
  virtual uint64_t epoch() const = 0;
  /// The region with this key, if the range is within it.
  virtual bool allows(const RemoteKey& key, const Desc& range) const = 0;
  virtual void deliver(std::string peer, std::string message) = 0;
  /// A peer asked for what it may not, or sent what is no message: its connection was closed.
  virtual void refused(Outcome why) = 0;
};

/// A way to move bytes. Thread-safety: run() by several of the agent's threads at once, the rest by
/// one caller at a time. `run` ends by the job's deadline.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view type() const = 0;
  virtual bool supports(MemType local, MemType remote) const = 0;
  /// Other agents are reached; else only this one.
  virtual bool supports_remote() const { return false; }
  /// run() only copies memory: whoever posts or waits may as well do it, and several at once do
  /// parts of one transfer. The notification is then told by notify().
  virtual bool only_copies() const { return false; }
  /// run() moves one pair after the other and waits for each: several threads do some pairs each.
  virtual bool moves_one_by_one() const { return false; }

  /// A range was registered, or is no more: when detach() returns, no peer's message changes it.
  virtual Outcome attach(MemType /*type*/, const Desc& /*range*/) { return Outcome::kSuccess; }
  virtual void detach(MemType /*type*/, const Desc& /*range*/) {}

  /// A path or key for a file or object; gives the number for Desc::dev.
  virtual Outcome open(MemType /*type*/, std::string_view /*meta*/, uint64_t& /*dev*/) {
    return Outcome::kNotSupported;
  }
  virtual void close(uint64_t /*dev*/) {}
  /// Bytes of what `dev` names; nothing: it is not there.
  virtual bool query(uint64_t /*dev*/, uint64_t& /*bytes*/) { return false; }

  virtual std::string connection() const { return {}; }
  virtual Outcome connect(const Metadata& /*peer*/, std::string_view /*connection*/) {
    return Outcome::kNotSupported;
  }
  virtual void disconnect(std::string_view /*peer*/) {}
  virtual Ended run(const Job& job) = 0;
  virtual Outcome notify(std::string_view /*peer*/, std::string_view /*message*/) {
    return Outcome::kNotSupported;
  }
};

/// Bad values in `params` give null and a `cause` that names them.
std::unique_ptr<Backend> make_tcp_backend(Host& host, const Params& params, Clock& clock,
                                          std::string& cause);
std::unique_ptr<Backend> make_shm_backend(Host& host, const Params& params, Clock& clock,
                                          std::string& cause);
/// The same without mapping: all memory through process_vm_readv() and writev().
std::unique_ptr<Backend> make_cma_backend(Host& host, const Params& params, Clock& clock,
                                          std::string& cause);
std::unique_ptr<Backend> make_posix_backend(const Params& params, std::string& cause);
std::unique_ptr<Backend> make_obj_backend(const Params& params, Clock& clock, Metrics& metrics,
                                          std::string& cause);

}  // namespace stator::transfer
