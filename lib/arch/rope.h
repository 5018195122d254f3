// Rotary position embeddings as data: the kinds used by Hugging Face models and their settings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace automodel::arch {

enum class RopeKind : std::uint8_t { kNone, kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };

/// Inverse frequencies are theta^(-2i/d) over the first `rotary_dim` dimensions of a head, then modified according to
/// `kind`. Fields that a kind does not use keep their defaults. Formulas follow transformers' RoPE utilities.
struct Rope {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  bool interleaved = false;                     ///< pairs are (0, 1), (2, 3), ...; else (i, i + rotary_dim / 2)
  int rotary_dim = 0;                           ///< head_dim x partial_rotary_factor; MLA: the rotary part of a head
  double share = 1.0;                           ///< proportional: of the frequencies; the others are 0
  double factor = 1.0;                          ///< linear, dynamic, llama3, yarn, longrope: context extension factor
  int original_max_positions = 0;               ///< llama3, yarn, longrope: context length before extension
  double low_freq_factor = 1.0;                 ///< llama3
  double high_freq_factor = 4.0;                ///< llama3
  double beta_fast = 32.0;                      ///< yarn
  double beta_slow = 1.0;                       ///< yarn
  bool truncate = true;                         ///< yarn: round the correction range to whole dimensions
  std::optional<double> mscale = {};            ///< yarn, DeepSeek
  std::optional<double> mscale_all_dim = {};    ///< yarn, DeepSeek
  std::optional<double> attention_factor = {};  ///< yarn, longrope: if given rather than computed
  /// LongRoPE, Phi-3.5-MoE: for sequences up to the original length.
  std::optional<double> short_attention_factor = {};
  /// M-RoPE: how many frequencies rotate by the time, row and column of a picture's token; all 0: by its place alone.
  std::array<int, 3> sections = {};
  bool sections_alternate = false;        ///< row and column take every third frequency from the front; else blocks
  std::vector<double> short_factor = {};  ///< longrope, rotary_dim / 2 values
  std::vector<double> long_factor = {};   ///< longrope, rotary_dim / 2 values
  bool operator==(const Rope&) const = default;
};

}  // namespace automodel::arch
