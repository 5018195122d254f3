#include "data/batch.h"

#include <catch2/catch.hpp>

#include "data/loader.h"
#include "data/open_dataset.h"

namespace automodel::data {
namespace {

using Ids = std::vector<std::int64_t>;

std::unique_ptr<Dataset> mock(int vocab, int length, int samples) {
  config::MockDatasetConfig config;
  config.vocab_size = vocab;
  config.seq_length = length;
  config.num_samples = samples;
  Diagnostics problems;
  auto dataset = open_dataset(config, {}, problems);
  REQUIRE(problems.empty());
  return dataset;
}

}  // namespace

TEST_CASE("rows are padded to the longest, rounded up to a multiple, and tokens are counted", "[data]") {
  const std::vector<Sample> rows = {{{1, 2, 3}, {2, 3, -100}}, {{4, 5, 6, 7, 8}, {5, -100, 7, 8, -100}}, {}};
  const Batch batch = make_batch(rows, {10, 11, -1}, {.pad_id = 9, .multiple = 4});
  CHECK(batch.rows == 3);
  CHECK(batch.length == 8);
  CHECK(batch.input_ids == Ids{1, 2, 3, 9, 9, 9, 9, 9, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9});
  CHECK(batch.labels == Ids{2,    3,    -100, -100, -100, -100, -100, -100, 5,    -100, 7,    8,
                            -100, -100, -100, -100, -100, -100, -100, -100, -100, -100, -100, -100});
  CHECK(batch.positions == Ids{0, 1, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.segments ==
        std::vector<std::int32_t>{1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(!batch.needs_segments);
  CHECK(batch.num_tokens == 8);
  CHECK(batch.num_label_tokens == 5);
  CHECK(batch.samples == Ids{10, 11, -1});
}

TEST_CASE("segments and positions of a packed row are kept, and padding inside a row is not counted", "[data]") {
  const std::vector<Sample> rows = {{{0, 1, 2, 3}, {1, 2, 3, -100}, {0, 1, 1, 2}, {}},
                                    {{5, 6, 7, 8}, {6, -100, 8, -100}, {1, 1, 2, 2}, {0, 1, 0, 1}}};
  const Batch batch = make_batch(rows, {0, 1}, {.shortest = 5});
  CHECK(batch.length == 5);
  CHECK(batch.needs_segments);
  CHECK(batch.segments == std::vector<std::int32_t>{0, 1, 1, 2, 0, 1, 1, 2, 2, 0});
  CHECK(batch.positions == Ids{0, 1, 2, 3, 0, 0, 1, 0, 1, 0});
  CHECK(batch.labels == Ids{-100, 2, 3, -100, -100, 6, -100, 8, -100, -100});
  CHECK(batch.num_tokens == 7);
  CHECK(batch.num_label_tokens == 4);
}

TEST_CASE("padding inside a pack keeps the position that the pack gives it", "[data]") {
  // If it were the index in the row, the longest document would seem as long as the pack, which changes LongRoPE.
  const std::vector<Sample> rows = {{{1, 2, 0, 3}, {2, -100, -100, -100}, {1, 1, 0, 2}, {0, 1, 0, 0}}};
  CHECK(make_batch(rows, {0}, {}).positions == Ids{0, 1, 0, 0});
}

TEST_CASE("labels equal to the loss's ignore_index are not counted", "[data]") {
  const std::vector<Sample> rows = {{{1, 2, 3}, {2, 3, -100}}};
  const Batch batch = make_batch(rows, {0}, {.ignore_index = 3});
  CHECK(batch.labels == Ids{2, -100, -100});
  CHECK(batch.num_label_tokens == 1);
}

TEST_CASE("the number of label tokens per step is the same for every mesh", "[data]") {
  const std::shared_ptr<const Dataset> dataset = mock(50, 16, 21);
  const auto counted = [&](std::int64_t local, std::int64_t dp) {
    std::vector<std::int64_t> out;
    for (std::int64_t step = 0; step < 3; ++step) {
      std::int64_t tokens = 0;
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        Diagnostics problems;
        const auto loader = Loader::make(
            dataset, {}, {.global_batch_size = 8, .local_batch_size = local, .dp_size = dp, .dp_rank = rank}, problems);
        REQUIRE(loader);
        for (const auto& batch : loader->load(4, step)) {
          CHECK((batch.rows == local && batch.length == 16));  // shapes never change
          tokens += batch.num_label_tokens;
        }
      }
      out.push_back(tokens);
    }
    return out;
  };
  CHECK(counted(8, 1) == Ids{8 * 15, 8 * 15, 5 * 15});
  CHECK(counted(1, 8) == counted(8, 1));
  CHECK(counted(2, 2) == counted(8, 1));
}

TEST_CASE("a local batch that is empty on all ranks is skipped, one that is empty on some ranks is kept", "[data]") {
  const std::shared_ptr<const Dataset> dataset = mock(50, 4, 5);
  Diagnostics problems;
  const auto second =
      Loader::make(dataset, {}, {.global_batch_size = 8, .local_batch_size = 1, .dp_size = 2, .dp_rank = 1}, problems);
  const auto batches = second->load(0, 0);
  REQUIRE(batches.size() == 3);
  CHECK(batches[1].num_label_tokens == 3);
  CHECK(batches[2].samples == Ids{kNoSample});
  CHECK(batches[2].num_tokens == 0);
  CHECK(batches[2].length == 4);
}

TEST_CASE("mock rows are random, have no label at the last position, and differ between datasets", "[data]") {
  const auto a = mock(7, 100, 3);
  Sample sample;
  a->read(2, sample);
  REQUIRE(sample.input_ids.size() == 100);
  for (std::size_t t = 0; t + 1 < 100; ++t) REQUIRE(sample.labels[t] == sample.input_ids[t + 1]);
  CHECK(sample.labels[99] == kIgnoredLabel);
  CHECK(*std::max_element(sample.input_ids.begin(), sample.input_ids.end()) == 6);
  CHECK(*std::min_element(sample.input_ids.begin(), sample.input_ids.end()) == 0);
  const auto first = sample.input_ids;
  a->read(1, sample);
  CHECK(sample.input_ids != first);
  a->read(2, sample);
  CHECK(sample.input_ids == first);
  Diagnostics problems;
  config::MockDatasetConfig config;
  config.vocab_size = 7;
  config.seq_length = 100;
  open_dataset(config, {.key = "validation_dataset"}, problems)->read(2, sample);
  CHECK(sample.input_ids != first);
}

TEST_CASE("a mock dataset without a vocabulary draws below 1024 or a smaller model's vocabulary", "[data]") {
  const auto most = [](std::optional<std::int64_t> vocabulary) {
    config::MockDatasetConfig config;
    config.seq_length = 20'000;
    Diagnostics problems;
    const auto data = open_dataset(config, {.key = "dataset", .vocab_size = vocabulary}, problems);
    REQUIRE(data);
    Sample sample;
    data->read(0, sample);
    return *std::ranges::max_element(sample.input_ids);
  };
  CHECK(most(std::nullopt) == 1023);
  CHECK(most(50'000) == 1023);
  CHECK(most(99) == 98);
}

TEST_CASE("a mock dataset that exceeds the model's limits is refused with the limits", "[data]") {
  config::MockDatasetConfig config;
  config.vocab_size = 100;
  config.seq_length = 64;
  Diagnostics problems;
  CHECK(!open_dataset(config, {.vocab_size = 99, .max_length = 32}, problems));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].id == "token-out-of-range");
  CHECK(problems[0].help == "vocab_size must be at most 99");
  CHECK(problems[1].id == "sequence-too-long");
  CHECK(problems[1].key == "dataset.seq_length");
}

TEST_CASE("the dataloader section is checked, and validation rows keep their order", "[data]") {
  const std::shared_ptr<const Dataset> dataset = mock(50, 4, 5);
  config::DataloaderConfig config;
  config.batch_size = 3;
  config.drop_last = true;
  Diagnostics problems;
  CHECK(!Loader::make(dataset, config, {.global_batch_size = 8, .local_batch_size = 2}, problems));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].key == "dataloader.batch_size");
  CHECK(problems[1].id == "empty-data");
  problems.clear();
  config.drop_last = false;
  const auto validation =
      Loader::make(dataset, config, {.training = false, .global_batch_size = 8, .local_batch_size = 2}, problems);
  REQUIRE(validation);
  CHECK(validation->sampler().steps_per_epoch() == 3);
  CHECK(validation->load(0, 0)[0].samples == Ids{0, 1});
  CHECK(validation->load(0, 2)[0].samples == Ids{4, kNoSample});
}

}  // namespace automodel::data
