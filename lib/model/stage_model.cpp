#include "model/stage_model.h"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/unbind.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "model/embedding_noise.h"
#include "model/hyper_connections.h"
#include "model/token_index.h"
#include "ops/activation.h"
#include "ops/checkpoint.h"
#include "ops/element_type.h"
#include "ops/embedding.h"
#include "ops/graph.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/scalar_type.h"
#include "ops/split.h"

namespace automodel::model {
namespace {

/// The parameters of the stage's modules. A tied head is listed only if the embedding is not.
std::vector<arch::Parameter> parameters_of(const arch::Layout& layout, const StageModules& modules,
                                           const arch::AdapterSpec* adapters, const std::set<std::string>* frozen) {
  std::vector<arch::Parameter> out;
  auto all = arch::parameters(layout);
  if (adapters != nullptr) all = arch::with_adapters(std::move(all), *adapters);
  for (auto& parameter : all) {
    parameter.frozen = parameter.frozen || (frozen != nullptr && frozen->contains(parameter.fqn));
    if (arch::stands_in(parameter, modules.layers, modules.embeddings, modules.norm, modules.head))
      out.push_back(std::move(parameter));
  }
  return out;
}

Placement whole(const arch::Parameter&) {
  return {};
}

/// A slice of a matrix, as ranges of its elements.
ops::QuantizedPart part_of(const Slice& slice, const std::vector<std::int64_t>& full) {
  ops::QuantizedPart out;
  if (slice.whole()) return out;
  AUTOMODEL_CHECK(slice.filling == 0, "matrices of few bits are not filled up");
  const bool rows = slice.dim == 0;
  out.repeats = rows ? 1 : full[0];
  out.period = rows ? full[0] * full[1] : full[1];
  for (const auto& [first, last] : slice.ranges)
    out.ranges.emplace_back(rows ? first * full[1] : first, rows ? last * full[1] : last);
  return out;
}

/// Source: create_causal_mask_mapping of Gemma 3 and create_masks_for_vision_model of Gemma 4 in transformers 5.23. The
/// window limits looking back within a picture too, but not ahead.
PictureMasks picture_masks(const at::Tensor& pictures_at, std::int64_t window, bool windows_only) {
  const ops::NoGraph guard;
  const auto keys = at::arange(pictures_at.size(1), pictures_at.options()), queries = keys.unsqueeze(1);
  const auto together =
      pictures_at.unsqueeze(2).eq(pictures_at.unsqueeze(1)).logical_and(pictures_at.unsqueeze(2).ne(0));
  const auto whole = keys.le(queries).unsqueeze(0).logical_or(together);
  if (window <= 0) return {whole, {}};
  return {windows_only ? at::Tensor() : whole, whole.logical_and(keys.gt(queries - window).unsqueeze(0))};
}

double rounded_to(double value, at::ScalarType type) {
  return type == at::kBFloat16 ? static_cast<double>(static_cast<float>(c10::BFloat16(static_cast<float>(value))))
                               : value;
}

}  // namespace

struct StageModel::Layer {
  int index;
  TensorSeam& tensor;
  std::vector<int> units = {};  ///< all units of the layer, in the order of Weights::units()
  Norm before_mixer, after_mixer, before_feed, after_feed;
  bool parallel;
  double scale;
  std::unique_ptr<Block> mixer, mlp;
  HyperConnection mixer_streams, feed_streams;  ///< of a stream of several (ModelSpec::hyper); else none
  ops::Linear input_gate = {}, input_up = {};   ///< of the layer's own input; without weights: it has none
  Norm input_norm = {};
  ops::Gate input_activation = ops::Gate::kGeluTanh;
  ops::Parameter* output_scale = nullptr;  ///< a buffer [1]; null: 1
  bool lends, borrows;                     ///< keys and values (ModelSpec::layers_without_keys)

