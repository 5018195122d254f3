// The parts of a decoder layer. The names of a layer's weights and the model's spec determine which parts it has.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "arch/adapters.h"
#include "arch/layout.h"
#include "arch/model_spec.h"
#include "model/key_value_cache.h"
#include "model/loss_parts.h"
#include "model/rope_table.h"
#include "model/router_loads.h"
#include "model/router_statistics.h"
#include "model/seams.h"
#include "model/vision_tower.h"
#include "model/weights.h"
#include "ops/documents.h"
#include "ops/kernels/kernels.h"

namespace automodel::model {

struct TokenChoices;

/// Which keys a query sees: earlier ones, within the window, and the others of its picture. Undefined: not the latter.
struct PictureMasks {
  at::Tensor whole, window;
};

/// Keys and values of a layer, as attention takes them: [batch, tokens, heads, width].
struct LentKeys {
  at::Tensor k, v;
};

/// The label of positions that do not count: batches have no other, whatever loss_fn.ignore_index is.
inline constexpr std::int64_t kNoLabel = -100;

/// One microbatch as a stage sees it: int64 tensors [batch, tokens], this rank's part of the sequence.
struct Microbatch {
  at::Tensor ids = {};
  at::Tensor labels = {};  ///< labels[t] is the token that position t predicts; kNoLabel: not counted
  at::Tensor positions = {};
  at::Tensor segments = {};  ///< [batch, length]: number of each token's packed document; or undefined
  /// The segments as ranges known to the host; null without segments, or if a document is not contiguous.
  std::shared_ptr<const ops::Documents> documents = {};
  std::int64_t length = 0;        ///< tokens of the whole sequence
  std::int64_t extent = 0;        ///< one past the largest position of any token of the microbatch; 0: `length`
  std::int64_t label_tokens = 0;  ///< label tokens in the whole sequences
  PictureValues pictures = {};    ///< pixels on the first stage only
  /// M-RoPE, where there are pictures: place of each token by time, row and column [3, batch, tokens]; else undefined.
  at::Tensor axes = {};
  /// Where a picture's tokens see each other (Gemma): number of each token's picture, 0 for text [batch, tokens];
  /// else undefined.
  at::Tensor pictures_at = {};
  /// What each query sees then, bool [batch, tokens, tokens], in layers with a window and without; set by the stage.
  std::shared_ptr<const PictureMasks> masks = {};
  /// The rotation that follows from them, of a stage's table; set by the stage.
  std::shared_ptr<const PlacedAngles> placed = {};
  /// Where a layer's keys and values serve later layers: to be filled by the layer that makes them, read by the others;
  /// set by the stage for one layer.
  std::shared_ptr<LentKeys> lent = {};
  at::Tensor real = {};                             ///< bool, false for padding; undefined: no padding
  std::shared_ptr<RouterStatistics> routers = {};   ///< null where there is no auxiliary loss
  std::shared_ptr<RouterLoads> loads = {};          ///< null if router biases are not updated
  std::shared_ptr<TokenChoices> choices = {};       ///< created by the stage if attention is limited to chosen tokens
  std::shared_ptr<LossParts> parts = {};            ///< null unless wanted
  std::shared_ptr<const TeacherHead> teacher = {};  ///< on the last stage of a student; else null
  /// Dropout of the adapters, in training; the draw's tokens correspond to the elements of `ids`.
  std::shared_ptr<const ops::DropoutDraw> draw = {};
  /// In generation: the tokens here follow those in the cache, and their keys and values are appended to it. Only
  /// without a graph, and for models whose stages support it (StageModel::keeps_keys). Null: the tokens are the whole
  /// text.
  std::shared_ptr<KeyValueCache> cache = {};
  /// The length that RoPE tables must cover, which length-dependent kinds of RoPE also use.
  std::int64_t reach() const { return extent > 0 ? extent : length; }
  /// True if the tokens here are the whole sequence, which happens under context parallelism too (generation).
  bool whole() const { return positions.size(1) == length; }
};

/// State shared by the blocks of one stage.
struct BlockContext {
  const arch::ModelSpec& spec;
  const arch::Layout& layout;
  const Weights& weights;
  Seams seams;
  RopeTable* rope;                              ///< for full-attention layers and compressed attention
  RopeTable* sliding_rope;                      ///< for the others; the same object if the model has one
                                                ///< table
  const arch::AdapterSpec* adapters = nullptr;  ///< null: the weights themselves are trained
};

/// The weights of one layer, by part.
class LayerWeights {
 public:
  LayerWeights(const BlockContext& context, int layer)
      : context_(context), kind_(context.layout.kind(layer)), prefix_(context.layout.layer_fqn(layer) + ".") {}
  bool has(arch::Part part) const { return kind_.has(part); }
  /// Fully qualified name of the part's module; "{}" in it stands for an index.
  std::string fqn(arch::Part part) const { return prefix_ + kind_.module(part); }
  /// The part's weight (a module's weight, or the tensor that itself is the part); null if there is none here.
  ops::Parameter* weight(arch::Part part) const;
  ops::Parameter* bias(arch::Part part) const;
  /// One matmul with the weights of these parts, and their biases and adapters. Parts that the layer lacks are skipped;
  /// at least one must exist.
  ops::Linear product(std::initializer_list<arch::Part> parts) const;

