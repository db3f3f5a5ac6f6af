// SPDX-License-Identifier: Apache-2.0
// What a step costs around the model: planning, sampling, committing, KV events. The model is none: its logits are there already.
//   stator_steps SEQUENCES VOCABULARY TEMPERATURE [STEPS [TOP_K [TOP_P [MIN_P]]]]
// Sequences end after 256 tokens and others begin. Prints microseconds of CPU time per step, median and 99th percentile, by part.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "stator/core/random.h"
#include "stator/engine/core/engine_config.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/cpu/sampler.h"
#include "stator/kv/event_log.h"

namespace {

using namespace stator;
using namespace stator::engine;

double now_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1000;
}

inference::EngineRequest request(uint64_t id, uint32_t vocabulary,
                                 const inference::SamplingParams& sampling) {
  inference::EngineRequest out;
  out.key.request = RequestId(id);
  for (uint32_t i = 0; i < 64; ++i) {
    out.tokens.push_back(static_cast<TokenId>((id * 977 + i) % vocabulary));
  }
  out.stop.max_tokens = 256;
  out.sampling = sampling;
  out.sampling.seed = static_cast<int64_t>(id);
  return out;
}

double percentile(std::vector<double>& values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "stator_steps SEQUENCES VOCABULARY TEMPERATURE [STEPS [TOP_K [TOP_P [MIN_P]]]]\n");
    return 2;
  }
  const auto sequences = static_cast<uint32_t>(std::atoi(argv[1]));
  const auto vocabulary = static_cast<uint32_t>(std::atoi(argv[2]));
  inference::SamplingParams sampling;
  sampling.temperature = static_cast<float>(std::atof(argv[3]));
  sampling.top_k = argc > 5 ? std::atoi(argv[5]) : 0;
  sampling.top_p = argc > 6 ? static_cast<float>(std::atof(argv[6])) : 1.0F;
  sampling.min_p = argc > 7 ? static_cast<float>(std::atof(argv[7])) : 0.0F;
  const int steps = argc > 4 ? std::atoi(argv[4]) : 2000;
  EngineConfig config;
  config.max_num_seqs = sequences;
  config.max_num_batched_tokens = 8192;
  config.total_blocks = sequences * 32 + 512;
  config.waiting_max = sequences * 2;
  Scheduler scheduler(*resolve(std::move(config), 4096));
  kv::EventLog log;
  cpu::Sampler sampler(vocabulary);
  Random random(1);
  std::vector<float> model(vocabulary);
  for (float& logit : model) {
    logit = static_cast<float>(random.below(1 << 20)) / (1 << 17);
  }
  std::vector<float> rows(size_t{sequences} * vocabulary);  // the model's part, not measured
  std::vector<Sampled> sampled;
  std::array<std::vector<double>, 4> times;  // plan, sample, commit, all
  uint64_t next_id = 0;
  for (int step = 0; step < steps; ++step) {
    while (scheduler.running_count() + scheduler.waiting_count() < sequences) {
      (void)scheduler.add(SessionId(1), request(next_id, vocabulary, sampling), TimePoint{});
      ++next_id;
    }
    for (size_t row = 0; row < sequences; ++row) {
      std::ranges::copy(model, rows.begin() + static_cast<ptrdiff_t>(row * vocabulary));
    }
    const double begin = now_us();
    const StepPlan& plan = scheduler.plan(TimePoint{});
    const double planned = now_us();
    sampled.clear();
    sampled.resize(plan.slices.size());
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      const SequenceSlice& slice = plan.slices[i];
      const auto logits = std::span(rows).subspan(i * vocabulary, vocabulary);
      if (sampler.look(logits)) {
        sampled[i].token = sampler
                               .sample({.logits = logits,
                                        .prompt = slice.tokens.first(slice.prompt_tokens),
                                        .output = slice.tokens.subspan(slice.prompt_tokens),
                                        .params = slice.sampling,
                                        .stop = slice.stop,
                                        .key = cpu::draw_key(*slice.sampling, 0, slice.sequence),
                                        .looked_at = true})
                               .token;
      }
    }
    const double drawn = now_us();
    scheduler.commit(sampled);
    log.append(scheduler.take_events());
    const double end = now_us();
    times[0].push_back(planned - begin);
    times[1].push_back(drawn - planned);
    times[2].push_back(end - drawn);
    times[3].push_back(end - begin);
  }
  const std::array<const char*, 4> names = {"plan", "sample", "commit and events", "all"};
  for (size_t i = 0; i < times.size(); ++i) {
    std::printf("%s %.1f (p99 %.1f)%s", names[i], percentile(times[i], 0.5),
                percentile(times[i], 0.99), i + 1 < times.size() ? ", " : " us per step\n");
  }
  return 0;
}
