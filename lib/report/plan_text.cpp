#include "report/plan_text.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "arch/counts.h"
#include "arch/families.h"
#include "base/bytes.h"
#include "base/text_table.h"
#include "estimate/stack_rates.h"
#include "estimate/state_bytes.h"
#include "plan/model_names.h"
#include "report/plan_verdict.h"
#include "schedule/timeline_text.h"

namespace automodel::report {
namespace {

std::string shape_text(const plan::TensorMeta& meta) {
  std::string out;
  for (const auto dim : meta.shape) out += (out.empty() ? "" : "x") + std::to_string(dim);
  return fmt::format("{} {}", out, name_of(meta.dtype));
}

/// "embed, vision_tower, layers 0-7, norm, head".
std::string modules_text(const plan::ModelChoice& model, const plan::StagePart& part) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (part.has_embedding) add("embed");
  for (const auto& tower : plan::towers_of(model, part)) add(tower.fqn.substr(tower.fqn.rfind('.') + 1));
  if (!part.layers.empty()) {
    const bool run = part.layers.back() - part.layers.front() + 1 == static_cast<int>(part.layers.size());
    const std::string which = part.layers.size() == 1 ? std::to_string(part.layers.front())
                              : run                   ? fmt::format("{}-{}", part.layers.front(), part.layers.back())
                                                      : "several";
    add(fmt::format("layer{} {}", part.layers.size() == 1 ? "" : "s", which));
  }
  if (part.has_norm) add("norm");
  if (part.has_head) add("head");
  return out;
}

std::string mesh_text(const plan::TrainingPlan& plan) {
  const auto& s = plan.mesh.sizes();
  std::string axes;
  const auto add = [&](const char* name, int size) {
    if (size > 1) axes += fmt::format("{}{} {}", axes.empty() ? "" : ", ", name, size);
  };
  add("pp", s.pp);
  add("dp_replicate", s.dp_replicate);
  add("dp_shard", s.dp_shard);
  add("cp", s.cp);
  add("tp", s.tp);
  add("ep", s.ep);
  const int world = plan.mesh.world_size();
  const std::string level = plan.zero_level ? fmt::format(" (zero_dp_strategy {}, {})", *plan.zero_level,
                                                          config::name_of_level(*plan.zero_level))
                                            : "";
  return fmt::format("mesh      {} rank{}{}{}, {}{} on {}\n", world, world == 1 ? "" : "s", axes.empty() ? "" : ": ",
                     axes, mesh::name_of(plan.mesh.strategy()), level, plan.cuda ? "cuda" : "cpu");
}

/// What tensor- and context-parallel ranks split, and how they exchange it.
std::string sharing_text(const plan::TrainingPlan& plan) {
  const auto& s = plan.mesh.sizes();
  std::string out;
  if (s.tp > 1) {
    const auto& overlap = plan.tensor.overlap;
    const bool overlaps =
        overlap != arch::TensorOverlap{.gather_attention = overlap.gather_attention, .gather_mlp = overlap.gather_mlp};
    out += fmt::format("tensor    weights split over {} ranks{}{}\n", s.tp,
                       plan.tensor.sequence_parallel ? ", tokens between them too (sequence parallel)" : "",
                       overlaps ? ", messages overlap matmuls" : "");
  }
  if (s.cp > 1) {
    const auto& c = plan.context;
    std::string how;
    const auto add = [&](std::string_view between, const std::string& part) {
      how += fmt::format("{}{}", how.empty() ? "" : between, part);
    };
    if (!plan.model || plan::exchanges_attention(plan.model->spec, plan.batch.shortest())) {
      if (c.heads > 1) add("", fmt::format("heads exchanged over {}", c.heads));
      if (c.keys > 1) add(", ", fmt::format("{} {}", c.gather ? "keys gathered over" : "ring of", c.keys));
    }
    const auto recurrent = plan.model ? plan::recurrent_exchanges(plan.model->spec) : plan::RecurrentExchanges{};
    if (recurrent.states) add("; ", "heads of recurrent layers exchanged");
    if (recurrent.tokens) add("; ", "tokens before convolutions passed on");
    if (plan.model && plan.model->spec.index && plan.batch.planned_length() > plan.model->spec.index->top_k)
      add("; ", "heads exchanged where an index chooses tokens");
    out += fmt::format("context   sequences over {} ranks: {}\n", s.cp, how);
  }
  return out;
}

/// How pictures become tokens; empty for a model without a tower.
std::string pictures_text(const plan::ModelChoice& model) {
  const auto& tower = model.spec.vision;
  if (!tower) return "";
  if (!tower->any_size())
    return fmt::format("pictures  {} tower: {} of {} layers, hidden {}; {} x {} pixels, {} tokens each\n",
                       name_of(tower->kind), tower->used_layers, tower->layers, tower->hidden, tower->image,
                       tower->image, tower->tokens());
  auto out = fmt::format("pictures  {}: {} of {} layers, hidden {}; any size", name_of(tower->kind), tower->used_layers,
                         tower->layers, tower->hidden);
  if (!model.processor || !model.processor->patches) return out + "\n";
  const auto& patches = *model.processor->patches;
  const auto area = std::int64_t{patches.side()} * patches.side();
  return out + fmt::format(", {} to {} tokens each, a token for {} x {} pixels\n",
                           patches.by_area() ? std::max<std::int64_t>(patches.least / area, 1)
                           : patches.parts   ? patches.tokens_of(patches.parts->whole)
                                             : 1,
                           patches.most_tokens(), patches.side(), patches.side());
}

std::string model_text(const plan::TrainingPlan& plan) {
  if (!plan.model)
    return "model     sizes unknown: give --model.config PATH (a config.json, or its folder) to plan stages, memory "
           "and time\n";
  const auto& spec = plan.model->spec;
  const auto counts = arch::count_parameters(plan.model->layout, arch::whole_model(plan.model->layout));
  auto parameters = static_cast<double>(counts.total());
  for (const auto& tower : plan::towers_of(*plan.model))
    parameters += static_cast<double>(tower.parameters.value_or(0));
  const auto active = spec.moe ? fmt::format(" ({} per token)",
                                             format_count(static_cast<double>(arch::active_parameters(spec, counts))))
                               : "";
  auto out = fmt::format("model     {} ({}): {} layers, hidden {}, heads {}/{}, vocabulary {}, {} parameters{}{}{}\n",
                         plan.model->name, spec.model_type, spec.layers, spec.hidden, spec.heads, spec.kv_heads,
                         spec.vocab, format_count(parameters), active,
                         arch::find_family(spec.model_type) == nullptr ? " (a guess: its family is unknown)" : "",
                         spec.classes > 0       ? fmt::format(", {} classes", spec.classes)
                         : spec.tied_embeddings ? ", tied embeddings"
                                                : "");
  return out + pictures_text(*plan.model);
}

/// How frozen weights are stored, if quantized.
std::string few_bits_text(const plan::TrainingPlan& plan) {
  const auto& chosen = plan.execution.precision.quantization;
  if (!chosen) return "";
  double elements = 0;
  for (const auto& parameter : plan.adapters->all)
    if (parameter.bits > 0) elements += static_cast<double>(parameter.shape.elements());
  return fmt::format("\nfrozen    {} parameters in {}, products with them in {}", format_count(elements),
                     chosen->base.bits == 4 ? "nf4" : "int8", name_of(chosen->compute));
}

/// Names in their order, with "*" for the numbers of layers, each once.
std::vector<std::string> without_numbers(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::set<std::string> seen;
  for (const auto& name : names) {
    std::string shown;
    std::size_t begin = 0;
    while (begin <= name.size()) {
      const auto end = std::min(name.find('.', begin), name.size());
      const auto part = name.substr(begin, end - begin);
      const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      shown += (begin > 0 ? "." : "") + (number ? "*" : part);
      begin = end + 1;
    }
    if (seen.insert(shown).second) out.push_back(std::move(shown));
  }
  return out;
}

std::string adapters_text(const plan::TrainingPlan& plan) {
  if (!plan.adapters) return "";
  const auto& spec = plan.adapters->spec;
  const auto modules = without_numbers(plan.adapters->modules);
  constexpr std::size_t kShown = 8;
  std::string names = fmt::format("{}", fmt::join(std::span(modules).first(std::min(kShown, modules.size())), ", "));
  if (modules.size() > kShown) names += ", ...";
  std::int64_t all = 0;
  for (const auto& parameter : plan.adapters->all)
    if (parameter.tied_to.empty()) all += parameter.shape.elements();
  for (const auto& tower : plan::towers_of(*plan.model)) {
    const auto count = std::ranges::count_if(
        spec.weights, [&](const std::string& weight) { return weight.starts_with(tower.fqn + "."); });
    if (count > 0) names += fmt::format("; {} in {}", count, tower.fqn);
  }
  const auto trained = static_cast<double>(plan.adapters->elements);
  return fmt::format(
      "adapters  {} of rank {}, scale {:g}{}, beside {} weights ({}): {} parameters are trained ({:.2g}%){}\n",
      spec.magnitudes ? "DoRA" : "LoRA", spec.rank, spec.scale(),
      spec.dropout > 0 ? fmt::format(", dropout {:g}", spec.dropout) : "", spec.weights.size(), names,
      format_count(trained), 100 * trained / static_cast<double>(all), few_bits_text(plan));
}

std::string frozen_text(const plan::TrainingPlan& plan) {
  if (!plan.frozen) return "";
  double all = 0;
  for (const auto& parameter : plan.frozen->all)
    if (parameter.tied_to.empty()) all += static_cast<double>(parameter.shape.elements());
  const bool index = std::ranges::any_of(plan.frozen->places,
                                         [&](auto place) { return arch::is_of_index(plan.frozen->all[place].part); });
  return fmt::format("frozen    {} of {} parameters{}\n", format_count(static_cast<double>(plan.frozen->elements)),
                     format_count(all), index ? ", the token index among them: no gradient reaches it" : "");
}

/// Whether a frozen tower runs once or in every step, and what the other way would cost.
std::string features_text(const estimate::EstimatedPlan& plan) {
  if (!plan.features) return "";
  const auto& features = *plan.features;
  auto out = fmt::format("features  outputs of the frozen tower{} are computed {}: {}\n",
                         features.whole ? "" : ", which a projector is trained on,",
                         features.cached ? "once and cached" : "in every step", features.why);
  if (!plan.feature_costs) return out;
  const auto& costs = *plan.feature_costs;
  const bool known = costs.pictures > 0;
  constexpr double kSome = 1000;
  const double pictures = known ? costs.pictures : kSome, bytes = known ? costs.bytes : kSome * costs.file;
  out += fmt::format("          {}{:.0f} pictures take {} on disk, and {} to compute once\n", known ? "" : "every ",
                     pictures, format_bytes(bytes), format_seconds(pictures * costs.once / plan.mesh.world_size()));
  return out + fmt::format("          {} the cache: {} per step, {} of memory\n", features.cached ? "without" : "with",
                           format_seconds(costs.step), format_bytes(costs.peak));
}

std::string teacher_text(const plan::TrainingPlan& plan) {
  if (!plan.teacher) return "";
  const auto& teacher = *plan.teacher->model;
  const auto& lesson = *plan.execution.loss.distillation;
  const auto counts = arch::count_parameters(teacher.layout, arch::whole_model(teacher.layout));
  return fmt::format(
      "teacher   {} ({}): {} layers, hidden {}, {} parameters in {}; loss {:g} of it at temperature {:g}\n",
      teacher.name, teacher.spec.model_type, teacher.spec.layers, teacher.spec.hidden,
      format_count(static_cast<double>(counts.total())), name_of(plan.teacher->types.compute), lesson.ratio,
      lesson.temperature);
}

std::string batch_text(const plan::TrainingPlan& plan) {
  const auto& b = plan.batch;
  std::string out = fmt::format("batch     {} sequences per step = {} data-parallel", b.global, plan.mesh.sizes().dp());
  if (b.merged == 1) out += fmt::format(" x {} accumulation step{}", b.runs, b.runs == 1 ? "" : "s");
  out += fmt::format(" x {} microbatch{} of {}", b.microbatches, b.microbatches == 1 ? "" : "es", b.microbatch);
  if (b.merged > 1) out += fmt::format(" ({} accumulation steps together)", b.merged);
  if (b.length > 0)
    out += fmt::format("; {} tokens each, {} tokens per step", b.length, b.tokens());
  else if (b.assumed_length > 0)
    out += fmt::format("; estimates assume {} tokens each", b.assumed_length);
  const bool other = plan.cuda && plan.stack != config::Stack::kOwn;
  const auto types = estimate::state_types(plan, plan.sharding);
  if (other)
    out += fmt::format(
        "\nassumes   {}, not this program (hardware.stack: {}): types, memory and time are what that needs",
        plan.stack == config::Stack::kPytorch ? "PyTorch's FSDP2 or DDP" : "Megatron Core with Transformer Engine",
        estimate::name_of(plan.stack));
  out += fmt::format("\ntypes     compute {}, {} {}, gradients {}", name_of(types.compute),
                     other && types.master == types.stored ? "weights" : "master weights", name_of(types.master),
                     name_of(types.gradient));
  if (plan.pipelined && plan.types.message != plan.types.compute)
    out += fmt::format(", between stages {}", name_of(plan.types.message));
  if (plan.execution.precision.autocast)
    out += fmt::format(", products in {}", name_of(*plan.execution.precision.autocast));
  if (plan.execution.precision.float8)
    out += fmt::format(", linear layers in float8 ({}{})",
                       *config::to_dict(plan.execution.precision.float8->recipe).string(),
                       !plan.cuda || plan.execution.precision.float8->emulate ? ", emulated" : "");
  if (plan.execution.precision.loss_scaler) out += ", dynamic loss scale";
  if (plan.execution.embedding_noise > 0) out += fmt::format(", embedding noise {:g}", plan.execution.embedding_noise);
  if (plan.execution.experts.router_bias_step > 0)
    out += fmt::format(", router biases move by {:g} a step", plan.execution.experts.router_bias_step);
  const auto& [first, second] = std::pair(types.first_moment, types.second_moment);
  if (first != types.master || second != types.master)
    out += first == second ? fmt::format(", moments {}", name_of(first))
                           : fmt::format(", moments {} and {}", name_of(first), name_of(second));
  if (types.reduce != types.gradient) out += fmt::format(", reduced in {}", name_of(types.reduce));
  if (plan.execution.loss.chunked()) {
    const auto tokens = b.microbatch * b.planned_length() / plan.mesh.sizes().cp;
    const bool known = plan.model && tokens > 0;
    const auto& loss = plan.execution.loss;
    const auto rows =
        known ? loss.rows(tokens, plan.model->spec.hidden, plan.model->spec.outputs() / plan.shares.vocabulary)
              : *loss.loss_chunk;
    out += fmt::format("\nloss      with the head in chunks of {} tokens: logits never exist as a whole",
                       rows > 0 ? fmt::format("{}{}", rows, known ? fmt::format(" of {}", tokens) : "") : "some");
  }
  if (plan.cuda && plan.execution.activations.offloading)
    out += fmt::format(
        "\noffload   activations of the first {} layers are kept in host memory until their backward pass{}",
        plan.execution.activations.offloading->layers,
        plan.execution.activations.offloading->double_buffering ? ", come back into two buffers" : "");
  if (plan.execution.capture.captured)
    out += "\ngraphs    forward and backward of a microbatch are captured once for each shape, and replayed";
  if (plan.execution.capture.not_captured) out += "\ngraphs    none: " + *plan.execution.capture.not_captured;
  return out + "\n";
}

/// Load is the estimated time of both passes if there is an estimate, else FLOPs.
std::string stages_text(const estimate::EstimatedPlan& plan, bool full) {
  const auto& pipeline = *plan.pipeline;
  std::vector<double> loads;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s)
    loads.push_back(plan.estimate ? plan.estimate->time.stages[s].forward + plan.estimate->time.stages[s].backward
                                  : pipeline.stages[s].flops);
  const auto [lightest, heaviest] = std::minmax_element(loads.begin(), loads.end());
  std::vector<std::string> header = {"stage", "rank", "modules", "parameters", "load"};
  if (full) header.insert(header.end(), {"forward per microbatch", "output"});
  TextTable table(header);
  for (const auto& stage : pipeline.stages) {
    const double own = loads[static_cast<std::size_t>(stage.stage)];
    const double load = *heaviest > 0 ? own / *heaviest : 1;
    std::vector<std::string> row = {
        std::to_string(stage.stage), std::to_string(stage.pp_rank), modules_text(*plan.model, stage.part),
        format_count(static_cast<double>(stage.part.parameters + stage.adapters)),
        fmt::format("{:.0f}%{}", 100 * load, own == *heaviest && *lightest < *heaviest ? " heaviest" : "")};
    if (full) row.insert(row.end(), {format_flops(stage.flops), shape_text(stage.io.output)});
    table.add(row);
  }
  return table.text();
}

