#include "train/feature_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "arch/modules.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/find_file.h"
#include "base/log.h"
#include "base/version.h"
#include "comm/solo_communicator.h"
#include "data/content_hash.h"
#include "data/picture_source.h"
#include "data/token_store.h"
#include "model/vision_tower.h"
#include "ops/graph.h"
#include "ops/scalar_type.h"
#include "plan/vision_choice.h"
#include "train/microbatches.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

/// A run that is interrupted keeps the files that are complete: a rank begins another behind so many bytes.
constexpr std::uint64_t kFile = std::uint64_t{256} << 20U;

/// An open data set and where the recipe names it.
struct PictureSet {
  const data::Dataset* rows;
  std::string key;
  std::string source;  ///< what it is read from; empty: several, or drawn
};

/// A row, and which of its pictures no earlier row has.
struct PictureRow {
  const PictureSet* set;
  std::int64_t index;
  std::vector<std::pair<std::size_t, pictures::PictureMark>> own = {};
};

/// What each part of a data section is read from.
std::vector<std::string> sources_of(const config::DatasetConfig& section) {
  std::vector<std::string> out;
  config::each_part(section, [&](const auto& part) {
    if constexpr (requires { std::string(part.path_or_dataset()); })
      out.push_back(part.path_or_dataset());
    else if constexpr (requires { part.path_or_dataset_id().paths; })
      out.push_back(fmt::format("{}", fmt::join(part.path_or_dataset_id().paths, ", ")));
    else
      out.emplace_back();
  });
  return out;
}

std::vector<PictureSet> sets_of(const Setup& setup) {
  std::vector<PictureSet> out;
  std::vector<std::pair<std::string, std::vector<std::string>>> sections;  // in the order of their loaders
  config::for_each_set(setup.recipe(), [&](const config::DatasetConfig& section, const std::string& key) {
    sections.emplace_back(key, sources_of(section));
  });
  auto next = sections.begin();
  const auto add = [&](const data::Loader& loader) {
    const auto parts = loader.dataset().parts();
    const auto& [key, sources] = *next++;
    for (std::size_t i = 0; i < parts.size(); ++i)  // one, if the rows of a mixture are packed
      out.push_back({parts[i].rows, parts.size() > 1 ? fmt::format("{}.datasets.{}.dataset", key, i) : key,
                     parts.size() == sources.size() ? sources[i] : ""});
  };
  add(*setup.loader);
  for (const auto& [name, loader] : setup.validation) add(*loader);
  return out;
}

/// They refer to `sets`.
std::vector<PictureRow> rows_of(const std::vector<PictureSet>& sets) {
  std::vector<PictureRow> out;
  std::set<pictures::PictureContent> seen;
  for (const auto& set : sets)
    for (std::int64_t index = 0; index < set.rows->size(); ++index) {
      PictureRow row{&set, index};
      const auto marks = set.rows->pictures(index);
      for (std::size_t i = 0; i < marks.size(); ++i)
        if (seen.insert(marks[i].content).second) row.own.emplace_back(i, marks[i]);
      if (!row.own.empty()) out.push_back(std::move(row));
    }
  return out;
}

fs::path folder_of(const Setup& setup) {
  std::optional<std::string> configured;
  plan::each_with_features(setup.recipe(), [&](const auto& section, const std::string& /*key*/) {
    if (!configured) configured = section.cache_dir();
  });
  return data::token_cache_folder(configured);
}

double over_ranks(comm::World& world, double value, comm::ReduceOp op) {
  auto all = at::tensor({value}, at::TensorOptions().dtype(at::kDouble));
  world.control().all_reduce(all, op)->wait();
  return all.item<double>();
}

