// Low-rank adapters in the PEFT library's format: adapter_config.json and adapter_model.safetensors, with tensors named
// base_model.model.MODULE.lora_A.weight [r, in], ...lora_B.weight [out, r] and, for DoRA, ...lora_magnitude_vector
// [out].
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "checkpoint/format/tensor_folder.h"

namespace automodel::checkpoint {

struct AdapterConfig {
  std::string base_model = {};   ///< base_model_name_or_path
  int rank = 8;                  ///< r
  int expert_rank = 0;           ///< rank for experts (rank_pattern); 0: same as `rank`
  double alpha = 8;              ///< lora_alpha
  double dropout = 0;            ///< lora_dropout
  bool rank_stabilized = false;  ///< use_rslora: the scale is alpha / sqrt(r)
  bool magnitudes = false;       ///< use_dora
  bool transposed = false;       ///< fan_in_fan_out: the base weights are [in, out] (GPT-2)
  std::vector<std::string> target_modules = {};
  /// The scale of an adapter of this rank.
  double scale(std::int64_t of_rank) const;
  bool has_rank(std::int64_t of_rank) const { return of_rank == rank || (expert_rank > 0 && of_rank == expert_rank); }
};

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterStem = "adapter_model";

/// In the format that the PEFT library writes.
std::string to_json(const AdapterConfig& config);
/// Problems (reported for `file`): adapter-config (invalid JSON, another peft_type, or per-module ranks, which are not
/// supported).
std::optional<AdapterConfig> parse_adapter_config(std::string_view text, std::string_view file, Diagnostics& problems);

/// Reads the config of an adapter folder. Problems: those of read_file, adapter-config.
std::optional<AdapterConfig> read_adapter_config(const std::filesystem::path& folder, Diagnostics& problems);

/// The modules whose adapters a folder holds: "model.layers.0.self_attn.q_proj". Problems: those of TensorFolder::open,
/// adapter-shape (a tensor that is not part of an adapter).
std::vector<std::string> adapted_modules(const std::filesystem::path& folder, Diagnostics& problems);

/// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" for "model.layers.0.self_attn.q_proj.weight";
/// `matrix` is 'A' or 'B'.
std::string adapter_name(std::string_view weight, char matrix);

/// The same from a matrix's name in the model: "model.layers.0.self_attn.q_proj.lora_A.weight".
std::string stored_adapter_name(std::string_view matrix);

/// The adapters of a folder.
class Adapters {
 public:
  /// Problems: those of TensorFolder and parse_adapter_config; adapter-shape.
  static std::optional<Adapters> open(const std::filesystem::path& folder, Diagnostics& problems);
  const AdapterConfig& config() const { return config_; }
  /// Where a stored tensor holds a weight of `shape`, as in WeightPlace.
  struct Part {
    std::string stored;
    std::vector<std::int64_t> shape;
    std::int64_t first = 0;
    std::int64_t stride = 0;
  };
  /// Looks for the weights that have adapters; returns those that `find` does not know. Called once, before the rest.
  /// Throws adapter-shape where a weight has another shape than its adapter.
  std::vector<std::string> place(const std::function<std::optional<Part>(const std::string& weight)>& find);
  /// Whether a stored tensor holds weights that have adapters; and DoRA adapters: after add_to, accumulate norms with
  /// add_squares, then apply scale_rows. All three take elements [first, first + values.size()) of the tensor.
  bool has(const std::string& stored) const { return placed_.contains(stored); }
  bool has_magnitudes(const std::string& stored) const;
  /// Adds the squares to `squares`, one sum per output feature.
  void add_squares(const std::string& stored, std::int64_t first, std::span<const float> values,
                   std::vector<double>& squares) const;
  /// Rescales so that each output feature's norm is its DoRA magnitude; `squares` from add_squares.
  void scale_rows(const std::string& stored, std::int64_t first, const std::vector<double>& squares,
                  std::span<float> values) const;
  /// Adds scale * B A.
  void add_to(const std::string& stored, std::int64_t first, std::span<float> values) const;

 private:
  struct Matrices {
    std::vector<float> a, b;
    std::vector<float> magnitudes = {};  ///< DoRA only
    std::int64_t rank = 0, in = 0, out = 0;
  };
  struct Placed {
    const Matrices* matrices;
    bool transposed;  ///< stored as [in, out]
    std::int64_t first, stride;
  };
  void add_product(const Matrices& m, bool transposed, std::int64_t first, std::span<float> values) const;

  AdapterConfig config_;
  std::map<std::string, Matrices> matrices_;           ///< keyed by the weight's name
  std::map<std::string, std::vector<Placed>> placed_;  ///< keyed by the stored tensor's name
};

}  // namespace automodel::checkpoint