 private:
  const BlockContext& context_;
  const arch::LayerLayout& kind_;
  std::string prefix_;
};

/// Attaches the adapters of the layer's weights, if there are any; null: there are none.
void adapt(const Weights& weights, const arch::AdapterSpec* adapters, ops::Linear& layer);
/// The layer with this microbatch's dropout draw.
ops::Linear drawn(const ops::Linear& layer, const Microbatch& microbatch);

/// A block maps y [batch, tokens, width], the normed residual stream, to its contribution to the residual stream, of
/// the same shape.
class Block {
 public:
  virtual ~Block() = default;
  virtual at::Tensor forward(const at::Tensor& y, const Microbatch& microbatch) = 0;
  /// True if the mixer uses Microbatch::cache. If not, every new token needs a pass over the whole text.
  virtual bool keeps_keys() const { return false; }
};

/// The mixer of the layer (ModelSpec::mixer); null if the layer is only a feed-forward block.
std::unique_ptr<Block> make_mixer(const BlockContext& context, int layer);
/// Multi-head attention with grouped keys and values.
std::unique_ptr<Block> make_attention(const BlockContext& context, int layer);
/// Attention whose keys and values come from one low-rank vector per token (ModelSpec::latent).
std::unique_ptr<Block> make_latent_attention(const BlockContext& context, int layer);
/// Attention over a window and compressed entries (ModelSpec::compressed).
std::unique_ptr<Block> make_compressed_attention(const BlockContext& context, int layer);
/// The dense feed-forward block, gated or not.
std::unique_ptr<Block> make_mlp(const BlockContext& context, int layer);
/// The same for the layer's shared experts.
std::unique_ptr<Block> make_shared_experts(const BlockContext& context, int layer);
/// A feed-forward block of experts (ModelSpec::moe).
std::unique_ptr<Block> make_moe(const BlockContext& context, int layer);

/// The gate for an activation without parameters of its own.
ops::Gate gate_of(arch::Activation activation);

/// RMSNorm without a weight, over the last dimension.
at::Tensor unit_rms(const at::Tensor& x, double eps);

/// The same by the kernels of norms, with a constant weight of ones.
class UnitRms {
 public:
  at::Tensor operator()(const at::Tensor& x, double eps);

 private:
  ops::Parameter ones_ = {};
};

/// A frozen factor or limit as `type`: a copy, since the graph may keep it until the backward pass, when the gathered
/// value may be another layer's.
at::Tensor copied(const ops::Parameter& parameter, at::ScalarType type);

/// x [batch, tokens, heads, width] with the first table.width() elements of every head rotated, at the places of the
/// microbatch's tokens. `interleaved`: pairs of neighbours turn.
at::Tensor rotated(const at::Tensor& x, RopeTable& table, const Microbatch& microbatch, bool interleaved);

/// Where a norm stands; its epsilon and how it is scaled may follow from that.
enum class NormPlace : std::uint8_t { kInput, kBranch, kEnd };

/// A norm of the model's kind (ModelSpec::norm), with whichever parameters it has.
class Norm {
 public:
  Norm() = default;
  Norm(const BlockContext& context, const std::string& fqn, NormPlace place = NormPlace::kInput);
  explicit operator bool() const { return present_; }
  at::Tensor operator()(const at::Tensor& x) const;
  /// {x + delta, norm of it}; delta may be undefined.
  std::pair<at::Tensor, at::Tensor> after_adding(const at::Tensor& x, const at::Tensor& delta) const;

 private:
  bool present_ = false;
  arch::NormKind kind_ = arch::NormKind::kRmsNorm;
  ops::Parameter* weight_ = nullptr;
  ops::Parameter* bias_ = nullptr;
  double eps_ = 1e-6;
  double offset_ = 0;
};

}  // namespace automodel::model