/// Every setting of a processor as text; a new one must be added here to compile.
std::string text_of(const pictures::Processor& processor) {
  const auto& [shortest_edge, exact, patches, resize, resampling, crop, rescale, normalize, mean, deviation, row_end,
               picture_end, picture_begin] = processor;
  const auto size = [](const std::optional<pictures::Size>& value) {
    return value ? fmt::format("{} x {}", value->width, value->height) : std::string("-");
  };
  auto out =
      fmt::format("{} {} {} {} {} {:a} {} {:a} {:a} {:a} {:a} {:a} {:a} {} {} {}", shortest_edge.value_or(0),
                  size(exact), resize, static_cast<int>(resampling), size(crop), rescale, normalize, mean[0], mean[1],
                  mean[2], deviation[0], deviation[1], deviation[2], row_end, picture_end, picture_begin);
  if (!patches) return out;
  const auto& [patch, merge, frames, least, most, longest_edge, soft_tokens, grid_tokens, parts, positions] = *patches;
  out += fmt::format(" {} {} {} {} {} {} {} {} {}", patch, merge, frames, least, most, longest_edge.value_or(0),
                     soft_tokens.value_or(0), grid_tokens.value_or(0), positions);
  if (!parts) return out;
  const auto& [whole, part, longest] = *parts;
  return out + fmt::format(" {} {} {}", whole, part, longest);
}

std::vector<arch::Parameter> cached_parameters(const plan::TrainingPlan& plan) {
  std::vector<arch::Parameter> out;
  for (auto& info : arch::parameters(plan.model->layout)) {
    if (!info.cached) continue;
    info.cached = false;  // here they are
    info.frozen = true;
    out.push_back(std::move(info));
  }
  return out;
}

/// The part of the tower that is cached, on this rank's device.
class FrozenTower {
 public:
  FrozenTower(const Setup& setup, const parallel::WeightSource& source)
      : weights_(cached_parameters(setup.plan), [](const arch::Parameter&) { return model::Placement(); }),
        options_{.compute = scalar_type(setup.plan.types.compute),
                 .master = scalar_type(setup.plan.types.compute),
                 .device = setup.world.device()},
        alone_{std::make_shared<comm::SoloCommunicator>(setup.world.rank(), "features"), nullptr} {
    if (const auto& autocast = setup.plan.execution.precision.autocast)
      weights_.set_matmul_type(scalar_type(*autocast));
    for (const auto& unit : weights_.units()) {
      storage_.push_back(std::make_unique<parallel::UnitStorage>(unit, options_, alone_));
      storage_.back()->bind(source);
    }
    tower_ = model::make_vision_tower(*setup.plan.model->spec.vision, {weights_});
  }

  /// What it gives for a picture: [rows, values], on the host.
  at::Tensor outputs(const pictures::PicturePtr& picture, const pictures::Processor& processor) const {
    const ops::NoGraph guard;
    auto values = picture_values({picture}, processor, options_.device);
    values.pixels = values.pixels.to(options_.compute);
    return tower_->forward(values, ops::anchor(options_.device)).joined().to(at::kCPU, options_.compute).contiguous();
  }

 private:
  model::Weights weights_;
  parallel::StorageOptions options_;
  parallel::ReduceGroups alone_;
  std::vector<std::unique_ptr<parallel::UnitStorage>> storage_ = {};
  std::unique_ptr<const model::VisionTower> tower_;
};

class Caching {
 public:
  Caching(const Setup& setup, const parallel::WeightSource& weights)
      : setup_(setup),
        world_(setup.world),
        weights_(weights),
        tokens_(*plan::picture_tokens(*setup.plan.model)),
        folder_(folder_of(setup)),
        sets_(sets_of(setup)),
        rows_(rows_of(sets_)) {}

  FeatureCache run() {
    const auto begin = std::chrono::steady_clock::now();
    key_ = world_.broadcast_text(world_.rank() == 0 ? make_key() : "");
    open();
    check_room();
    const auto first = missing();
    if (first > 0) fill(world_.rank(), world_.size(), true);
    if (missing() > 0) fill(world_.local_rank(), world_.local_size(), false);
    if (const auto rest = missing(); rest > 0)
      throw Error(ExitCode::kEnvironment,
                  Diagnostic{"features-damaged"}
                      .says("outputs of {} pictures are not in '{}' although they were written", rest, folder_.native())
                      .hint("another process removes files there: set dataset.cache_dir to a folder of your own"));
    if (world_.local_rank() == 0)  // those that were not replaced
      for (const auto& file : store_->damaged())
        log::warning(fmt::format("'{}' is not whole, and of no use: remove it", file.native()));
    const auto [pictures, bytes] = held();
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return {store_, fmt::format("features  {} pictures, {} in {}: {}", pictures, format_bytes(bytes), folder_.native(),
                                first > 0 ? fmt::format("{} computed in {}", first, format_seconds(seconds))
                                          : std::string("all from an earlier run"))};
  }

