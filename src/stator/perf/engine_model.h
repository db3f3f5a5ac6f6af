// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/perf/engine_work.h"
#include "stator/perf/model_config.h"
#include "stator/perf/system_spec.h"

namespace stator::perf {

class OperatorDatabase;
struct OperatorCurves;

enum class Backend : uint8_t { kVllm, kSglang, kTrtllm };
/// "vllm", "sglang", "trtllm".
Result<Backend> find_backend(std::string_view name);
std::string_view name_of(Backend backend);

/// How one engine is spread over GPUs. tp · dp = moe_tp · moe_ep where there are experts.
struct Parallelism {
  uint32_t tp = 1;  ///< ranks that share each attention and dense layer
  uint32_t pp = 1;  ///< stages
  uint32_t dp = 1;  ///< ranks of attention with requests of their own
  uint32_t moe_tp = 1;
  uint32_t moe_ep = 1;
  uint32_t gpus() const { return tp * pp * dp; }
  friend auto operator<=>(const Parallelism&, const Parallelism&) = default;
};

struct EngineSpec {
  ModelConfig model;
  SystemSpec system;
  Backend backend = Backend::kVllm;
  Parallelism parallel;
  QuantMode weights;  ///< of attention and dense layers
  QuantMode experts;
  QuantMode kv;
};

/// The work of a pass by what limits it, each at the speed of light: milliseconds, except for
/// counts. kRoof is the longer of arithmetic and traffic of each operation, kShadow the shorter.
enum class Part : uint8_t {
  kGemmRoof,
  kGemmShadow,
  kExpertRoof,
  kExpertShadow,
  kAttention,
  kLink,
  kCollectives,  ///< how many
  kSmall,
  kBlocks,  ///< layers, or halves of layers
  kStep,    ///< 1 for any work
  kSequences,
};
inline constexpr size_t kParts = 11;
using PassParts = std::array<double, kParts>;

/// How much longer real kernels take than light, or than when they were measured alone: what
/// multiplies PassParts.
struct Efficiency {
  PassParts decode{};       ///< of a pass of decodes alone
  PassParts context{};      ///< of what prompts add to a pass
  double first_token = 1;   ///< what clients wait for the first token, over what passes explain
  double decode_power = 0;  ///< of decodes in a pass over kDecodesUsual: multiplies `decode`
};
inline constexpr double kDecodesUsual = 20;
/// What parts are counted in: at the speed of light, or as kernels were measured one by one.
enum class PartsOf : uint8_t { kLight, kMeasured };
/// Fitted to published measurements of engines (bench/planning/fit_efficiency.py), by backend,
/// GPU, kind of model and precision, shape of model, and how the engine is cut.
Efficiency find_efficiency(const EngineSpec& spec, PartsOf parts = PartsOf::kLight);
/// "moe:fp8": the kind of model and the precision of its experts, as those fits name it.
std::string family_of(const EngineSpec& spec);
/// "61x7168x128": layers, width, heads.
std::string shape_of(const ModelConfig& model);

enum class Provenance : uint8_t { kMeasured, kInterpolated, kExtrapolated, kRoofline };
std::string_view name_of(Provenance provenance);

/// One engine's passes. Immutable, so threads share it. step_ms() takes well below a microsecond
/// without a database.
class EngineModel {
 public:
  /// kInvalidArgument if the model cannot be cut that way. `database` may be null.
  static Result<EngineModel> create(
      const EngineSpec& spec, const std::shared_ptr<const OperatorDatabase>& database = nullptr);

  /// At the speed of light; with a database, as its kernels were measured.
  PassParts parts(const EnginePass& pass) const;
  PartsOf parts_of() const { return curves_ == nullptr ? PartsOf::kLight : PartsOf::kMeasured; }
  /// Milliseconds of one pass, of the slowest rank, from begin to end of the pipeline.
  double step_ms(const EnginePass& pass) const;

  double weight_bytes() const { return weight_bytes_; }
  double kv_bytes_per_token() const { return kv_bytes_per_token_; }
  /// Of one sequence on a rank, beside what grows with its tokens: windows, states.
  const std::vector<KvWindow>& windows() const { return windows_; }
  double state_bytes() const { return state_bytes_; }
  const EngineSpec& spec() const { return spec_; }
  const Efficiency& efficiency() const { return efficiency_; }
  void set_efficiency(const Efficiency& efficiency) { efficiency_ = efficiency; }
  /// The worst source of any operator: kRoofline without a database.
  Provenance provenance() const { return provenance_; }
  /// One line per operator that the database does not cover.
  const std::vector<std::string>& gaps() const { return gaps_; }

 private:
  explicit EngineModel(EngineSpec spec) : spec_(std::move(spec)) {}
  Status build();
  void add_attention(const LayerGroup& group);
  void add_indexer(const LayerGroup& group, double inputs);
  void add_mla(const LayerGroup& group);
  void add_linear(const LayerGroup& group);
  void add_ffn(const LayerGroup& group);
  void add_product(double n, double k, double count, const QuantMode& mode);
  void add_common();
  void attach(const OperatorDatabase& database);
  PassParts light_parts(const EnginePass& pass) const;
  PassParts measured_parts(const EnginePass& pass) const;
  double measured_attention_ms(const EnginePass& pass) const;
  void add_expert_parts(double tokens, PassParts& parts) const;
  void add_attention_parts(const EnginePass& pass, PassParts& parts) const;
  void add_product_parts(double rows, double heads, PassParts& parts) const;

  EngineSpec spec_;
  Efficiency efficiency_;
  std::shared_ptr<const OperatorCurves> curves_;  // null: roofline alone; shared by copies
  std::vector<FixedProduct> products_;
  std::vector<AttentionWork> attentions_;
  FixedProduct head_;
  double moe_layers_ = 0, blocks_ = 0;
  double small_per_token_ = 0;  // bytes
  double all_reduces_ = 0, exchanges_ = 0;
  double weight_bytes_ = 0, kv_bytes_per_token_ = 0, state_bytes_ = 0;
  std::vector<KvWindow> windows_;
  Provenance provenance_ = Provenance::kRoofline;
  std::vector<std::string> gaps_;
};

}  // namespace stator::perf
