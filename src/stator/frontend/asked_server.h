// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::frontend {

/// A server that is asked while requests wait for its answers: over HTTP, by a thread of its own,
/// JSON both ways.
///
/// A1  Each question that was taken is answered once, on the thread; with nothing when the server
///     gave none, or when stop() came first.
/// A2  After kFailuresMax questions in a row without a good answer the server is paused for kPause,
///     so that one that is away costs no request its time. Who asks looks at paused() first.
/// A3  At most `open_max` questions wait or are under way; an answer's first MiB is kept.
///
/// Any thread may call all but stop(), which its owner calls; others may hold it longer.
class AskedServer {
 public:
  static constexpr int kFailuresMax = 3;
  static constexpr Duration kPause = std::chrono::seconds(1);

  struct Config {
    std::string thread;  ///< its name
    std::string url;     ///< http://host:port, without a slash behind it
    std::string log_target;
    std::string away;  ///< what the log says at A2
    size_t open_max = 0;
  };
  struct Answer {
    int status = 0;
    std::string body;
  };
  struct Question {
    std::string method = "POST";
    std::string path;
    std::string body;
    Duration timeout{};
    /// Null: there is no answer. Whether it was a good one.
    std::move_only_function<bool(const Answer*)> on_answer;
  };

  /// kIo when the system gives no descriptor. `clock` outlives it.
  static Result<std::shared_ptr<AskedServer>> start(Config config, const Clock& clock);

  virtual ~AskedServer() = default;
  virtual bool paused() const = 0;
  /// False: A3, or it was stopped; the question is as it was.
  virtual bool ask(Question&& question) = 0;
  /// Ends what is open. Not on the thread.
  virtual void stop() = 0;
};

/// "http://host:port/" → "http://host:port"; empty: it is no HTTP URL.
std::string base_url(std::string_view url);

}  // namespace stator::frontend
