// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// What a profile of an engine measured; arrays of one part are equally long.
struct ProfileData {
  std::vector<double> prefill_isl;      ///< tokens of one prompt, ascending
  std::vector<double> prefill_ttft_ms;  ///< until its first token, alone
  std::vector<double> decode_requests;  ///< sequences at once
  std::vector<double> decode_context;   ///< tokens of each
  std::vector<double> decode_itl_ms;
};

/// Least squares with slopes from 0 on: how long a step takes as a sum.
struct ProfileFit {
  double prefill_base_ms = 0, prefill_token_ms = 0, prefill_pair_ms = 0;
  double decode_base_ms = 0, decode_sequence_ms = 0, decode_context_ms = 0;
  double prefill_error_percent = 0, decode_error_percent = 0;  ///< mean, of the points
};
/// kInvalidArgument with fewer than 3 points of a part.
Result<ProfileFit> fit_profile(const ProfileData& data);

/// A step model of measured points: exact where it was measured, interpolated between, and by the
/// fit beyond. Prompts: linear between lengths. Decodes: the fit, and what the nearest points are
/// off from it.
class ProfileTiming final : public TimingModel {
 public:
  static Result<std::unique_ptr<ProfileTiming>> create(ProfileData data);
  /// A folder with prefill_raw_data.json and decode_raw_data.json, in it or in
  /// selected_prefill_interpolation/ and selected_decode_interpolation/ (the reference's profiler
  /// and `stator profile` write them). kNotFound, kInvalidArgument name the file.
  static Result<std::unique_ptr<ProfileTiming>> read(const std::string& folder);

  double prefill_ms(const PassShape& shape) const override;
  double decode_ms(const PassShape& shape) const override;
  bool reads_context() const override { return true; }
  const ProfileFit& fit() const { return fit_; }

 private:
  ProfileTiming(ProfileData data, const ProfileFit& fit) : data_(std::move(data)), fit_(fit) {}
  ProfileData data_;
  ProfileFit fit_;
};

/// The two files' texts. kInvalidArgument names the key.
Result<ProfileData> parse_profile(std::string_view prefill_json, std::string_view decode_json);
inline constexpr size_t kProfilePointsMax = 100'000;

}  // namespace stator::perf
