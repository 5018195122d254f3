// `dataset:`, `validation_dataset:` and their dataloaders.
#pragma once

#include <algorithm>
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
  Field<Value> mean_len{"mean_len", nullptr, "Mean length.", Ignored{"every row has seq_length tokens"}};
  Field<Value> std_len{"std_len", nullptr, "Spread of lengths.", Ignored{"every row has seq_length tokens"}};
  Field<Value> max_sentence_len{"max_sentence_len", nullptr, "Longest row.",
                                Ignored{"every row has seq_length tokens"}};
  Field<Value> seed{"seed", nullptr, "Seed of the rows.", Ignored{"the recipe's seed makes the rows"}};
  Field<int> batch_size{"batch_size", 1, "Sequences that NeMo AutoModel's iterator yields.",
                        Ignored{"step_scheduler.local_batch_size says how many sequences a rank takes"}};
};

/// Data of NeMo AutoModel that is not read here: a recipe with it is planned, not trained.
template <const auto& kTargets>
struct ForeignDatasetConfig {
  using IsSection = void;
  static constexpr auto targets = kTargets;
  static constexpr std::string_view kDoc = "Data that only plans know.";
  static constexpr std::string_view kPlanOnly = "this data set is not read here; text, tokens and mock are";
  Field<std::optional<int>> seq_length{"seq_length|seq_len|sequence_length|max_length", std::nullopt,
                                       "Tokens of a sequence, for estimates.", at_least<1>};
  Field<Value> rest{Rest{[](std::string_view) { return true; }}, {}, "Everything else."};
};

inline constexpr std::array kHellaSwag = {
    std::string_view("hellaswag"), std::string_view("nemo_automodel.components.datasets.llm.hellaswag.HellaSwag")};
inline constexpr std::array kSquad = {
    std::string_view("squad"), std::string_view("nemo_automodel.components.datasets.llm.squad.make_squad_dataset")};
inline constexpr std::array kChat = {
    std::string_view("nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset"),
    std::string_view("nemo_automodel.components.datasets.llm.ChatDataset")};
inline constexpr std::array kColumnMapped = {
    std::string_view("nemo_automodel.components.datasets.llm.column_mapped_text_instruction_dataset."
                     "ColumnMappedTextInstructionDataset"),
    std::string_view("nemo_automodel.components.datasets.llm.column_mapped_text_instruction_iterable_dataset."
                     "ColumnMappedTextInstructionIterableDataset")};
inline constexpr std::array kMegatronData = {
    std::string_view("nemo_automodel.components.datasets.llm.megatron_dataset.MegatronPretraining")};
inline constexpr std::array kNanogpt = {
    std::string_view("nemo_automodel.components.datasets.llm.nanogpt_dataset.NanogptDataset")};
inline constexpr std::array kOtherData = {
    std::string_view("nemo_automodel.components.datasets.llm.agent_chat.make_agent_chat_dataset"),
    std::string_view("nemo_automodel.components.datasets.llm.xlam.make_xlam_dataset"),
    std::string_view("nemo_automodel.components.datasets.llm.seq2seq.make_seq2seq_dataset"),
    std::string_view("nemo_automodel.components.datasets.llm.mock_prefix_tree.build_mock_rollout_dataset")};

using DatasetConfig =
    std::variant<TextDatasetConfig, TokensDatasetConfig, MockDatasetConfig, ForeignDatasetConfig<kHellaSwag>,
                 ForeignDatasetConfig<kSquad>, ForeignDatasetConfig<kChat>, ForeignDatasetConfig<kColumnMapped>,
                 ForeignDatasetConfig<kMegatronData>, ForeignDatasetConfig<kNanogpt>, ForeignDatasetConfig<kOtherData>>;

/// NeMo AutoModel's packing.
struct PackedSequenceConfig {
  using IsSection = void;
  Field<int> packed_sequence_size{"packed_sequence_size", 0, "Tokens of a packed sequence; 0: samples are not packed.",
                                  at_least<0>};
  Field<Value> rest{Rest{[](std::string_view key) {
                      constexpr std::array kKeys = {
                          std::string_view("packing_strategy"),   std::string_view("max_packs"),
                          std::string_view("prepacked"),          std::string_view("num_proc"),
                          std::string_view("pad_to_multiple_of"), std::string_view("drop_long_samples"),
                          std::string_view("split_across_pack")};
                      return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
                    }},
                    {},
                    "How; read where packed_sequence_size is not 0."};
};

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
