#include "plan/pipeline_layout.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace automodel::plan {
namespace {

constexpr std::string_view kFirstKey = "num_layers_in_first_pipeline_stage";
constexpr std::string_view kLastKey = "num_layers_in_last_pipeline_stage";
constexpr std::string_view kChunksKey = "virtual_pipeline_model_parallel_size";
constexpr std::string_view kMegatronPpKey = "pipeline_model_parallel_size";
constexpr std::string_view kLayoutKey = "pipeline_model_parallel_layout";
constexpr int kMost = 1 << 16;

using Request = PipelineLayoutRequest;

/// A problem with the numbers of a request, if any.
using Fault = std::optional<Diagnostic>;

bool uneven(const Request& r) {
  return r.first_rank_layers || r.last_rank_layers;
}

Fault check_numbers(const Request& r) {
  if (r.layers < 1 || r.layers > kMost || r.pp_size < 1 || r.pp_size > kMost || r.chunks.value_or(1) < 1 ||
      r.chunks.value_or(1) > kMost)
    return Diagnostic{"bad-value"}
        .says("{} layers on {} ranks with {} chunks", r.layers, r.pp_size, r.chunks.value_or(1))
        .hint("each number must be from 1 to {}", kMost)
        .of(std::string(kMegatronPpKey));
  if (r.chunks.value_or(1) > 1 && r.pp_size == 1)
    return Diagnostic{"bad-value"}
        .says("{} chunks of layers on a single pipeline rank", *r.chunks)
        .hint("chunks need at least two pipeline ranks")
        .of(std::string(kChunksKey));
  if (uneven(r) && (r.account_for_embedding || r.account_for_loss))
    return Diagnostic{"bad-value"}
        .says("numbers of layers for the ends together with account_for_embedding or account_for_loss")
        .hint("use one of them")
        .of(std::string(kFirstKey));
  return {};
}

/// Uneven ends: the remaining layers must divide evenly over the ranks in between, and every rank's layers over its
/// chunks.
Fault check_uneven(const Request& r) {
  const int chunks = r.chunks.value_or(1);
  const int first = r.first_rank_layers.value_or(0);
  const int last = r.last_rank_layers.value_or(0);
  const int given = (r.first_rank_layers ? 1 : 0) + (r.last_rank_layers ? 1 : 0);
  const int ranks = r.pp_size - given;
  const std::string_view key = r.first_rank_layers ? kFirstKey : kLastKey;
  if (first < 0 || last < 0 || first > r.layers || last > r.layers - first || ranks < 0)
    return Diagnostic{"bad-value"}
        .says("{} first and {} last layers of {} on {} ranks", first, last, r.layers, r.pp_size)
        .hint("the ends cannot take more layers or ranks than there are")
        .of(std::string(key));
  if (first % chunks != 0)
    return Diagnostic{"indivisible"}
        .says("{} layers on the first rank in {} chunks", first, chunks)
        .hint("the chunks of a rank must have equal numbers of layers")
        .of(std::string(kFirstKey));
  if (last % chunks != 0)
    return Diagnostic{"indivisible"}
        .says("{} layers on the last rank in {} chunks", last, chunks)
        .hint("the chunks of a rank must have equal numbers of layers")
        .of(std::string(kLastKey));
  const int rest = r.layers - first - last;
  if ((rest == 0) != (ranks == 0))
    return Diagnostic{"bad-value"}
        .says("{} layers remain for {} ranks between the ends", rest, ranks)
        .hint("the ranks between the ends share the remaining layers")
        .of(std::string(key));
  if (ranks == 0) return {};
  if (rest % ranks != 0)
    return Diagnostic{"indivisible"}
        .says("{} layers remain for {} ranks between the ends", rest, ranks)
        .hint("the ranks between the ends have equal numbers of layers")
        .of(std::string(key));
  if (rest / ranks % chunks != 0)
    return Diagnostic{"indivisible"}
        .says("{} layers on each rank between the ends in {} chunks", rest / ranks, chunks)
        .hint("the chunks of a rank must have equal numbers of layers")
        .of(std::string(key));
  return {};
}

/// Even: the layers, plus embedding and loss if counted, must divide evenly over ranks and chunks.
Fault check_even(const Request& r) {
  const int chunks = r.chunks.value_or(1);
  const int counted = r.layers + (r.account_for_embedding ? 1 : 0) + (r.account_for_loss ? 1 : 0);
  const auto what = counted == r.layers
                        ? fmt::format("{} layers", r.layers)
                        : fmt::format("{} layers and {} of embedding and loss", r.layers, counted - r.layers);
  if (counted % r.pp_size != 0)
    return Diagnostic{"indivisible"}
        .says("{} on {} pipeline ranks", what, r.pp_size)
        .hint("every rank must have the same number of layers")
        .of(std::string(kMegatronPpKey));
  if (counted / r.pp_size % chunks != 0)
    return Diagnostic{"indivisible"}
        .says("{} on {} pipeline ranks in {} chunks", what, r.pp_size, chunks)
        .hint("the chunks of a rank must have equal numbers of layers")
        .of(std::string(kChunksKey));
  return {};
}

Fault check(const Request& r) {
  if (auto found = check_numbers(r)) return found;
  return uneven(r) ? check_uneven(r) : check_even(r);
}

/// ": use key: 3 or key: 5", for each setting, the nearest values that alone make the request valid.
std::string advice(const Request& request) {
  struct Knob {
    std::string_view key;
    bool present;
    int current;
    int least;
    std::function<void(Request&, int)> set;
  };
  const std::vector<Knob> knobs = {
      {kFirstKey, request.first_rank_layers.has_value(), request.first_rank_layers.value_or(0), 0,
       [](Request& r, int value) { r.first_rank_layers = value; }},
      {kLastKey, request.last_rank_layers.has_value(), request.last_rank_layers.value_or(0), 0,
       [](Request& r, int value) { r.last_rank_layers = value; }},
      {kChunksKey, request.chunks.has_value(), request.chunks.value_or(1), 1,
       [](Request& r, int value) { r.chunks = value; }},
      {kMegatronPpKey, true, request.pp_size, 1, [](Request& r, int value) { r.pp_size = value; }},
  };
  if (request.layers < 1 || request.layers > kMost) return "";
  std::vector<std::string> words;
  for (const auto& knob : knobs) {
    if (!knob.present) continue;
    const auto works = [&](int value) {
      Request changed = request;
      knob.set(changed, value);
      return !check(changed);
    };
    const int most = request.layers + 2;
    const auto add = [&](int value) { words.push_back(fmt::format("{}: {}", knob.key, value)); };
    for (int value = std::min(knob.current - 1, most); value >= knob.least; --value)
      if (works(value)) {
        add(value);
        break;
      }
    for (int value = std::max(knob.current + 1, knob.least); value <= most; ++value)
      if (works(value)) {
        add(value);
        break;
      }
  }
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    out += i == 0 ? "; use " : i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

/// Number of layers in one stage, for a request that passed check().
int stage_layers(const Request& r, int chunk, int rank) {
  const int chunks = r.chunks.value_or(1);
  if (!uneven(r)) {
    const int counted = r.layers + (r.account_for_embedding ? 1 : 0) + (r.account_for_loss ? 1 : 0);
    int out = counted / r.pp_size / chunks;
    if (r.account_for_embedding && chunk == 0 && rank == 0) --out;
    if (r.account_for_loss && chunk == chunks - 1 && rank == r.pp_size - 1) --out;
    return out;
  }
  if (r.first_rank_layers && rank == 0) return *r.first_rank_layers / chunks;
  if (r.last_rank_layers && rank == r.pp_size - 1) return *r.last_rank_layers / chunks;
  const int given = (r.first_rank_layers ? 1 : 0) + (r.last_rank_layers ? 1 : 0);
  return (r.layers - r.first_rank_layers.value_or(0) - r.last_rank_layers.value_or(0)) / (r.pp_size - given) / chunks;
}

PipelineLayout place_numbers(const Request& r) {
  PipelineLayout out;
  out.chunks = r.chunks;
  const int chunks = r.chunks.value_or(1);
  int next = 0;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int rank = 0; rank < r.pp_size; ++rank) {
      const int count = stage_layers(r, chunk, rank);
      const bool last = chunk == chunks - 1 && rank == r.pp_size - 1;
      out.stages.push_back({chunk,
                            rank,
                            {next, next + count},
                            chunk == 0 && rank == 0,
                            last && r.mtp_layers > 0,
                            last,
                            last ? r.mtp_layers : 0});
      next += count;
    }
  return out;
}

/// Checks the rules of a layout and reports violations.
class LayoutCheck {
 public:
  LayoutCheck(const Request& request, Diagnostics& problems) : request_(request), problems_(problems) {}