  Layer(const BlockContext& context, int number)
      : index(number),
        tensor(*context.seams.tensor),
        parallel(context.spec.parallel_blocks),
        scale(context.spec.residual_scale),
        lends(context.spec.lends_keys(number)),
        borrows(!context.spec.has_keys(number)) {
    const LayerWeights weights(context, number);
    const auto norm = [&](arch::Part part, NormPlace place = NormPlace::kInput) {
      return weights.has(part) ? Norm(context, weights.fqn(part), place) : Norm();
    };
    before_mixer = norm(arch::Part::kMixerNorm);
    after_mixer = norm(arch::Part::kMixerOutNorm, NormPlace::kBranch);
    before_feed = norm(arch::Part::kFeedNorm);
    after_feed = norm(arch::Part::kFeedOutNorm, NormPlace::kBranch);
    mixer = make_mixer(context, number);
    if (context.spec.has_feed(number))
      mlp = context.spec.is_moe(number) ? make_moe(context, number) : make_mlp(context, number);
    if (weights.has(arch::Part::kInputGate)) {
      input_gate = weights.product({arch::Part::kInputGate});
      input_up = weights.product({arch::Part::kInputUp});
      input_norm = norm(arch::Part::kInputNorm);
      input_activation = gate_of(context.spec.activation);
    }
    output_scale = weights.weight(arch::Part::kLayerScale);
    mixer_streams =
        HyperConnection(context, weights.weight(arch::Part::kMixerStreams),
                        weights.weight(arch::Part::kMixerStreamsBias), weights.weight(arch::Part::kMixerStreamsScale));
    feed_streams =
        HyperConnection(context, weights.weight(arch::Part::kFeedStreams), weights.weight(arch::Part::kFeedStreamsBias),
                        weights.weight(arch::Part::kFeedStreamsScale));
    units = context.weights.units_of([&](const Weight& each) { return each.info.layer == number; });
    std::sort(units.begin(), units.end());
  }

  /// {x + delta, its norm as the input of a block}.
  static std::pair<at::Tensor, at::Tensor> enter(const Norm& norm, const at::Tensor& x, const at::Tensor& delta) {
    if (norm) return norm.after_adding(x, delta);
    const auto sum = delta.defined() ? x + delta : x;
    return {sum, sum};
  }
  /// A block's output as it is added to the residual stream.
  at::Tensor leave(const Norm& norm, at::Tensor y) const {
    if (norm) y = norm(y);
    return scale == 1 ? y : y * scale;
  }

  /// `in`: the residual stream in two summands; behind them the layer's own input, and keys and values that it borrows,
  /// undefined where it has none. Returns the two summands, and behind them what it lends.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& in, const Microbatch& microbatch,
                                  plan::Recompute recompute) {
    if (in.size() == 2) return blocks(in, microbatch, recompute);
    auto here = microbatch;
    if (lends || borrows) here.lent = std::make_shared<LentKeys>(LentKeys{in[3], in[4]});
    auto out = blocks(in, here, recompute);
    out = finished(out[0], out[1], in[2], microbatch);
    if (lends) out.insert(out.end(), {here.lent->k, here.lent->v});
    return out;
  }

  /// Adds the layer's own input, and scales.
  std::vector<at::Tensor> finished(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& input,
                                   const Microbatch& microbatch) const {
    auto y = x + delta;
    if (!input_gate.weights.empty()) {
      const auto gate = ops::activate(tensor.tokenwise(y, drawn(input_gate, microbatch)), input_activation);
      y = y + input_norm(tensor.tokenwise(gate * input, drawn(input_up, microbatch)));
    }
    if (output_scale != nullptr) y = y * copied(*output_scale, y.scalar_type());
    return {y, {}};
  }

  std::vector<at::Tensor> blocks(const std::vector<at::Tensor>& in, const Microbatch& microbatch,
                                 plan::Recompute recompute) {
    if (mixer_streams) return {through_streams(in[0], microbatch, recompute), {}};
    if (!mixer) {
      const auto [x, y] = enter(before_feed, in[0], in[1]);
      return {x, leave(after_feed, mlp->forward(y, microbatch))};
    }
    auto [x, y] = enter(before_mixer, in[0], in[1]);
    auto mixed = leave(after_mixer, mixer->forward(y, microbatch));
    // Parallel blocks have the same input, except that the second one may have its own norm.
    const auto seen = parallel && !before_feed ? y : at::Tensor();
    y.reset();  // without a backward pass this frees it
    if (!mlp) return {x, mixed};
    if (recompute == plan::Recompute::kSelective)
      return ops::checkpoint(
          [this, microbatch](const std::vector<at::Tensor>& again) {
            return feed(again[0], again[1], again[2], microbatch);
          },
          {x, mixed, seen});
    return feed(std::move(x), std::move(mixed), seen, microbatch);
  }