 private:
  std::string make_key() const {
    const auto& plan = setup_.plan;
    data::ContentHash hash;
    hash.add("features 1");
    hash.add(kVersion);
    hash.add(plan.model->config_text);
    hash.add(text_of(*tokens_.processor));
    hash.add(fmt::format("{} {} {}", name_of(plan.types.compute),
                         plan.execution.precision.autocast ? name_of(*plan.execution.precision.autocast) : "-",
                         plan.cuda));
    for (const auto& info : cached_parameters(plan)) {
      const auto values =
          at::empty({info.shape.elements()}, at::TensorOptions().dtype(scalar_type(plan.types.compute)));
      weights_(model::whole_weight(info), 0, values);
      hash.add(info.fqn);
      hash.add(bytes_of(values));
    }
    return hash.hex();
  }

  static std::string_view bytes_of(const at::Tensor& values) {
    return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
  }

  void open() { store_ = std::make_shared<const data::FeatureStore>(folder_, key_); }

  bool lacks(const PictureRow& row) const {
    return std::ranges::any_of(row.own, [&](const auto& each) { return !store_->has(each.second.content); });
  }

  /// Pictures that the store lacks, on the rank that lacks most. Collective.
  std::int64_t missing() const {
    double own = 0;
    for (const auto& row : rows_)
      for (const auto& [number, mark] : row.own) own += store_->has(mark.content) ? 0 : 1;
    return static_cast<std::int64_t>(over_ranks(world_, own, comm::ReduceOp::kMax));
  }

  /// Pictures of this run, and the bytes that the store has of them. It may have those of other runs, too.
  std::pair<std::int64_t, double> held() const {
    std::pair<std::int64_t, double> out;
    for (const auto& row : rows_)
      for (const auto& [number, mark] : row.own) {
        ++out.first;
        out.second += static_cast<double>(store_->bytes(mark.content));
      }
    return out;
  }

  /// The problem, with its place in the recipe.
  [[noreturn]] void refuse(Diagnostic problem) const {
    Diagnostics all;
    all.push_back(std::move(problem));
    locate(all, setup_.loaded.origins);
    throw Error(ExitCode::kEnvironment, std::move(all));
  }

  /// Before anything is computed. A folder that has it all need not take more.
  void check_room() const {
    double tokens = 0;
    for (const auto& row : rows_)
      for (const auto& [number, mark] : row.own)
        if (!store_->has(mark.content)) tokens += tokens_.placeholders(mark.size);
    if (tokens == 0) return;
    if (auto closed = data::closed_to_features(folder_)) refuse(std::move(*closed));
    const double needed = setup_.plan.features->bytes(tokens, size_of(setup_.plan.types.compute));
    const auto room = free_bytes(folder_);
    if (!room || needed <= *room) return;
    refuse(Diagnostic{"disk-space"}
               .says("outputs of the tower take {}, but the disk of '{}' has {} left", format_bytes(needed),
                     folder_.native(), format_bytes(*room))
               .hint("free some, choose another dataset.cache_dir, or set dataset.cache_features: false")
               .of("dataset.cache_features"));
  }

