// The modules of one pipeline stage: any of embedding, layers, final norm and head.
#pragma once

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
#include "model/weights.h"
#include "ops/factor.h"
#include "ops/offload.h"

namespace automodel::model {

/// Which modules of the model a stage has.
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
  /// Gradients of the unit's weights are added in the forward pass that runs now.
  virtual void before_gradients(int unit) = 0;
};

/// Linear layers with 8-bit operands.
struct Float8Layers {
  ops::Float8Rule rule = {};
  std::vector<std::string> left_out = {};  ///< modules in whose name one of these occurs
};

struct StageOptions {
  at::ScalarType type = at::kFloat;  ///< that activations are computed in
  at::Device device = at::kCPU;
  Seams seams = {};
  PlacementRule placement = {};  ///< empty: every weight whole
  std::int64_t ignore_label = -100;
  std::optional<at::ScalarType> autocast = {};   ///< of matrix products
  std::optional<Float8Layers> float8 = {};       ///< absent: none
  std::optional<at::ScalarType> quantized = {};  ///< compute type of GEMMs with quantized weights; absent: `type`
  double logit_softcap = 0;                      ///< of the loss function; the model's own comes first
  /// Head and loss are computed in chunks of this many tokens (0: arch::loss_chunk); absent: logits are whole.
  std::optional<std::int64_t> loss_chunk = {};
  double embedding_noise = 0;                     ///< NEFTune's alpha, where a microbatch has a draw
  const arch::AdapterSpec* adapters = nullptr;    ///< outlives the stage; null: the weights themselves are trained
  const std::set<std::string>* frozen = nullptr;  ///< parameters that stay as they are; outlives the stage
  bool counts_loads = false;                      ///< routers count what they send to each expert in training
  bool fused_accumulation = false;            ///< weight gradients are summed in their own type, never rounded first
  bool cast_inputs = true;                    ///< what comes from another stage takes `type`, else it keeps its own
  std::optional<at::ScalarType> output = {};  ///< that logits are cast to before the loss
  bool whole_stage = false;                   ///< the layers' weights are one unit
  ops::ActivationOffload* offload = nullptr;  ///< null: activations stay where they are
  int offloaded_layers = 0;                   ///< the first so many layers of the model leave the device
};

/// What a layer keeps between its forward and its backward pass.
enum class Keep {
  kAll,
  kInputs,     ///< the whole layer is recomputed
  kAttention,  ///< norm and MLP are recomputed
};

/// How one forward pass runs.
struct ForwardOptions {
  /// Factor of the loss: 1 / label tokens. Its gradient is computed with it.
  ops::Factor loss_scale = 1;
  ops::Factor seed = 1;  ///< what the backward pass will start with
  Keep keep = Keep::kAll;
};

class StageModel {
 public:
  /// `layout` describes the whole model. Weights have names and shapes only until storage is bound to them.
  StageModel(const arch::ModelSpec& spec, const arch::Layout& layout, StageModules modules, StageOptions options);
  ~StageModel();
  StageModel(const StageModel&) = delete;
  StageModel& operator=(const StageModel&) = delete;

  Weights& weights() { return weights_; }
  const StageModules& modules() const { return modules_; }
  /// The head's weight; null where the stage has none.
  ops::Parameter* head() { return modules_.head ? head_ : nullptr; }
  void set_observer(UnitObserver* observer) { observer_ = observer; }

  /// What the routers add up for the auxiliary loss of `microbatch`, to be put into it; null where there is none.
  std::shared_ptr<RouterStatistics> statistics(const Microbatch& microbatch, const ForwardOptions& options) const;
  /// Where the routers count the tokens of one more microbatch of the step, to be put into it; null where none does.
  std::shared_ptr<RouterLoads> next_loads() { return options_.counts_loads ? loads_.next() : nullptr; }
  /// Of the microbatches since it was last cleared.
  StepLoads& loads() { return loads_; }
  /// hidden [batch, tokens, width] of the stage before, undefined where this one has the embedding. Returns hidden, or
  /// where this stage has the head the loss: the sum of token losses times loss_scale, float64 of one element.
  at::Tensor forward(const Microbatch& microbatch, const at::Tensor& hidden, const ForwardOptions& options);
  /// The logits [batch, tokens, vocabulary] instead of the loss, or [batch, 1, vocabulary] of the token `only`.
  at::Tensor logits(const Microbatch& microbatch, const at::Tensor& hidden, std::optional<std::int64_t> only = {});
  /// Whether every layer can go by the keys and values of earlier tokens (Microbatch::cache).
  bool keeps_keys() const;

 private:
  struct Layer;
  /// The residual stream as (sum so far, what is still to be added).
  struct Stream {
    at::Tensor x, delta;
  };
  Stream enter(const Microbatch& microbatch, const at::Tensor& hidden);
  /// Token embeddings with their noise.
  at::Tensor noisy(const at::Tensor& x, const Microbatch& microbatch);
  Stream run_layers(Stream stream, const Microbatch& microbatch, const ForwardOptions& options);
  std::vector<at::Tensor> run_layer(Layer& layer, const Stream& stream, const Microbatch& microbatch,
                                    const ForwardOptions& options);
  Microbatch prepared(Microbatch microbatch) const;
  at::Tensor head_row_lengths(const at::Tensor& like);
  /// What the head's product sees.
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
  ops::Parameter *embedding_ = nullptr, *positions_ = nullptr, *head_ = nullptr;
  ops::Linear head_product_ = {};
  int embedding_unit_ = -1, positions_unit_ = -1, head_unit_ = -1, head_weight_unit_ = -1, head_adapter_unit_ = -1;
  Norm norm_ = {};
  at::Tensor anchor_;
  UnitObserver* observer_ = nullptr;
  StepLoads loads_ = {};
};

}  // namespace automodel::model