  /// Both blocks, each between reading several streams and writing them.
  at::Tensor through_streams(const at::Tensor& streams, const Microbatch& microbatch, plan::Recompute recompute) {
    const auto run = [](const HyperConnection& connection, const Norm& norm, Block& block, const at::Tensor& x,
                        const Microbatch& of) {
      const auto read = connection.read(x);
      return connection.write(x, block.forward(norm(read.input), of), read);
    };
    const auto mixed = run(mixer_streams, before_mixer, *mixer, streams, microbatch);
    const auto feed = [this, run, microbatch](const std::vector<at::Tensor>& in) {
      return std::vector{run(feed_streams, before_feed, *mlp, in[0], microbatch)};
    };
    return recompute == plan::Recompute::kSelective ? ops::checkpoint(feed, {mixed})[0] : feed({mixed})[0];
  }

  /// `seen`: input of the block; undefined: the norm of the residual stream.
  std::vector<at::Tensor> feed(at::Tensor x, at::Tensor mixed, const at::Tensor& seen, const Microbatch& microbatch) {
    if (parallel) {
      const auto fed = leave(after_feed, mlp->forward(seen.defined() ? seen : before_feed(x), microbatch));
      return {x, mixed + fed};
    }
    const auto [sum, z] = enter(before_feed, x, mixed);
    x.reset();
    mixed.reset();
    return {sum, leave(after_feed, mlp->forward(z, microbatch))};
  }
};

StageModel::StageModel(const arch::ModelSpec& spec, const arch::Layout& layout, StageModules modules,
                       StageOptions options)
    : spec_(spec),
      modules_(std::move(modules)),
      options_(std::move(options)),
      weights_(parameters_of(layout, modules_, options_.adapters, options_.frozen),
               options_.placement ? options_.placement : PlacementRule(whole), options_.whole_stage) {
  AUTOMODEL_CHECK(spec_.plan_only.empty(), "a model that can only be planned was built: " + spec_.plan_only);
  if (options_.seams.tensor == nullptr) options_.seams.tensor = &no_tensor_;
  if (options_.seams.context == nullptr) options_.seams.context = &no_context_;
  if (options_.seams.expert == nullptr) options_.seams.expert = &no_expert_;
  if (spec_.rope.kind != arch::RopeKind::kNone && !spec_.learned_positions)
    rope_ = std::make_unique<RopeTable>(spec_.rope, spec_.max_positions, options_.type, options_.device);
  if (spec_.sliding_rope)
    sliding_rope_ =
        std::make_unique<RopeTable>(*spec_.sliding_rope, spec_.max_positions, options_.type, options_.device);
  const BlockContext context{spec_,
                             layout,
                             weights_,
                             options_.seams,
                             rope_.get(),
                             sliding_rope_ ? sliding_rope_.get() : rope_.get(),
                             options_.adapters};
  for (const int layer : modules_.layers) layers_.push_back(std::make_unique<Layer>(context, layer));
  const auto is_cached = [](const arch::ParameterTemplate& parameter) { return parameter.cached; };
  if (spec_.vision && modules_.embeddings && !std::ranges::all_of(layout.tower_parameters, is_cached))
    vision_ = make_vision_tower(*spec_.vision, {weights_, options_.adapters});
  for (const auto& weight : weights_.all()) {
    if (weight->info.role == arch::Role::kEmbedding) embedding_ = &weight->parameter, embedding_unit_ = weight->unit;
    if (weight->info.role == arch::Role::kPositions) positions_ = &weight->parameter, positions_unit_ = weight->unit;
    if (weight->info.part == arch::Part::kInputsTable) input_table_ = &weight->parameter;
    if (weight->info.part == arch::Part::kInputsProduct) input_product_ = {.weights = {&weight->parameter}};
    if (weight->info.part == arch::Part::kInputsNorm) input_norm_ = &weight->parameter;
    if (weight->info.role == arch::Role::kHead && weight->full.size() == 2)
      head_ = &weight->parameter, head_unit_ = head_weight_unit_ = weight->unit;
  }
  inputs_units_ = weights_.units_of([](const Weight& each) { return each.info.role == arch::Role::kLayerInputs; });
  if (modules_.norm) {
    norm_ = Norm(context, layout.norm, NormPlace::kEnd);
    // A norm without parameters belongs to the head's unit.
    if (!layout.norm_parameters.empty()) head_unit_ = weights_.find(layout.norm_parameters.front().name)->unit;
  }
  if (modules_.norm && spec_.hyper) {
    std::array<ops::Parameter*, 3> end = {};
    for (const auto& weight : weights_.all())
      for (std::size_t i = 0; i < end.size(); ++i)
        if (weight->info.part ==
            std::array{arch::Part::kEndStreams, arch::Part::kEndStreamsBias, arch::Part::kEndStreamsScale}[i])
          end[i] = &weight->parameter;
    end_streams_ = std::make_unique<HyperConnection>(context, end[0], end[1], end[2]);
  }
  if (modules_.head && head_ == nullptr) head_ = embedding_;
  if (modules_.head) {
    head_product_ = {.weights = {head_}};
    if (auto* bias = weights_.parameter(layout.head + ".bias")) head_product_.biases = {bias};
    adapt(weights_, options_.adapters, head_product_);
    for (const auto& term : head_product_.adapters) head_adapter_unit_ = weights_.find(term.a->name)->unit;
  }
  const auto& precision = options_.execution.precision;
  if (precision.autocast) {
    weights_.set_matmul_type(scalar_type(*precision.autocast));
    // A tied head is the embedding's matrix; lookups in it are unaffected.
    if (modules_.head) head_->matmul_type = scalar_type(*precision.autocast);
  }
  if (precision.float8) set_float8(layout);
  set_quantized();
  for (const auto& weight : weights_.all()) weight->parameter.fused_accumulation = precision.fused_accumulation;
  anchor_ = ops::anchor(options_.device);
}

