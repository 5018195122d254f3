// `dataset:`, `validation_dataset:` and their dataloaders.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/types.h"

namespace automodel::config {

/// One path or several; files, folders (every text file below) and globs.
struct PathList {
  std::vector<std::string> paths = {};
  bool operator==(const PathList&) const = default;
  static TypeInfo config_type();
};

struct TextDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("text")};
  static constexpr std::string_view kDoc = "Plain text, joined and cut into sequences.";
  Field<PathList> paths{
      "paths|path", {}, "Files, folders and globs; relative to the recipe's folder, else to the working directory."};
  Field<std::optional<std::string>> tokenizer{
      "tokenizer", "bytes",
      "A folder with tokenizer.json, or `bytes` for a byte-level vocabulary (256 bytes and 3 specials)."};
  Field<int> seq_length{"seq_length|seq_len", 1024, "Tokens of a sequence.", at_least<1>};
};

struct TokensDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("tokens")};
  static constexpr std::string_view kDoc = "JSON lines of token ids: {\"input_ids\": [...], \"labels\": [...]}.";
  Field<PathList> paths{"path|paths", {}, "JSONL files."};
  Field<std::optional<int>> seq_length{"seq_length|seq_len", std::nullopt,
                                       "Longest row accepted; null: what the model takes.", at_least<1>};
  Field<int> pad_token_id{"pad_token_id", 0, "Token that shorter rows of a batch are filled with.", at_least<0>};
  Field<int> pad_to_multiple_of{"pad_to_multiple_of", 1, "Rows are filled to a multiple of this.", at_least<1>};
};

struct MockDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("mock"),
      std::string_view("nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset"),
      std::string_view("nemo_automodel.components.datasets.llm.mock.build_unpacked_dataset")};
  static constexpr std::string_view kDoc = "Random tokens from the seed.";
  Field<int> vocab_size{"vocab_size", 1024, "Tokens are drawn from 0 to this.", at_least<1>};
  Field<int> seq_length{"seq_length|seq_len", 1024, "Tokens of a sequence.", at_least<1>};
  Field<int> num_samples{"num_samples|num_sentences", 1'000'000, "Sequences of an epoch.", at_least<1>};
  Field<int> batch_size{"batch_size", 1, "Sequences that NeMo AutoModel's iterator yields.",
                        Ignored{"step_scheduler.local_batch_size says how many sequences a rank takes"}};
};

using DatasetConfig = std::variant<TextDatasetConfig, TokensDatasetConfig, MockDatasetConfig>;

struct DataloaderConfig {
  using IsSection = void;
  Field<std::optional<std::string>> target{"_target_", std::nullopt, "Class of the loader.",
                                           Ignored{"there is one loader"}};
  Field<std::optional<bool>> shuffle{"shuffle", std::nullopt,
                                     "Shuffle each epoch; null: yes for training, no for validation."};
  Field<std::optional<int>> batch_size{"batch_size", std::nullopt,
                                       "Sequences a rank loads at once; null: step_scheduler.local_batch_size.",
                                       at_least<1>};
  Field<int> num_workers{"num_workers", 0, "Loader processes.", Ignored{"one thread prepares the next batch"}};
  Field<bool> pin_memory{"pin_memory", false, "Page-locked batches.",
                         Ignored{"batches are page-locked where the device is CUDA"}};
  Field<bool> persistent_workers{"persistent_workers", false, "Keep loader processes.",
                                 Ignored{"one thread prepares the next batch"}};
  Field<std::optional<int>> prefetch_factor{"prefetch_factor", std::nullopt, "Batches ahead.",
                                            Ignored{"one thread prepares the next batch"}};
  Field<bool> drop_last{"drop_last", false, "Drop the last, smaller batch of an epoch."};
  Field<Value> collate_fn{"collate_fn", nullptr, "Python function.",
                          Ignored{"rows are padded to the longest of a batch"}};
  Field<bool> group_by_length{"group_by_length", false, "Batch rows of like length."};
  Field<int> shuffle_buffer_size{"shuffle_buffer_size", 10000, "Buffer of a streaming shuffle.",
                                 Ignored{"shuffling is a permutation of the whole epoch; it needs no buffer"}};
  Field<std::optional<std::string>> dataloader_type{
      "dataloader_type", std::nullopt, "Megatron's kind of sampler: single or cyclic.",
      Ignored{"data is read in order, or shuffled where shuffle says so"}};
};

}  // namespace automodel::config
