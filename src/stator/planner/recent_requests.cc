// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/recent_requests.h"

#include <algorithm>
#include <cmath>

namespace stator::planner {
namespace {

constexpr double kTokensMax = 1e7;  // of one request
constexpr size_t kStretch = 64;     // requests that stay together: more than a bunch
constexpr size_t kEnough = 32;      // fewer do not tell how requests come
constexpr double kHitMax = 0.95;

}  // namespace

void RecentRequests::sum(const RequestLength& request, double sign) {
  input_ += sign * request.input_tokens;
  output_ += sign * request.output_tokens;
  cached_ += sign * request.cached_tokens;
}

void RecentRequests::insert(const RequestLength& request) {
  // They end in another order than they came in.
  const auto at = std::ranges::upper_bound(kept_, request.at_s, {}, &RequestLength::at_s);
  kept_.insert(at, request);
  sum(request, 1);
  if (kept_.size() > kKeptMax) {
    sum(kept_.front(), -1);
    kept_.pop_front();
  }
}

void RecentRequests::add(const Traffic& t) {
  for (const RequestLength& each : t.sample) {
    if (std::isfinite(each.at_s) && std::isfinite(each.cached_tokens)) {
      insert({.input_tokens = std::clamp(each.input_tokens, 1.0, kTokensMax),
              .output_tokens = std::clamp(each.output_tokens, 1.0, kTokensMax),
              .cached_tokens = std::clamp(each.cached_tokens, 0.0, kTokensMax),
              .at_s = each.at_s});
    }
  }
  if (!kept_.empty()) {
    // A window holds few requests: means of it alone would jump.
    const auto count = static_cast<double>(kept_.size());
    mean_input_ = std::max(1.0, input_ / count);
    mean_output_ = std::max(1.0, output_ / count);
    hit_rate_ = std::clamp(cached_ / std::max(1.0, input_), 0.0, kHitMax);
  } else if (t.input_tokens > 0) {
    mean_input_ = std::min(t.input_tokens, kTokensMax);
    mean_output_ = std::clamp(t.output_tokens, 1.0, kTokensMax);
    hit_rate_ = std::clamp(t.kv_hit_rate, 0.0, kHitMax);
  }
}

std::vector<ModelRequest> RecentRequests::draw_means(double rate, double horizon_s, size_t most,
                                                     Random& random) const {
  std::vector<ModelRequest> out;
  double at = 0;
  while (out.size() < most) {
    at += -std::log(1 - random.uniform()) / rate;
    if (at > horizon_s) {
      break;
    }
    ModelRequest request{.at_s = at, .output_tokens = mean_output_};
    if (kept_.empty()) {
      request.input_tokens =
          std::clamp(mean_input_ * -std::log(1 - random.uniform()), 1.0, kTokensMax);
      request.cached_tokens = request.input_tokens * hit_rate_;
    } else {
      const RequestLength& like = kept_[random.below(kept_.size())];
      request.input_tokens = like.input_tokens;
      request.output_tokens = like.output_tokens;
      request.cached_tokens = like.cached_tokens;
    }
    out.push_back(request);
  }
  return out;
}

std::vector<ModelRequest> RecentRequests::draw(double rate, double horizon_s, size_t most,
                                               Random& random) const {
  if (!(rate > 0)) {
    return {};
  }
  const double span = kept_.empty() ? 0 : kept_.back().at_s - kept_.front().at_s;
  if (kept_.size() < kEnough || !(span > 0) || kept_.front().at_s < 0) {
    return draw_means(rate, horizon_s, most, random);
  }
  const auto count = static_cast<double>(kept_.size());
  const double usual_gap = span / (count - 1), scale = 1 / (rate * usual_gap);
  std::vector<ModelRequest> out;
  double at = -usual_gap * scale * random.uniform();  // now is somewhere between two of them
  while (out.size() < most && at <= horizon_s) {
    size_t index = random.below(kept_.size());
    for (size_t i = 0; i < kStretch && out.size() < most; ++i) {
      at += (index > 0 ? kept_[index].at_s - kept_[index - 1].at_s : usual_gap) * scale;
      if (at > horizon_s) {
        break;
      }
      const RequestLength& like = kept_[index];
      out.push_back({.at_s = std::max(0.0, at),
                     .input_tokens = like.input_tokens,
                     .output_tokens = like.output_tokens,
                     .cached_tokens = like.cached_tokens});
      index = index + 1 < kept_.size() ? index + 1 : 0;
    }
  }
  return out;
}

}  // namespace stator::planner