std::string schedule_text(const plan::TrainingPlan& plan, bool full) {
  const auto& pipeline = *plan.pipeline;
  const auto& made = pipeline.schedule;
  std::string out = fmt::format("schedule  {}: {} stages on {} ranks ({}), {} microbatches, ideal bubble {:.1f}%\n",
                                pipeline.name, made.shape.stages, made.shape.ranks, schedule::style_of(made.placement),
                                made.shape.microbatches, 100 * pipeline.timeline.bubble_fraction);
  if (!pipeline.merged.empty()) out += "          " + pipeline.merged + "\n";
  const std::string proved = "          proved: every send meets its receive, no rank can wait for another forever\n";
  if (!full) return out + proved;
  std::string flight, buffers;
  const std::size_t most = 16;
  for (std::size_t r = 0; r < std::min(most, made.proof.ranks.size()); ++r) {
    flight += fmt::format(" {}", made.proof.ranks[r].in_flight);
    buffers += fmt::format(" {}", made.proof.ranks[r].receive_buffers);
  }
  const std::string more = made.proof.ranks.size() > most ? " ..." : "";
  out +=
      fmt::format("          microbatches in flight by rank:{}{}; receive buffers:{}{}\n", flight, more, buffers, more);
  return out + proved;
}

}  // namespace