StageModel::~StageModel() = default;

void StageModel::set_float8(const arch::Layout& layout) {
  const auto& float8 = *options_.execution.precision.float8;
  const auto take = [&](ops::Parameter& parameter) {
    parameter.float8 = float8;
    if (float8.keep_weights) parameter.float8_forms = std::make_shared<ops::Float8Weight>();
  };
  for (const auto& weight : weights_.all())
    if (plan::takes_float8(float8, weight->info, weight->full)) take(weight->parameter);
  // A tied head is the embedding's matrix; lookups in it are unaffected.
  if (head_ != nullptr && modules_.head && plan::takes_float8(float8, layout.head, {spec_.outputs(), spec_.hidden}))
    take(*head_);
}

void StageModel::set_quantized() {
  const auto& quantization = options_.execution.precision.quantization;
  for (const auto& weight : weights_.all()) {
    if (weight->info.bits == 0) continue;
    const ops::QuantizedFormat format{.bits = weight->info.bits, .small_scales = options_.adapters->base->small_scales};
    weight->parameter.quantized = std::make_shared<const ops::QuantizedLayout>(
        format, weight->full[0], weight->full[1], part_of(weight->slice, weight->full), options_.type);
    weight->parameter.matmul_type = quantization ? scalar_type(quantization->compute) : options_.type;
  }
}

std::vector<at::Tensor> StageModel::observed(
    int unit, std::vector<at::Tensor> values,
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& part) {
  if (observer_ == nullptr || unit < 0) return part(values);
  observer_->before_forward(unit);
  values = ops::tap(values, [this, unit] { observer_->after_backward(unit); });
  values = part(values);
  values = ops::tap(values, [this, unit] { observer_->before_backward(unit); });
  observer_->after_forward(unit);
  return values;
}

at::Tensor StageModel::noisy(const at::Tensor& x, const Microbatch& microbatch) {
  if (options_.execution.embedding_noise == 0 || !microbatch.draw) return x;
  const auto tokens = microbatch.draw->tokens_on(at::kCPU).view(microbatch.ids.sizes());
  const double magnitude =
      options_.execution.embedding_noise / std::sqrt(static_cast<double>(microbatch.length * spec_.hidden));
  return x +
         embedding_noise(*microbatch.draw, options_.seams.tensor->tokens(tokens), x.size(-1), magnitude, x.options());
}

StageModel::Placeholders StageModel::placeholders(const Microbatch& microbatch) const {
  if (!modules_.embeddings || !microbatch.pictures.any()) return {};
  const auto count = microbatch.pictures.placeholders;
  // Placeholders behind the pictures', which only a model writes, are text.
  const auto here = options_.seams.tensor->tokens(
      microbatch.ids.eq(spec_.vision->image_token).logical_and(microbatch.pictures.before.lt(count)));
  Placeholders out{.places = here.flatten().nonzero().squeeze(1), .count = count};
  if (out.places.size(0) != count)
    out.numbers = options_.seams.tensor->tokens(microbatch.pictures.before).flatten().index_select(0, out.places);
  return out;
}

