// The modules of one pipeline stage: any of embedding, layers, final norm and head.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "arch/adapters.h"
#include "arch/layout.h"
#include "arch/model_spec.h"
#include "model/blocks.h"
#include "model/vision_tower.h"
#include "model/weights.h"
#include "ops/factor.h"
#include "ops/offload.h"
#include "plan/values/execution.h"

namespace automodel::model {

class HyperConnection;

/// The modules of the model that a stage has.
struct StageModules {
  bool embeddings = false;
  std::vector<int> layers = {};
  bool norm = false;
  bool head = false;
};

/// Callbacks for sharding while a stage runs; units are indices of Weights::units().
class UnitObserver {
 public:
  virtual ~UnitObserver() = default;
  virtual void before_forward(int unit) = 0;
  virtual void after_forward(int unit) = 0;
  virtual void before_backward(int unit) = 0;
  virtual void after_backward(int unit) = 0;
  /// Called if gradients of the unit's weights will be accumulated during the current forward pass.
  virtual void before_gradients(int unit) = 0;
};

struct StageOptions {
  at::ScalarType type = at::kFloat;  ///< type of activations
  at::Device device = at::kCPU;
  Seams seams = {};
  PlacementRule placement = {};  ///< empty: every weight is whole
  plan::Execution execution = {};
  const arch::AdapterSpec* adapters = nullptr;    ///< must outlive the stage; null: the weights themselves are
                                                  ///< trained
  const std::set<std::string>* frozen = nullptr;  ///< names of parameters that are not trained; must outlive the
                                                  ///< stage
  bool cast_inputs = true;                        ///< convert input from another stage to `type`
  std::optional<at::ScalarType> output = {};      ///< type that logits are converted to before the loss
  bool whole_stage = false;                       ///< the weights of all layers form one unit
  ops::ActivationOffload* offload = nullptr;      ///< null: activations stay where they are
};

/// Options of one forward pass.
struct ForwardOptions {
  /// Factor of the loss, included in its gradient: 1 / label tokens.
  ops::Factor loss_scale = 1;
  ops::Factor seed = 1;  ///< the gradient of the loss that the backward pass will start from
  plan::Recompute recompute = plan::Recompute::kNone;
};

class StageModel {
 public:
  /// `layout` describes the whole model. Weights have only names and shapes until storage is bound to them.
  StageModel(const arch::ModelSpec& spec, const arch::Layout& layout, StageModules modules, StageOptions options);
  ~StageModel();
  StageModel(const StageModel&) = delete;
  StageModel& operator=(const StageModel&) = delete;

  Weights& weights() { return weights_; }
  const StageModules& modules() const { return modules_; }
  /// The head's weight; null if the stage has no head.
  ops::Parameter* head() { return modules_.head ? head_ : nullptr; }
  void set_observer(UnitObserver* observer) { observer_ = observer; }

  /// New statistics for the auxiliary loss of `microbatch`, to be stored in it; null if the model has no auxiliary
  /// loss.
  std::shared_ptr<RouterStatistics> statistics(const Microbatch& microbatch, const ForwardOptions& options) const;
  /// New loads for another microbatch of the step, to be stored in it; null unless loads are counted.
  std::shared_ptr<RouterLoads> next_loads() {
    return options_.execution.experts.router_bias_step > 0 ? loads_.next() : nullptr;
  }
  /// Loads of the microbatches since the last clear().
  StepLoads& loads() { return loads_; }
  /// `hidden` [batch, tokens, width] comes from the previous stage; undefined if this one has the embedding. It is a
  /// multiple as wide if rows of pictures come along (leave()), or if the stream is several (arch::HyperConnections).
  /// Returns the hidden states or, if this stage has the head, the loss: the sum of token losses times loss_scale, one
  /// float64 element.
  at::Tensor forward(const Microbatch& microbatch, const at::Tensor& hidden, const ForwardOptions& options);
  /// Returns logits [batch, tokens, vocabulary] instead of the loss, or with `only` [batch, 1, vocabulary] of that
  /// token.
  at::Tensor logits(const Microbatch& microbatch, const at::Tensor& hidden, std::optional<std::int64_t> only = {});
  /// On the last stage: what the head multiplies, with the tokens of all tensor-parallel ranks, [batch, tokens, width].
  at::Tensor head_inputs(const Microbatch& microbatch, const at::Tensor& hidden);
  /// Runs `use` while the head's weight is available. Without a graph.
  void with_head(const std::function<void()>& use);
  /// Logits of rows [n, width] of head_inputs(), for the vocabulary entries of this rank; within with_head(), without a
  /// graph.
  at::Tensor head_scores(const at::Tensor& rows);
  /// Whether every layer supports cached keys and values of earlier tokens (Microbatch::cache).
  bool keeps_keys() const;