std::string to_text(const estimate::EstimatedPlan& plan, ActionFormat actions, estimate::Detail detail) {
  const bool full = detail == estimate::Detail::kFull;
  std::string out = fmt::format("plan of {}: {}\n", plan.recipe_path, verdict(plan)) + mesh_text(plan) +
                    sharing_text(plan) + model_text(plan) + teacher_text(plan) + adapters_text(plan) +
                    frozen_text(plan) + features_text(plan) + batch_text(plan);
  if (plan.pipeline) {
    if (!plan.pipeline->stages.empty() && (full || plan.pipelined)) out += stages_text(plan, full);
    if (plan.pipelined) {
      out += schedule_text(plan, full);
      const auto& timeline = plan.pipeline->timeline;
      if (timeline.makespan <= 40 && timeline.shape.ranks <= 8) out += schedule::timeline_text(timeline, 110);
    }
    if (plan.estimate) out += to_text(*plan.estimate, plan, detail);
    if (actions != ActionFormat::kNone) {
      const auto& rows =
          actions == ActionFormat::kCompute ? plan.pipeline->schedule.order : plan.pipeline->schedule.training;
      for (std::size_t r = 0; r < rows.size(); ++r) out += fmt::format("rank {}: {}\n", r, schedule::to_text(rows[r]));
    }
  }
  if (!plan.unsupported.empty()) {
    out += "not supported: this recipe can be planned, not trained\n";
    for (const auto& key : plan.unsupported) out += fmt::format("  {}: {}\n", key.key, key.reason);
  }
  if (!plan.ignored.empty()) {
    out += "ignored\n";
    for (const auto& key : plan.ignored) out += fmt::format("  {}: {}\n", key.key, key.reason);
  }
  return out;
}

}  // namespace automodel::report