std::vector<at::Tensor> StageModel::embedded(const Microbatch& microbatch, const Placeholders& at,
                                             const at::Tensor& in) {
  auto x = options_.seams.tensor->embed(microbatch.ids, *embedding_, in, spec_.pad_token.value_or(-1));
  if (spec_.embedding_norm) x = embedding_norm_(x, spec_.norm_eps);
  // A scale rounded to the type of the weights is part of the embedding in transformers, so noise is added after it.
  if (!spec_.round_embedding_scale) x = noisy(x, microbatch);
  if (spec_.embedding_scale != 1)
    x = x * (spec_.round_embedding_scale ? rounded_to(spec_.embedding_scale, x.scalar_type()) : spec_.embedding_scale);
  if (spec_.round_embedding_scale) x = noisy(x, microbatch);
  std::vector<at::Tensor> deep;
  if (at.places.defined()) {
    auto values = microbatch.pictures;
    if (values.pixels.defined()) values.pixels = values.pixels.to(options_.type);
    const auto pictures = vision_ ? vision_->forward(values, in) : PictureRows::apart(values.features, spec_.hidden);
    AUTOMODEL_CHECK(pictures.rows.size(0) == at.count, "a picture has as many placeholders as the tower gives rows");
    const auto own = [&](const at::Tensor& rows) {
      const auto all = options_.seams.tensor->alike(rows.to(x.scalar_type()));
      return at.numbers.defined() ? all.index_select(0, at.numbers) : all;
    };
    x = x.flatten(0, 1).index_copy(0, at.places, own(pictures.rows)).view(x.sizes());
    for (const auto& rows : pictures.deep) deep.push_back(own(rows));
  }
  if (spec_.hyper) x = x.repeat({1, 1, spec_.hyper->streams});  // all streams begin with the embedding
  std::vector<at::Tensor> out = {x};
  if (input_table_ != nullptr) out.push_back(layer_inputs(microbatch, x, in));
  out.insert(out.end(), deep.begin(), deep.end());
  if (positions_ == nullptr) return out;
  const auto rows = microbatch.positions + spec_.first_position_row;
  out[0] = out[0] + ops::embedding(options_.seams.tensor->tokens(rows), *positions_, in);
  return out;
}

/// Source: get_per_layer_inputs and project_per_layer_inputs of Gemma 4 in transformers 5.23. Pictures' tokens count as
/// padding in the table.
at::Tensor StageModel::layer_inputs(const Microbatch& microbatch, const at::Tensor& x, const at::Tensor& in) {
  const double width = spec_.layer_input;
  auto ids = microbatch.ids;
  if (spec_.vision) ids = ids.masked_fill(ids.eq(spec_.vision->image_token), spec_.pad_token.value_or(0));
  // The residual stream may have a share of the tokens.
  const auto of_token =
      ops::embedding(options_.seams.tensor->tokens(ids), *input_table_, in, spec_.pad_token.value_or(-1)) *
      rounded_to(std::sqrt(width), x.scalar_type());
  const std::vector<std::int64_t> apart = {spec_.layers, spec_.layer_input};
  const auto of_embedding =
      (ops::linear(x, input_product_) * (1 / std::sqrt(static_cast<double>(spec_.hidden)))).unflatten(2, apart);
  return (ops::rms_norm(of_embedding, *input_norm_, spec_.norm_eps) + of_token.unflatten(2, apart)) * std::sqrt(0.5);
}

StageModel::Stream StageModel::enter(const Microbatch& microbatch, const at::Tensor& hidden) {
  if (!modules_.embeddings) {
    Stream out{.x = options_.cast_inputs ? hidden.to(options_.type) : hidden, .delta = {}};
    const auto parts = out.x.size(-1) / spec_.hidden;
    if (spec_.deep_layers() == 0) return out;
    out.joined = static_cast<int>(spec_.deep_layers() + 1 - parts);
    if (parts == 1) return out;
    auto split = ops::split(out.x, std::vector<std::int64_t>(static_cast<std::size_t>(parts), spec_.hidden));
    out.x = split.front().contiguous();
    out.deep.resize(static_cast<std::size_t>(out.joined));
    out.deep.insert(out.deep.end(), split.begin() + 1, split.end());
    return out;
  }
  const auto pictures = placeholders(microbatch);
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> part = [&](const std::vector<at::Tensor>& in) {
    return embedded(microbatch, pictures, in[0]);
  };
  // The units of the position table, of the layers' inputs and of the vision tower are nested in the embedding's, also
  // where there is no picture: other ranks may have some.
  const auto nested = [&](int unit) {
    part = [this, unit, inner = std::move(part)](const std::vector<at::Tensor>& in) {
      return observed(unit, in, inner);
    };
  };
  nested(positions_unit_);
  for (const int unit : inputs_units_) nested(unit);
  if (vision_)
    for (const int unit : vision_->units()) nested(unit);
  auto out = observed(embedding_unit_, {anchor_}, part);
  const bool inputs = input_table_ != nullptr;
  return {.x = out[0],
          .delta = {},
          .deep = {out.begin() + (inputs ? 2 : 1), out.end()},
          .places = pictures.places,
          .inputs = inputs ? at::unbind(out[1], 2) : std::vector<at::Tensor>()};
}

