// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/result.h"

namespace stator::app {

/// Upper bounds as NVIDIA Dynamo makes them of DYN_METRICS_<NAME>_{MIN,MAX,COUNT}: 0, then the
/// points i / (count − 1), i ≥ 1, of an exponential curve from `min` to `max`, rounded to two
/// significant digits.
///
///   make_bounds(1, 512, 10)  →  0, 2, 4, 8, 16, 32, 64, 130, 260, 510
std::vector<double> make_bounds(double min, double max, uint32_t count);

/// Gives histograms of the frontend other buckets, before anything is counted. `text`:
/// NAME=MIN:MAX:COUNT with commas between; NAME is request_duration, time_to_first_token (ttft),
/// inter_token_latency (itl), input_sequence, output_sequence, cached_tokens or embedding_latency.
/// Dynamo's variables count where the text names nothing. kInvalidArgument names what is wrong.
Status set_histogram_buckets(std::string_view text, const std::string& prefix, Metrics& metrics);

}  // namespace stator::app