  bool run() {
    const std::size_t before = problems_.size();
    for (const auto& stage : *request_.layout)
      for (const LayerKind kind : stage) flat_.push_back(kind);
    counts();
    order();
    const auto stages = static_cast<int>(request_.layout->size());
    if (request_.pp_size < 1 || stages % request_.pp_size != 0)
      problems_.add("bad-value", std::string(kLayoutKey))
          .says("layout: {} stages on {} pipeline ranks", stages, request_.pp_size)
          .hint("the number of stages must be a multiple of the number of ranks");
    else
      mtp();
    return problems_.size() == before;
  }

 private:
  int count(LayerKind kind) const { return static_cast<int>(std::count(flat_.begin(), flat_.end(), kind)); }

  void counts() {
    const auto expect = [&](LayerKind kind, int wanted, std::string rule) {
      if (const int found = count(kind); found != wanted)
        problems_.add("bad-value", std::string(kLayoutKey))
            .says("layout: '{}' ({}) appears {} times, not {}", letter_of(kind), name_of(kind), found, wanted)
            .hint(std::move(rule));
    };
    expect(LayerKind::kEmbedding, 1, "the first stage begins with E");
    expect(LayerKind::kLoss, 1, "the last stage ends with L");
    expect(LayerKind::kDecoder, request_.layers,
           fmt::format("write one t per layer of the model: {}", request_.layers));
    expect(LayerKind::kMtp, request_.mtp_layers,
           fmt::format("write one m per multi-token-prediction layer of the model: {}", request_.mtp_layers));
  }

