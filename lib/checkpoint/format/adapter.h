// Low-rank adapters in the PEFT library's format: adapter_config.json and adapter_model.safetensors, with tensors named
// base_model.model.MODULE.lora_A.weight [r, in], ...lora_B.weight [out, r] and, for DoRA, ...lora_magnitude_vector
// [out].
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
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
  /// Names of weights that have an adapter but are not in `names`: the adapter belongs to another model.
  std::vector<std::string> strangers(const std::vector<std::string>& names) const;
  /// The weights' names become those that `stored_name` gives for them, such as another spelling in the base's folder.
  void rename(const std::function<std::string(const std::string&)>& stored_name);
  bool has(const std::string& weight) const { return matrices_.contains(weight); }
  /// Whether the weight has a DoRA adapter: after add_to, accumulate norms with add_squares, then apply scale_rows.
  bool has_magnitudes(const std::string& weight) const { return !matrices_.at(weight).magnitudes.empty(); }
  /// Adds the squares of elements [first, first + values.size()) to `squares`, one sum per output feature.
  void add_squares(const std::string& weight, const std::vector<std::int64_t>& shape, std::int64_t first,
                   const std::vector<float>& values, std::vector<double>& squares) const;
  /// Rescales these elements so that each output feature's norm is its DoRA magnitude; `squares` from add_squares.
  void scale_rows(const std::string& weight, const std::vector<std::int64_t>& shape, std::int64_t first,
                  const std::vector<double>& squares, std::vector<float>& values) const;
  /// Adds scale * B A to elements [first, first + values.size()) of a row-major weight of this shape.
  void add_to(const std::string& weight, const std::vector<std::int64_t>& shape, std::int64_t first,
              std::vector<float>& values) const;

 private:
  struct Matrices {
    std::vector<float> a, b;
    std::vector<float> magnitudes = {};  ///< DoRA only
    std::int64_t rank = 0, in = 0, out = 0;
  };
  bool is_transposed(const std::string& weight) const;

  AdapterConfig config_;
  std::map<std::string, Matrices> matrices_;  ///< keyed by the weight's name
};

}  // namespace automodel::checkpoint