 private:
  struct Layer;
  /// The residual stream, in two summands: the sum so far, and the last block's output, which the next norm adds to it.
  struct Stream {
    at::Tensor x, delta;
    /// What is added behind decoder layers (DeepStack): PictureRows::deep, or with the width of the stream from an
    /// earlier stage. Undefined: was added; empty: no pictures.
    std::vector<at::Tensor> deep = {};
    int joined = 0;  ///< so many were added, or would have been if there were pictures
    /// Of the pictures' placeholders in the flattened tokens; undefined: `deep` is of all tokens.
    at::Tensor places = {};
    std::vector<at::Tensor> inputs = {};  ///< of each layer, [batch, tokens, width]; empty without
    /// Keys and values that later layers use, of full-attention layers and of those with a window; undefined without.
    std::array<LentKeys, 2> lent = {};
  };
  /// The placeholders of a microbatch's pictures.
  struct Placeholders {
    at::Tensor places = {};   ///< of those in the residual stream here, in its flattened tokens; undefined: no pictures
    at::Tensor numbers = {};  ///< of these among all; undefined: they are all
    std::int64_t count = 0;   ///< of all
  };
  Placeholders placeholders(const Microbatch& microbatch) const;
  Stream enter(const Microbatch& microbatch, const at::Tensor& hidden);
  /// Embeddings of token and position, and of pictures in their places, if there are any; behind them
  /// PictureRows::deep. `in`: the anchor.
  std::vector<at::Tensor> embedded(const Microbatch& microbatch, const Placeholders& at, const at::Tensor& in);
  /// The layers' own inputs, from tokens and `x`, their embeddings with pictures in their places.
  at::Tensor layer_inputs(const Microbatch& microbatch, const at::Tensor& x, const at::Tensor& in);
  /// Token embeddings with noise, if enabled.
  at::Tensor noisy(const at::Tensor& x, const Microbatch& microbatch);
  /// Adds the pictures' rows that are meant for this layer.
  void join(Stream& stream, int layer) const;
  /// What the next stage gets: the residual stream and, side by side, the pictures' rows that its layers add.
  at::Tensor leave(const Stream& stream) const;
  Stream run_layers(Stream stream, const Microbatch& microbatch, const ForwardOptions& options);
  std::vector<at::Tensor> run_layer(Layer& layer, const Stream& stream, const Microbatch& microbatch,
                                    const ForwardOptions& options);
  Microbatch prepared(Microbatch microbatch) const;
  at::Tensor head_row_lengths(const at::Tensor& like);
  /// The input of the head's matmul.
  at::Tensor head_input(const Stream& stream);
  at::Tensor head_logits(const Stream& stream, const Microbatch& microbatch);
  std::vector<double> soft_caps() const;
  void set_float8(const arch::Layout& layout);
  void set_quantized();
  at::Tensor head_loss(const Stream& stream, const Microbatch& microbatch, const ForwardOptions& options);
  void sum_statistics(RouterStatistics& routers);
  std::vector<at::Tensor> observed_head(const Stream& stream, const std::function<at::Tensor(const Stream&)>& part);
  /// Runs `part` as unit `unit`, notifying the observer.
  std::vector<at::Tensor> observed(int unit, std::vector<at::Tensor> values,
                                   const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& part);

  arch::ModelSpec spec_;
  StageModules modules_;
  StageOptions options_;
  Weights weights_;
  TensorSeam no_tensor_ = {};
  ContextSeam no_context_ = {};
  ExpertSeam no_expert_ = {};
  std::unique_ptr<RopeTable> rope_, sliding_rope_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<const VisionTower> vision_;  ///< on the first stage; null where all of it is cached
  ops::Parameter *embedding_ = nullptr, *positions_ = nullptr, *head_ = nullptr;
  /// Of the layers' own inputs: their table, the projection of the embeddings, and its norm.
  ops::Parameter *input_table_ = nullptr, *input_norm_ = nullptr;
  ops::Linear input_product_ = {};
  std::vector<int> inputs_units_ = {};
  ops::Linear head_product_ = {};
  int embedding_unit_ = -1, positions_unit_ = -1, head_unit_ = -1, head_weight_unit_ = -1, head_adapter_unit_ = -1;
  Norm norm_ = {};
  UnitRms embedding_norm_ = {};
  std::unique_ptr<HyperConnection> end_streams_;  ///< in front of the norm, of a stream of several; else null
  at::Tensor anchor_;
  UnitObserver* observer_ = nullptr;
  StepLoads loads_ = {};
};

}  // namespace automodel::model