/// Source: DeepStack, Meng et al. 2024.
void StageModel::join(Stream& stream, int layer) const {
  if (layer >= spec_.deep_layers()) return;
  stream.joined = std::max(stream.joined, layer + 1);
  if (stream.deep.empty()) return;
  const auto rows = std::exchange(stream.deep[static_cast<std::size_t>(layer)], {});
  stream.x = stream.places.defined() ? stream.x.flatten(0, 1).index_add(0, stream.places, rows).view(stream.x.sizes())
                                     : stream.x + rows;
}

at::Tensor StageModel::leave(const Stream& stream) const {
  const auto x = stream.delta.defined() ? stream.x + stream.delta : stream.x;
  std::vector<at::Tensor> out = {x};
  for (int j = stream.joined; j < spec_.deep_layers(); ++j) {
    const auto rows = stream.deep.empty() ? at::Tensor() : stream.deep[static_cast<std::size_t>(j)];
    if (rows.defined() && !stream.places.defined()) {
      out.push_back(rows);
      continue;
    }
    out.push_back(at::zeros_like(x));
    if (rows.defined()) out.back() = out.back().flatten(0, 1).index_add(0, stream.places, rows).view(x.sizes());
  }
  return out.size() == 1 ? x : at::cat(out, -1);
}

std::vector<at::Tensor> StageModel::run_layer(Layer& layer, const Stream& stream, const Microbatch& microbatch,
                                              const ForwardOptions& options) {
  const auto run = [&](const std::vector<at::Tensor>& in) {
    if (options.recompute != plan::Recompute::kFull) return layer.forward(in, microbatch, options.recompute);
    return ops::checkpoint(
        [part = &layer, microbatch](const std::vector<at::Tensor>& again) {
          return part->forward(again, microbatch, plan::Recompute::kNone);
        },
        in);
  };
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> part = run;
  for (auto unit = layer.units.rbegin(); unit != layer.units.rend(); ++unit)
    part = [this, unit = *unit, inner = std::move(part)](const std::vector<at::Tensor>& in) {
      return observed(unit, in, inner);
    };
  if (!spec_.layer_scale) return part({stream.x, stream.delta});
  const auto& lent = layer.borrows ? stream.lent[spec_.slides(layer.index) ? 1 : 0] : LentKeys{};
  const auto input = stream.inputs.empty() ? at::Tensor() : stream.inputs[static_cast<std::size_t>(layer.index)];
  return part({stream.x, stream.delta, input, lent.k, lent.v});
}

StageModel::Stream StageModel::run_layers(Stream stream, const Microbatch& microbatch, const ForwardOptions& options) {
  std::shared_ptr<ops::ActivationOffload::Pass> pass;
  if (options_.offload != nullptr && c10::GradMode::is_enabled()) pass = options_.offload->begin();
  const int offloaded = pass ? options_.execution.activations.offloading->layers : 0;
  int group = 0;  // number of the next offloaded layer
  const auto ran = [&](const std::vector<at::Tensor>& out, int layer) {
    stream.x = out[0];
    stream.delta = out[1];
    if (out.size() > 2) stream.lent[spec_.slides(layer) ? 1 : 0] = {out[2], out[3]};
    join(stream, layer);
  };
  for (const auto& layer : layers_) {
    if (!pass || layer->index >= offloaded) {
      auto out = run_layer(*layer, stream, microbatch, options);
      if (pass) {  // first layer that stays on the device: once it has run, the last offloaded one can leave
        pass->finish_forward();
        out = ops::tap(out, [pass] { pass->announce(); });
        pass.reset();
      }
      ran(out, layer->index);
      continue;
    }
    auto out = ops::tap({stream.x, stream.delta}, [pass, group] { pass->done(group); });
    {
      const ops::Recorded::Scope scope(pass->begin_group());
      stream.x = out[0];
      stream.delta = out[1];
      out = run_layer(*layer, stream, microbatch, options);
    }
    pass->end_group();
    out = ops::tap(out, [pass, group] { pass->need(group); });
    ++group;
    ran(out, layer->index);
  }
  if (pass) pass->finish_forward();
  return stream;
}

