// Low-rank adapters added to frozen weights: y = W x + scale * B A x, with A [rank, in] and B [out, rank] (LoRA, Hu et
// al. 2021).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/modules.h"

namespace automodel::arch {

/// Initial values of A. B starts at zero, so that training starts from the unmodified model.
enum class AdapterStart : std::uint8_t {
  kXavier,   ///< normal, variance 2 / (in + rank)
  kKaiming,  ///< uniform in +-1 / sqrt(in), as torch.nn.Linear
};

/// Quantised frozen weights in bitsandbytes' formats (QLoRA, Dettmers et al. 2023).
struct QuantizedBase {
  int bits = 4;               ///< 4: nf4, 8: int8
  bool small_scales = false;  ///< nf4: scales quantised to 8 bits (double quantisation)
  bool operator==(const QuantizedBase&) const = default;
};

/// Elements of W x + scale B A x that the gradients of magnitudes are made from at one time, 16 MiB in float32: of 256
/// rows of a result of 16,384.
inline constexpr std::int64_t kMagnitudeProducts = std::int64_t{1} << 22;

struct AdapterSpec {
  int rank = 8;
  int expert_rank = 8;  ///< rank of adapters on experts
  double alpha = 32;
  double dropout = 0;          ///< dropout rate in training; kept elements are scaled by 1 / (1 - rate)
  bool dropout_first = false;  ///< dropout on the adapter's input; else on its output
  bool magnitudes = false;     ///< DoRA: the norm of each row of W + scale * B A is a separate trained parameter
  AdapterStart start = AdapterStart::kXavier;
  bool transposed = false;                 ///< the weights are stored [in, out]: GPT-2's
  std::optional<QuantizedBase> base = {};  ///< empty: frozen weights are kept in the compute dtype
  std::vector<std::string> weights = {};   ///< FQNs of the adapted weights, in the model's order

  int rank_of(const Parameter& weight) const { return weight.is_expert() ? expert_rank : rank; }
  double scale(bool expert = false) const { return alpha / (expert ? expert_rank : rank); }
};

/// Whether this is the weight of a linear module other than routers and routed experts; those of vision towers count.
bool is_linear_weight(const Parameter& parameter);
/// Whether bitsandbytes would quantise the weight in transformers: all linear modules except the head. GPT-2's
/// transposed weights and those of vision towers are not quantised here.
bool can_be_quantized(const Parameter& parameter);
/// "model.layers.0.mlp.up_proj.lora_A.weight" for "model.layers.0.mlp.up_proj.weight"; `matrix` is A or B.
std::string adapter_matrix(std::string_view weight, char matrix);
/// "model.layers.0.mlp.up_proj.lora_magnitude_vector".
std::string adapter_magnitudes(std::string_view weight);
/// Whether an adapter parameter is indexed by the module's output dimension: B and the magnitudes.
bool is_last_matrix(const Parameter& adapter);
bool is_magnitudes(const Parameter& adapter);
/// Input and output width of a linear module.
struct LinearSizes {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
LinearSizes linear_sizes(const Parameter& weight);

/// `parameters` marked as frozen, plus the trained adapter parameters: a layer's adapters follow the layer's
/// parameters, those of a vision tower the tower's, and those of the head come last. Of these, all A's come first.
std::vector<Parameter> with_adapters(std::vector<Parameter> parameters, const AdapterSpec& adapters);

}  // namespace automodel::arch
