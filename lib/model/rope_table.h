// Cosines and sines of rotary embeddings, for every kind in Hugging Face configs.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/model_spec.h"
#include "arch/rope.h"

namespace automodel::model {

/// Inverse frequencies [rotary_dim / 2], and the factor of cosines and sines, for sequences of `length` tokens.
/// Formulas: Hugging Face transformers' rope utilities (linear; NTK-aware dynamic; llama3; YaRN, Peng et al. 2023;
/// LongRoPE, Ding et al. 2024).
struct Frequencies {
  std::vector<float> inverse = {};
  double scaling = 1.0;
};
Frequencies frequencies(const arch::Rope& rope, int max_positions, std::int64_t length);

/// Equivalence class of a sequence length: lengths of one class have the same frequencies.
std::int64_t length_class(const arch::Rope& rope, int max_positions, std::int64_t length);

/// A rotation that differs from token to token: rows of cosines and sines [batch * tokens, rotary_dim/2], and the row
/// of each token [batch, tokens].
struct PlacedAngles {
  at::Tensor cos, sin, places;
};

/// Tables [positions, rotary_dim/2], computed once per class of lengths.
class RopeTable {
 public:
  RopeTable(arch::Rope rope, int max_positions, at::ScalarType type, at::Device device);
  struct Angles {
    at::Tensor cos, sin;
  };
  /// Tables that cover at least positions 0 .. length - 1.
  Angles angles(std::int64_t length);
  /// M-RoPE (Qwen2-VL, Wang et al. 2024): each frequency rotates by one of a token's places, by the sections of
  /// arch::Rope. `axes` int64 [3, batch, tokens], all below `length`.
  PlacedAngles placed(const at::Tensor& axes, std::int64_t length);
  /// Of the last channels of heads of `width` channels (DeepSeek V4): the first ones have an angle of 0, so that one
  /// pass rotates whole heads. Layers share them: at 8,192 positions and 512 channels each of the three has 16 MB.
  struct Trailing {
    at::Tensor cos, sin;
    at::Tensor opposite;  ///< sin of the opposite angle
  };
  Trailing trailing(std::int64_t length, std::int64_t width);
  int width() const { return rope_.rotary_dim; }
  bool interleaved() const { return rope_.interleaved; }

 private:
  arch::Rope rope_;
  int max_positions_;
  at::ScalarType type_;
  at::Device device_;
  std::vector<Angles> replaced_ = {};         // captured work may read them
  std::map<std::int64_t, Angles> made_ = {};  // by length_class()
  struct Padded {
    at::Tensor of = {};  ///< the cosines that it was made of
    Trailing angles = {};
  };
  std::map<std::int64_t, Padded> padded_ = {};  // by width
};

/// `q` [batch, tokens, heads, width] times 1 + query_growth ln(1 + floor(position / original context)): Llama 4's
/// scaling of queries, which Ministral 3 and Mistral 4 have too.
at::Tensor grown(const at::Tensor& q, const arch::ModelSpec& spec, const at::Tensor& positions);

}  // namespace automodel::model