/// Lengths of the head's rows on this rank, [vocabulary here]; part of the graph.
at::Tensor StageModel::head_row_lengths(const at::Tensor& like) {
  constexpr double kLeast = 1e-12;
  // In one pass, without the rows in float32. At least kLeast: rows that pad a vocabulary are zero.
  const auto lengths = at::linalg_vector_norm(ops::use(*head_, like), 2, at::IntArrayRef{1}, /*keepdim=*/false,
                                              ops::compute_type(like.scalar_type()));
  return at::clamp_min(lengths, kLeast).to(like.scalar_type());
}

at::Tensor StageModel::head_input(const Stream& stream) {
  if (end_streams_) return norm_(end_streams_->read(stream.x).input);
  if (norm_) return norm_.after_adding(stream.x, stream.delta).second;
  return stream.delta.defined() ? stream.x + stream.delta : stream.x;
}

std::vector<double> StageModel::soft_caps() const {
  std::vector<double> out;
  for (const double cap : {spec_.logit_softcap, options_.execution.loss.logit_softcap})
    if (cap > 0) out.push_back(cap);
  return out;
}

at::Tensor StageModel::head_logits(const Stream& stream, const Microbatch& microbatch) {
  auto logits = options_.seams.tensor->column(head_input(stream), drawn(head_product_, microbatch));
  if (spec_.head_rows_normed) logits = logits / head_row_lengths(logits);
  if (spec_.logit_scale != 1) logits = logits * spec_.logit_scale;
  for (const double cap : soft_caps()) logits = at::tanh(logits / cap) * cap;
  if (options_.output) logits = logits.to(*options_.output);
  return logits;
}

at::Tensor StageModel::head_loss(const Stream& stream, const Microbatch& microbatch, const ForwardOptions& options) {
  auto& seam = *options_.seams.tensor;
  const auto& loss = options_.execution.loss;
  if (!loss.chunked()) {
    const auto logits = head_logits(stream, microbatch);
    if (microbatch.parts && spec_.classes > 0) {  // before the loss, which may overwrite the logits
      const ops::NoGraph guard;
      microbatch.parts->hits = logits.detach().argmax(-1).eq(microbatch.labels).sum(at::kDouble);
    }
    return seam.loss(logits, microbatch.labels, options.loss_scale, kNoLabel);
  }
  const auto& head = drawn(head_product_, microbatch);
  if (observer_ != nullptr && c10::GradMode::is_enabled())
    for (const int unit : {head_ == embedding_ ? embedding_unit_ : head_weight_unit_, head_adapter_unit_})
      if (unit >= 0) observer_->before_gradients(unit);
  ops::HeadLoss asked{.scale = options.loss_scale,
                      .seed = options.seed,
                      .ignore = kNoLabel,
                      .rows = loss.rows(microbatch.labels.numel(), spec_.hidden, head_->shape[0]),
                      .logit_scale = spec_.logit_scale,
                      .caps = soft_caps(),
                      .output = options_.output};
  if (!microbatch.teacher) return seam.head_loss(head_input(stream), head, microbatch.labels, asked);

  auto& teacher = *microbatch.teacher->stage;
  const auto taught = microbatch.teacher->input.flatten(0, 1);
  asked.lesson = std::make_shared<ops::Lesson>(ops::Lesson{.ratio = loss.distillation->ratio,
                                                           .temperature = loss.distillation->temperature,
                                                           .logits = [&](std::int64_t begin, std::int64_t count) {
                                                             return teacher.head_scores(taught.narrow(0, begin, count));
                                                           }});
  at::Tensor out;
  teacher.with_head([&] { out = seam.head_loss(head_input(stream), head, microbatch.labels, asked); });
  if (microbatch.parts) {
    microbatch.parts->cross_entropy = asked.lesson->cross_entropy;
    microbatch.parts->divergence = asked.lesson->divergence;
  }
  return out;
}

at::Tensor StageModel::head_inputs(const Microbatch& microbatch, const at::Tensor& hidden) {
  const auto stream = run_layers(enter(microbatch, hidden), prepared(microbatch), {});
  return options_.seams.tensor->enter(observed_head(stream, [&](const Stream& in) { return head_input(in); })[0]);
}

void StageModel::with_head(const std::function<void()>& use) {
  const int unit = head_ == embedding_ ? embedding_unit_ : head_weight_unit_;
  if (observer_ != nullptr) observer_->before_forward(unit);
  use();
  if (observer_ != nullptr) observer_->after_forward(unit);
}