  /// Computes what the store lacks of the rows that are `rank`'s among `ranks`. `even`: the rows that lack something
  /// are divided, rather than all, so that ranks have as many of them. Those that see different files, which other runs
  /// or hosts wrote, may then leave rows out, so the last call does not. Collective over all ranks: they meet after a
  /// few rows, so that none waits for a slower one until that looks like a hang.
  void fill(int rank, int ranks, bool even) {
    constexpr std::size_t kRows = 16;
    world_.activity().begin_action("compute outputs of the tower");
    std::vector<const PictureRow*> own;
    std::size_t turn = 0;
    for (const auto& row : rows_) {
      const bool lacking = lacks(row);
      if (lacking && turn % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank)) own.push_back(&row);
      if (lacking || !even) ++turn;
    }
    std::optional<FrozenTower> tower;
    std::optional<data::FeatureWriter> writer;
    std::size_t next = 0;
    while (const double left = over_ranks(world_, static_cast<double>(own.size() - next), comm::ReduceOp::kMax)) {
      tell(left);
      for (const auto end = std::min(own.size(), next + kRows); next < end; ++next) {
        if (!tower) tower.emplace(setup_, weights_);
        compute(*own[next], *tower, writer);
      }
    }
    if (writer) writer->finish();
    world_.control().barrier()->wait();
    open();
  }

  /// Says every now and then how much is left.
  void tell(double left) {
    constexpr std::chrono::seconds kPause{20};
    const auto now = std::chrono::steady_clock::now();
    if (world_.rank() != 0 || now - told_ < kPause) return;
    told_ = now;
    log::info(fmt::format("outputs of the tower: {:.0f} rows with pictures left on the slowest of {} ranks", left,
                          world_.size()));
  }

  /// Each picture alone, so that its outputs depend on no other picture and on no number of ranks.
  void compute(const PictureRow& row, const FrozenTower& tower, std::optional<data::FeatureWriter>& writer) const {
    data::Sample sample;
    row.set->rows->read(row.index, sample);
    for (const auto& [number, mark] : row.own) {
      if (store_->has(mark.content)) continue;
      const auto& picture = sample.pictures[number];
      if (data::content_of(*picture) != mark.content)
        refuse(Diagnostic{"bad-row"}
                   .says("picture {} of row {} of {}{} has changed since the data set was opened", number, row.index,
                         row.set->key, row.set->source.empty() ? "" : fmt::format(" ('{}')", row.set->source))
                   .hint("start again when the pictures stay as they are")
                   .of(row.set->key));
      const auto outputs = tower.outputs(picture, *tokens_.processor);
      if (!writer) writer.emplace(folder_, key_, static_cast<std::uint64_t>(outputs.size(1)) * outputs.element_size());
      writer->add(mark.content, bytes_of(outputs));
    }
    if (!writer || writer->bytes() < kFile) return;
    writer->finish();
    writer.reset();
  }

  const Setup& setup_;
  comm::World& world_;
  const parallel::WeightSource& weights_;
  pictures::PictureTokens tokens_;
  fs::path folder_;
  std::vector<PictureSet> sets_;
  std::vector<PictureRow> rows_;
  std::string key_ = {};
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  std::shared_ptr<const data::FeatureStore> store_ = {};
};

}  // namespace

plan::PictureFacts picture_facts(const Setup& setup) {
  const auto tokens = *plan::picture_tokens(*setup.plan.model);
  plan::PictureFacts out;
  const auto sets = sets_of(setup);
  for (const auto& row : rows_of(sets))
    for (const auto& [number, mark] : row.own) ++out.pictures, out.tokens += tokens.placeholders(mark.size);
  double read = 0, weight = 0;  // pictures of a row of training, on average
  for (const auto& part : setup.loader->dataset().parts()) {
    double own = 0;
    for (std::int64_t index = 0; index < part.rows->size(); ++index)
      own += static_cast<double>(part.rows->pictures(index).size());
    read += part.share * own / static_cast<double>(part.rows->size());
    weight += part.share;
  }
  out.reads = read / weight * static_cast<double>(setup.steps->total_steps()) * setup.plan.batch.global;
  // Which files there are this run's follows from weights that are not open yet: all counts as if it had to be written.
  const auto folder = folder_of(setup);
  const double room = data::closed_to_features(folder) ? 0 : free_bytes(folder).value_or(1e300);
  const double least = over_ranks(setup.world, room, comm::ReduceOp::kMin);
  if (least < 1e300) out.room = least;
  return out;
}

FeatureCache cache_features(const Setup& setup, const parallel::WeightSource& weights) {
  if (!setup.plan.features || !setup.plan.features->cached) return {};
  return Caching(setup, weights).run();
}

}  // namespace automodel::train
