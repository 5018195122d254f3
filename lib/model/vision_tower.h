// Vision towers: from pixels to the rows that replace a picture's placeholder tokens.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/adapters.h"
#include "arch/vision.h"
#include "model/weights.h"
#include "ops/linear.h"

namespace automodel::model {

/// The pictures of a microbatch, in the order of their placeholders.
struct PictureValues {
  /// Pictures of one size: [pictures, 3, height, width]. Of any size: [patches of all pictures, 3 * patch * patch], in
  /// blocks of merge x merge patches, block by block. Undefined: no picture.
  at::Tensor pixels = {};
  std::vector<arch::PatchGrid> grids = {};  ///< of any size: each picture's
  /// Instead of pixels, what the cached part of the tower gave: [rows, width], PictureRows side by side if it is all.
  at::Tensor features = {};
  std::int64_t placeholders = 0;  ///< of the pictures, in the whole sequences
  bool any() const { return pixels.defined() || features.defined(); }
  at::Tensor before = {};  ///< of each token here, the number of placeholders before it: int64 [batch, tokens]
};

/// What a tower adds to the decoder.
struct PictureRows {
  at::Tensor rows;                    ///< [placeholders, width of the decoder], in their order
  std::vector<at::Tensor> deep = {};  ///< the same shape, the j-th to be added behind decoder layer j

  /// As PictureValues::features, and back.
  at::Tensor joined() const;
  static PictureRows apart(const at::Tensor& joined, std::int64_t width);
};

/// A tower's weights, and the adapters among them; null: there are none.
struct TowerWeights {
  const Weights& all;
  const arch::AdapterSpec* adapters = nullptr;
};

class VisionTower {
 public:
  virtual ~VisionTower() = default;
  VisionTower(const VisionTower&) = delete;
  VisionTower& operator=(const VisionTower&) = delete;

  /// Units of the weights and of their adapters, innermost last.
  const std::vector<int>& units() const { return units_; }
  /// `anchor` (ops/graph.h) makes the result part of the graph; what is frozen up to the first trained weight is not
  /// recorded. A tower without its projector's weights gives what the projector takes, one with nothing else takes
  /// that from PictureValues::features.
  virtual PictureRows forward(const PictureValues& pictures, const at::Tensor& anchor) const = 0;

 protected:
  /// What `weights` refers to must outlive the tower.
  explicit VisionTower(const TowerWeights& weights);

  struct Norm {
    ops::Parameter* weight = nullptr;
    ops::Parameter* bias = nullptr;  ///< null: RMSNorm
  };
  /// Of most towers. `up` of a gated MLP: gate and up.
  struct PreNormLayer {
    Norm before_attention, before_mlp;
    ops::Linear qkv, out, up, down;
  };
  ops::Parameter* named(const std::string& name) const;
  Norm norm(const std::string& name) const;
  /// One matmul with the weights of these modules, and their biases and adapters.
  ops::Linear linear(const std::vector<std::string>& names) const;
  /// The layer below `prefix`, with CLIP's names.
  PreNormLayer clip_layer(const std::string& prefix) const;
  /// Whether there are weights of the module: not where a part of the tower is cached.
  bool has(std::string_view module) const { return has(module, false); }
  /// Whether a weight of the module is trained, or an adapter.
  bool trained(std::string_view module) const { return has(module, true); }

 private:
  bool has(std::string_view module, bool trained) const;

  TowerWeights weights_;
  std::vector<int> units_ = {};
};

/// A tower and the projector behind it, which are frozen apart.
class ProjectedTower : public VisionTower {
 public:
  PictureRows forward(const PictureValues& pictures, const at::Tensor& anchor) const override;

 protected:
  /// Names of their modules.
  explicit ProjectedTower(const TowerWeights& weights,
                          std::initializer_list<std::string_view> projector = {arch::kProjectorModule},
                          std::string_view tower = arch::kTowerModule);
  bool has_tower() const { return has_tower_; }
  bool has_projector() const { return has_projector_; }
  virtual at::Tensor encode(const PictureValues& pictures, const at::Tensor& anchor) const = 0;
  /// [rows of the decoder, its width] from what encode() returns.
  virtual at::Tensor project(const at::Tensor& x, const at::Tensor& anchor) const = 0;

 private:
  bool has_tower_, has_projector_, tower_trained_, projector_trained_;
};

/// CLIP and SigLIP, with LLaVA's or Gemma 3's projector.
std::unique_ptr<const VisionTower> make_vit_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
/// Qwen2.5-VL, Qwen3-VL, Qwen3.5.
std::unique_ptr<const VisionTower> make_qwen_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
/// Pixtral, with Mistral 3's projector.
std::unique_ptr<const VisionTower> make_pixtral_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
/// Gemma 4's, with its embedder.
std::unique_ptr<const VisionTower> make_gemma4_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
/// Muse-Glimmer's, with its adapter and projection.
std::unique_ptr<const VisionTower> make_muse_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
/// MiniMax-M3's, with its projector.
std::unique_ptr<const VisionTower> make_minimax_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
/// Step 3.7's, with its projector.
std::unique_ptr<const VisionTower> make_step_tower(const arch::VisionSpec& spec, const TowerWeights& weights);
std::unique_ptr<const VisionTower> make_vision_tower(const arch::VisionSpec& spec, const TowerWeights& weights);

}  // namespace automodel::model
