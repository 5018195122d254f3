#include "data/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace automodel::data {
namespace {

/// Validates the section and derives the sampler's options from it.
SamplerOptions sampler_options(const config::DataloaderConfig& config, const LoaderOptions& options,
                               Diagnostics& problems) {
  SamplerOptions out;
  out.global_batch_size = options.global_batch_size;
  out.local_batch_size = options.local_batch_size;
  out.dp_size = options.dp_size;
  out.shuffle = config.shuffle().value_or(options.training);
  out.drop_last = config.drop_last();
  out.seed = options.seed;
  if (!options.training) {
    out.global_batch_size = out.local_batch_size * out.dp_size;
  } else if (config.batch_size() && *config.batch_size() != options.local_batch_size) {
    problems.add("bad-value", options.key + ".batch_size")
        .says("batch_size {} is not step_scheduler.local_batch_size {}", *config.batch_size(), options.local_batch_size)
        .hint("leave it out, or write {}", options.local_batch_size);
  }
  return out;
}

}  // namespace

std::unique_ptr<Loader> Loader::make(std::shared_ptr<const Dataset> dataset, const config::DataloaderConfig& config,
                                     const LoaderOptions& options, Diagnostics& problems) {
  const std::size_t before = problems.size();
  SamplerOptions sampling = sampler_options(config, options, problems);
  if (sampling.drop_last && dataset->size() < sampling.global_batch_size)
    problems.add("empty-data", options.key + ".drop_last")
        .says("drop_last leaves nothing of {} samples in global batches of {}", dataset->size(),
              sampling.global_batch_size)
        .hint("set drop_last: false, or make the global batch smaller");
  if (problems.size() > before) return nullptr;
  sampling.continues = dataset->endless();
  if (config.group_by_length()) sampling.length = [dataset](std::int64_t sample) { return dataset->length(sample); };
  const Padding padding = dataset->padding();
  auto loader = std::unique_ptr<Loader>(new Loader);
  loader->sampler_ = std::make_unique<const Sampler>(dataset->size(), std::move(sampling));
  loader->batch_ = {padding.id, std::lcm<std::int64_t, std::int64_t>(padding.multiple, options.multiple),
                    std::max(padding.shortest, options.shortest), options.ignore_index};
  loader->dp_rank_ = options.dp_rank;
  loader->dataset_ = std::move(dataset);
  return loader;
}

std::vector<Batch> Loader::load(std::int64_t epoch, std::int64_t step_in_epoch) const {
  std::vector<Batch> out;
  for (std::int64_t run = 0; run < sampler_->runs_of(step_in_epoch); ++run) {
    auto indices = sampler_->rows(epoch, step_in_epoch, run, dp_rank_);
    std::vector<Sample> rows(indices.size(), Sample{.pixels = pixels_});
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (indices[i] != kNoSample) dataset_->read(indices[i], rows[i]);
    out.push_back(make_batch(rows, std::move(indices), batch_));
  }
  return out;
}

}  // namespace automodel::data