at::Tensor StageModel::head_scores(const at::Tensor& rows) {
  const ops::NoGraph guard;
  auto logits = ops::product(rows.to(head_->value.scalar_type()), head_product_);
  ops::add_biases(logits, head_product_);
  if (spec_.logit_scale != 1) logits.mul_(spec_.logit_scale);
  if (spec_.logit_softcap > 0) logits = at::tanh(logits / spec_.logit_softcap) * spec_.logit_softcap;
  return logits;
}

std::vector<at::Tensor> StageModel::observed_head(const Stream& stream,
                                                  const std::function<at::Tensor(const Stream&)>& part) {
  return observed(head_unit_, {stream.x, stream.delta}, [&](const std::vector<at::Tensor>& in) {
    const auto bare = [&](const std::vector<at::Tensor>& values) {
      return std::vector<at::Tensor>{part({values[0], values[1]})};
    };
    const auto whole = [&](const std::vector<at::Tensor>& values) {
      return observed(head_adapter_unit_, values, bare);
    };
    // A copy of the embedding that serves as head is a unit of its own, nested in the norm's.
    if (head_weight_unit_ >= 0 && head_weight_unit_ != head_unit_) return observed(head_weight_unit_, in, whole);
    const bool shares = observer_ != nullptr && head_ != nullptr && head_ == embedding_;
    if (shares) observer_->before_forward(embedding_unit_);
    auto out = whole(in);
    if (!shares) return out;
    // The embedding's unit is complete only after the embedding itself has run backward.
    out = ops::tap(out, [this] { observer_->before_backward(embedding_unit_); });
    observer_->after_forward(embedding_unit_);
    return out;
  });
}

std::shared_ptr<RouterStatistics> StageModel::statistics(const Microbatch& microbatch,
                                                         const ForwardOptions& options) const {
  if (spec_.router_sums() == 0) return nullptr;
  // Microbatches are weighted by their label tokens, like the rest of the loss.
  return std::make_shared<RouterStatistics>(spec_.moe->experts, spec_.moe->aux_loss_coefficient,
                                            static_cast<double>(microbatch.label_tokens) * options.loss_scale.value,
                                            options.seed.value, options_.device);
}

void StageModel::sum_statistics(RouterStatistics& routers) {
  const ops::NoGraph guard;
  auto sums = routers.sums();
  options_.seams.expert->sum_over_tokens(sums);
  if (routers.before().defined()) sums += routers.before();
  routers.set_totals(sums);
}

Microbatch StageModel::prepared(Microbatch microbatch) const {
  if (spec_.index) microbatch.choices = std::make_shared<TokenChoices>();
  if (microbatch.pictures_at.defined())
    microbatch.masks = std::make_shared<const PictureMasks>(
        picture_masks(microbatch.pictures_at, spec_.sliding_window, spec_.vision->windows_only));
  if (microbatch.axes.defined() && rope_)
    microbatch.placed = std::make_shared<const PlacedAngles>(rope_->placed(microbatch.axes, microbatch.reach()));
  return microbatch;
}

at::Tensor StageModel::forward(const Microbatch& microbatch, const at::Tensor& hidden, const ForwardOptions& options) {
  const auto stream = run_layers(enter(microbatch, hidden), prepared(microbatch), options);
  if (microbatch.routers) sum_statistics(*microbatch.routers);
  if (!modules_.head && !modules_.norm) return leave(stream);
  return observed_head(stream, [&](const Stream& in) {
    if (!modules_.head) return head_input(in);
    const auto loss = head_loss(in, microbatch, options);
    // Ranks that share a microbatch's tokens sum their losses; this term is equal on all of them, hence the division.
    return microbatch.routers
               ? loss + (microbatch.routers->loss() / options_.seams.context->size()).to(loss.scalar_type())
               : loss;
  })[0];
}

at::Tensor StageModel::logits(const Microbatch& microbatch, const at::Tensor& hidden,
                              std::optional<std::int64_t> only) {
  auto stream = run_layers(enter(microbatch, hidden), prepared(microbatch), {});
  // If each rank has different tokens, the requested one is selected only after the head.
  const bool early = only && stream.x.size(1) == microbatch.ids.size(1);
  if (early)
    for (auto* each : {&stream.x, &stream.delta})
      if (each->defined()) *each = each->narrow(1, *only, 1);
  const auto out = observed_head(
      stream, [&](const Stream& in) { return options_.seams.tensor->whole_logits(head_logits(in, microbatch)); })[0];
  return only && !early ? out.narrow(1, *only, 1) : out;
}

bool StageModel::keeps_keys() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const auto& layer) { return !layer->mixer || layer->mixer->keeps_keys(); });
}

}  // namespace automodel::model