  void order() {
    if (flat_.empty()) return;
    const auto& stages = *request_.layout;
    if (stages.front().empty() || stages.front().front() != LayerKind::kEmbedding)
      problems_.add("bad-value", std::string(kLayoutKey))
          .says("layout: the first stage does not begin with the embedding")
          .hint("begin with E");
    if (stages.back().empty() || stages.back().back() != LayerKind::kLoss)
      problems_.add("bad-value", std::string(kLayoutKey))
          .says("layout: the last stage does not end with the loss")
          .hint("end with L");
    const auto mtp = std::find(flat_.begin(), flat_.end(), LayerKind::kMtp);
    if (std::find(mtp, flat_.end(), LayerKind::kDecoder) != flat_.end())
      problems_.add("bad-value", std::string(kLayoutKey))
          .says("layout: a layer (t) comes after multi-token prediction (m)")
          .hint("every t comes before the first m");
  }

  void mtp() {
    const auto& stages = *request_.layout;
    int holders = 0;
    bool early = false;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (std::find(stages[i].begin(), stages[i].end(), LayerKind::kMtp) == stages[i].end()) continue;
      ++holders;
      early |= i + static_cast<std::size_t>(request_.pp_size) < stages.size();
    }
    if (holders > 1)
      problems_.add("bad-value", std::string(kLayoutKey))
          .says("layout: multi-token prediction in several stages")
          .hint("every m is in the same stage");
    if (early)
      problems_.add("bad-value", std::string(kLayoutKey))
          .says("layout: multi-token prediction before the last chunk")
          .hint("m is in the last chunk of its rank");
  }

  const Request& request_;
  Diagnostics& problems_;
  std::vector<LayerKind> flat_ = {};
};

PipelineLayout place_layout(const Request& r) {
  PipelineLayout out;
  const auto& stages = *r.layout;
  const int chunks = static_cast<int>(stages.size()) / r.pp_size;
  if (chunks > 1) out.chunks = chunks;
  int next = 0;
  int mtp_rank = -1;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto has = [&](LayerKind kind) { return std::count(stages[i].begin(), stages[i].end(), kind) > 0; };
    const int index = static_cast<int>(i);
    const auto count = static_cast<int>(std::count(stages[i].begin(), stages[i].end(), LayerKind::kDecoder));
    out.stages.push_back({index / r.pp_size,
                          index % r.pp_size,
                          {next, next + count},
                          has(LayerKind::kEmbedding),
                          has(LayerKind::kMtp),
                          has(LayerKind::kLoss),
                          static_cast<int>(std::count(stages[i].begin(), stages[i].end(), LayerKind::kMtp))});
    if (out.stages.back().mtp) mtp_rank = index % r.pp_size;
    next += count;
  }
  out.mtp_apart = mtp_rank >= 0 && mtp_rank != r.pp_size - 1;
  return out;
}

}  // namespace

bool has_mtp(const LayerKinds& layout) {
  return std::any_of(layout.begin(), layout.end(), [](const auto& stage) {
    return std::find(stage.begin(), stage.end(), LayerKind::kMtp) != stage.end();
  });
}

std::optional<PipelineLayout> place_layers(const Request& request, Diagnostics& problems) {
  if (request.layout) {
    if (uneven(request) || request.account_for_embedding || request.account_for_loss || request.chunks) {
      problems.add("bad-value", std::string(kLayoutKey))
          .says("a layout together with other ways to place layers")
          .hint("a layout already decides everything");
      return std::nullopt;
    }
    if (!LayoutCheck(request, problems).run()) return std::nullopt;
    return place_layout(request);
  }
  if (auto found = check(request)) {
    found->help += advice(request);
    problems.push_back(std::move(*found));
    return std::nullopt;
  }
  return place_numbers(request);
}

StageFqns stage_fqns(const ModelNames& names, const PipelineLayout& layout) {
  std::vector<LayerRange> ranges;
  for (const auto& stage : layout.stages) ranges.push_back(stage.layers);
  return stage_fqns(names, ranges);
}

}  // namespace automodel::plan
