// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "stator/core/result.h"
#include "stator/perf/linear_timing.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// The timing model that a text names: a kind, then its parameters, e.g.
///
///   polynomial                                    Dynamo's calibration
///   polynomial:p1=0.02,d0=6                       other coefficients, PolynomialCoefficients
///   linear:step_us=2000,prefill_token_us=20       the rest as in `linear`
///   roofline:gpu=h100,model=PATH,tp=2             from the model's config.json
///   table:gpu=h200,model=PATH,data=DIR,backend=vllm/0.24.0   AIConfigurator's measurements
///
/// docs/reference/simulation.md lists all of them. kInvalidArgument names what is wrong with it.
Result<std::unique_ptr<TimingModel>> make_timing(std::string_view spec,
                                                 const LinearCoefficients& linear = {});

}  // namespace stator::perf
