// The `dataset:` and `validation_dataset:` sections and their dataloaders.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "config/types.h"

namespace automodel::config {

/// One or several paths: files, folders (all text files below them) or globs.
struct PathList {
  std::vector<std::string> paths = {};
  bool operator==(const PathList&) const = default;
  static TypeInfo config_type();
};

/// `tokenizer:` a folder with tokenizer.json, a model name in the Hugging Face cache, or a mapping with the arguments
/// of `from_pretrained`; null or omitted: the model's own.
struct TokenizerSource {
  std::optional<std::string> path = std::nullopt;  ///< empty: the model's
  bool plain = false;  ///< behave like transformers' AutoTokenizer, without NeMo AutoModel's additions
  bool add_bos_token = false;
  bool add_eos_token = false;
  std::optional<std::string> revision = std::nullopt;
  std::optional<std::string> padding_side = std::nullopt;  ///< left or right
  std::optional<std::string> truncation_side = std::nullopt;
  Value written = {};  ///< as the recipe has it
  bool operator==(const TokenizerSource&) const = default;
  static TypeInfo config_type();
};

/// `collate_fn:` a Python function's name, or a mapping with _target_ and its arguments. NeMo AutoModel's functions for
/// pictures say how rows are made; those for text say nothing that is not said elsewhere.
struct CollateFunction {
  std::optional<int> max_length = std::nullopt;  ///< rows are cut and padded to it
  bool for_pictures = false;
  std::string answer_prefix = {};  ///< answers begin with it; empty: with nothing
  Value written = {};              ///< as the recipe has it
  bool operator==(const CollateFunction&) const = default;
  static TypeInfo config_type();
};

/// `post_tokenize_hook_fn:` the name of a Python function that changes the tokens of rows with pictures before their
/// labels are made; only NeMo AutoModel's for Gemma 4 is known.
struct TokenHook {
  std::string answer_prefix = {};  ///< what it puts in front of answers
  Value written = {};              ///< as the recipe has it
  bool operator==(const TokenHook&) const = default;
  static TypeInfo config_type();
};

/// How samples are padded: to the longest row of their batch (also for false and do_not_pad), or each to seq_length.
enum class SamplePadding { kBatch, kMaxLength };
template <>
struct EnumNames<SamplePadding> {
  using E = SamplePadding;
  static constexpr std::array names = {EnumName<E>{"false", E::kBatch},   EnumName<E>{"do_not_pad", E::kBatch},
                                       EnumName<E>{"longest", E::kBatch}, EnumName<E>{"true", E::kBatch},
                                       EnumName<E>{"null", E::kBatch},    EnumName<E>{"max_length", E::kMaxLength}};
};
/// Whether samples are truncated to seq_length tokens.
enum class SampleTruncation { kNone, kCut };
template <>
struct EnumNames<SampleTruncation> {
  using E = SampleTruncation;
  static constexpr std::array names = {EnumName<E>{"false", E::kNone},        EnumName<E>{"do_not_truncate", E::kNone},
                                       EnumName<E>{"null", E::kNone},         EnumName<E>{"true", E::kCut},
                                       EnumName<E>{"longest_first", E::kCut}, EnumName<E>{"only_first", E::kCut}};
};

/// Whether the outputs of a frozen vision tower are computed once and kept.
enum class CacheFeatures { kAuto, kYes, kNo };
template <>
struct EnumNames<CacheFeatures> {
  using E = CacheFeatures;
  static constexpr std::array names = {EnumName<E>{"auto", E::kAuto}, EnumName<E>{"true", E::kYes},
                                       EnumName<E>{"false", E::kNo}};
};

struct TextDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("text")};
  static constexpr std::string_view kDoc = "Plain text, concatenated and split into sequences.";
  Field<PathList> paths{
      "paths|path", {}, "Files, folders and globs; relative to the recipe's folder, else to the working directory."};
  Field<std::optional<std::string>> tokenizer{
      "tokenizer", std::nullopt,
      "A folder with tokenizer.json, a model's name in the Hugging Face cache, or `bytes` for a byte-level vocabulary "
      "(256 bytes and 3 special tokens); null: the model's, or bytes if it has none."};
  Field<int> seq_length{"seq_length|seq_len", 1024, "Tokens per sequence.", at_least<1>};
  Field<bool> cache{"cache", true, "Cache tokens on disk, keyed by the contents of all files."};
  Field<std::optional<std::string>> cache_dir{
      "cache_dir", std::nullopt, "Folder of that cache; null: automodel/tokens in the user's cache folder."};
};

struct JsonlDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("jsonl")};
  static constexpr std::string_view kDoc =
      "JSON lines of instructions {\"prompt\", \"response\"} or conversations {\"messages\": [{\"role\", "
      "\"content\"}]}; for a sequence classifier {\"text\", \"label\"} or {\"text_a\", \"text_b\", \"label\"}.";
  static constexpr bool kHasClasses = true;  ///< a sequence classifier can be trained on its rows
  Field<PathList> paths{"path|paths", {}, "JSONL files, folders and globs."};
  Field<std::optional<std::string>> tokenizer{
      "tokenizer", std::nullopt,
      "A folder with tokenizer.json, a model's name in the Hugging Face cache, or `bytes`; null: the model's."};
  Field<std::optional<std::string>> chat_template{
      "chat_template", std::nullopt,
      "A Jinja file, or chatml or llama3; null: the tokenizer's own; if it has none, prompt and response are used as "
      "they are."};
  Field<std::optional<int>> seq_length{
      "seq_length|seq_len", std::nullopt,
      "Maximum row length in tokens; null: as many as the model has positions for, if it has learned ones.",
      at_least<1>};
  Field<bool> truncation{"truncation", false,
                         "Truncate longer rows instead of refusing them; without seq_length, to the model's "
                         "max_position_embeddings."};
  Field<bool> mask_prompt{"mask_prompt|answer_only_loss_mask", true,
                          "Compute the loss on the answers only; if false, on every token."};
  Field<std::map<std::string, std::string>> column_mapping{
      "column_mapping",
      {},
      "Names of the rows' keys, if not `prompt`, `response` or `messages` (`text`, `text_a`, `text_b`, "
      "`label`)."};
  Field<int> pad_to_multiple_of{"pad_to_multiple_of", 1, "Pad rows to a multiple of this.", at_least<1>};
  Field<int> max_bad_rows{"max_bad_rows", 0, "Maximum number of invalid rows to skip before the run is refused.",
                          at_least<0>};
  Field<bool> cache{"cache", true, "Cache tokens on disk, keyed by the contents of all files."};
  Field<std::optional<std::string>> cache_dir{
      "cache_dir", std::nullopt, "Folder of that cache; null: automodel/tokens in the user's cache folder."};
};

struct NanogptDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("nanogpt_bin"),
      std::string_view("nemo_automodel.components.datasets.llm.nanogpt_dataset.NanogptDataset")};
  static constexpr std::string_view kDoc = "Token files (.bin) of modded-nanogpt, llm.c and nanoGPT.";
  Field<PathList> paths{"path|paths|file_pattern", {}, "Files, folders and globs."};
  Field<int> seq_length{"seq_length|seq_len", 1024, "Tokens per sequence.", at_least<1>};
  Field<std::optional<std::string>> dtype{"dtype", std::nullopt,
                                          "Dtype of the tokens in files without a header: uint16 or uint32."};
  Field<Value> shuffle_files{"shuffle_files", nullptr, "Shuffle files.",
                             Ignored{"dataloader.shuffle shuffles the sequences of all files together"}};
  Field<Value> align_to_bos{"align_to_bos", false, "Start every sequence at the beginning of a document.",
                            Unsupported{"a sequence begins where the previous one ends"}};
  Field<Value> bos_token{"bos_token", nullptr, "Token that begins a document.", Ignored{"only align_to_bos needs it"}};
};

struct MegatronDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("megatron"),
      std::string_view("nemo_automodel.components.datasets.llm.megatron_dataset.MegatronPretraining"),
      std::string_view("nemo_automodel.components.datasets.llm.megatron_dataset.MegatronPretrainingConfig")};
  static constexpr std::string_view kDoc = "Megatron's indexed token files (.bin and .idx).";
  Field<PathList> paths{
      "path|paths", {}, "Prefixes, .bin or .idx files, folders and globs; or a blend: [30, PREFIX, 70, PREFIX]."};
  Field<int> seq_length{"seq_length|seq_len", 2048, "Tokens per sequence.", at_least<1>};
  Field<std::optional<std::string>> split{
      "split", std::nullopt,
      "Proportions of documents for training, validation and test, for example 900,50,50; null: all documents."};
  Field<std::string> part{"splits_to_build", "train", "Which of these parts to use: train, validation or test."};
  Field<Value> texts_tokenizer{"tokenizer", nullptr, "Tokenizer of the texts.", Ignored{"the files hold ids"}};
  Field<Value> index_mapping_dir{"index_mapping_dir", nullptr, "Folder for sample orders.",
                                 Ignored{"sample orders are computed, not stored"}};
  Field<Value> num_train_samples{"num_train_samples", nullptr, "Training samples.",
                                 Ignored{"an epoch is the whole part; step_scheduler.max_steps ends a run"}};
  Field<Value> num_val_samples{"num_val_samples", nullptr, "Samples per validation.",
                               Ignored{"validation reads its whole part"}};
  Field<Value> num_test_samples{"num_test_samples", nullptr, "Test samples.", Ignored{"there is no test phase"}};
};

struct TokensDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("tokens")};
  static constexpr std::string_view kDoc =
      "JSON lines of token ids: {\"input_ids\": [...], \"labels\": [...]}, for a sequence classifier "
      "{\"input_ids\": [...], \"label\": 0}.";
  static constexpr bool kHasClasses = true;  ///< a sequence classifier can be trained on its rows
  Field<PathList> paths{"path|paths", {}, "JSONL files."};
  Field<std::optional<int>> seq_length{
      "seq_length|seq_len", std::nullopt,
      "Maximum row length in tokens; null: as many as the model has positions for, if it has learned ones.",
      at_least<1>};
  Field<int> pad_token_id{"pad_token_id", 0, "Token with which shorter rows of a batch are padded.", at_least<0>};
  Field<int> pad_to_multiple_of{"pad_to_multiple_of", 1, "Pad rows to a multiple of this.", at_least<1>};
  Field<int> max_bad_rows{"max_bad_rows", 0, "Maximum number of invalid rows to skip before the run is refused.",
                          at_least<0>};
};

struct MockDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("mock"),
      std::string_view("nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset")};
  static constexpr std::string_view kDoc = "Random tokens from the seed, and random classes for a sequence classifier.";
  static constexpr bool kHasClasses = true;  ///< a sequence classifier can be trained on its rows
  Field<std::optional<int>> vocab_size{
      "vocab_size", std::nullopt,
      "Tokens are drawn from 0 up to, but not including, this; null: 1024, or a smaller model's vocabulary.",
      at_least<1>};
  Field<int> seq_length{"seq_length|seq_len", 1024, "Tokens per sequence.", at_least<1>};
  Field<int> num_samples{"num_samples", 1'000'000, "Sequences per epoch.", at_least<1>};
  Field<int> batch_size{"batch_size", 1, "Sequences that NeMo AutoModel's iterator yields.",
                        Ignored{"step_scheduler.local_batch_size sets the number of sequences per rank"}};
};

struct SentencesDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("nemo_automodel.components.datasets.llm.mock.build_unpacked_dataset")};
  static constexpr std::string_view kDoc = "Random tokens in rows of random length; the same rows as NeMo AutoModel's.";
  Field<int> num_sentences{"num_sentences", 10, "Rows.", at_least<1>};
  Field<double> mean_len{"mean_len", 20.0, "Mean length, not counting the end token."};
  Field<double> std_len{"std_len", 6.0, "Standard deviation of lengths."};
  Field<int> vocab_size{"vocab_size", 100,
                        "Tokens are drawn from 2 up to, but not including, this; 1 is the end token.", at_least<3>};
  Field<int> max_sentence_len{"max_sentence_len", 64, "Maximum length of a row, not counting the end token.",
                              at_least<1>};
  Field<int> seed{"seed", 0, "Seed of the rows.", at_least<0>};
};

/// Which rows of a table are read.
struct SplitField {
  Field<std::optional<std::string>> split{
      "split", "train", "Rows to use: train, train[:1000], train[10%:20%], or several joined with +."};
};

/// Fields common to all data sets of rows that are encoded.
struct EncodedFields {
  Field<TokenizerSource> tokenizer{
      "tokenizer",
      {},
      "A folder, a model's name in the Hugging Face cache, or a mapping with the arguments "
      "of from_pretrained; null: the model's."};
  Field<std::optional<int>> seq_length{"seq_length", std::nullopt,
                                       "Target length of truncation and padding, in tokens.", at_least<1>};
  Field<SamplePadding> padding{
      "padding", SamplePadding::kBatch,
      "max_length: pad every row to seq_length; otherwise pad to the longest row of the batch."};
  Field<SampleTruncation> truncation{"truncation|truncate", SampleTruncation::kNone,
                                     "Truncate rows to seq_length; without it, those that are packed to "
                                     "packed_sequence.max_length."};
  /// Whether rows are truncated or padded to seq_length.
  bool uses_length() const { return truncation() == SampleTruncation::kCut || padding() == SamplePadding::kMaxLength; }
  Field<std::optional<std::string>> chat_template{
      "chat_template", std::nullopt,
      "A Jinja file, a JSON file with a template, chatml, llama3, or the template itself; null: the tokenizer's."};
  Field<int> max_bad_rows{"max_bad_rows", 0, "Maximum number of invalid rows to skip before the run is refused.",
                          at_least<0>};
};

/// Fields common to all data sets of a table's rows that are encoded.
struct RowFields : SplitField, EncodedFields {};

/// Whether pictures go through a frozen tower once.
struct FeatureFields {
  Field<CacheFeatures> cache_features{
      "cache_features", CacheFeatures::kAuto,
      "With pictures: compute the outputs of a frozen vision tower once, keep them in cache_dir, and train without the "
      "tower; the projector's where it is frozen too. auto: where pictures are read more than once. What one data "
      "section says holds for all."};
};

/// Fields common to rows for models that take pictures.
struct PictureFields : FeatureFields {
  Field<std::optional<std::string>> cache_dir{
      "cache_dir", std::nullopt,
      "Folder of the tower's outputs (cache_features); null: automodel/tokens in the user's cache folder."};
  Field<std::string> answer_prefix{"answer_prefix", "",
                                   "Text that every answer begins with, behind what the template puts "
                                   "before it; it is learned, too."};
  Field<Value> inject_fake_images{"inject_fake_images", nullptr, "Put a picture that does not count into rows of text.",
                                  Ignored{"rows of text need no picture: ranks agree without one"}};
};

/// Fields common to sets of pictures in tables.
struct PictureRowFields : RowFields, PictureFields {};

/// Fields common to those whose tokens are kept for the next run.
struct RowDatasetFields : RowFields {
  Field<bool> cache{"cache", true, "Cache tokens on disk, keyed by the contents of all files."};
  Field<std::optional<std::string>> cache_dir{
      "cache_dir", std::nullopt, "Folder of that cache; null: automodel/tokens in the user's cache folder."};
};

struct SquadDatasetConfig : RowDatasetFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("squad"), std::string_view("nemo_automodel.components.datasets.llm.squad.make_squad_dataset")};
  static constexpr std::string_view kDoc =
      "Questions about texts: rows with context, question and answers, as in SQuAD.";
  Field<std::string> dataset_name{"dataset_name", "squad", "A folder, or a repository in the Hugging Face cache."};
  Field<std::optional<int>> limit_dataset_samples{
      "limit_dataset_samples", std::nullopt, "Use only this many rows, from the first, unless the split is sliced.",
      at_least<1>};
  Field<Value> fp8{"fp8", nullptr, "Older option.", Ignored{"dtypes follow from the model and its mixed precision"}};
};

struct HellaSwagDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("hellaswag"), std::string_view("nemo_automodel.components.datasets.llm.hellaswag.HellaSwag")};
  static constexpr std::string_view kDoc = "Sentences and their endings: rows with ctx, endings and label.";
  Field<std::string> path_or_dataset{"path_or_dataset", "", "A folder, or a repository in the Hugging Face cache."};
  Field<std::optional<std::string>> split{"split", "train",
                                          "Rows to use: train, validation, train[:1000], or several joined with +."};
  Field<TokenizerSource> tokenizer{
      "tokenizer",
      {},
      "A folder, a model's name in the Hugging Face cache, or a mapping with the arguments "
      "of from_pretrained; null: the model's."};
  Field<Value> num_samples_limit{"num_samples_limit", nullptr,
                                 "Use only this many rows of the split, from the first: an integer."};
  Field<bool> pad_to_max_length{"pad_to_max_length", true, "Pad all rows to the longest of the split."};
  Field<int> max_bad_rows{"max_bad_rows", 0, "Maximum number of invalid rows to skip before the run is refused.",
                          at_least<0>};
  Field<bool> cache{"cache", true, "Cache tokens on disk, keyed by the contents of all files."};
  Field<std::optional<std::string>> cache_dir{
      "cache_dir", std::nullopt, "Folder of that cache; null: automodel/tokens in the user's cache folder."};
};

/// Fields common to NeMo AutoModel's data sets of sequences with a class.
struct ClassSetFields {
  Field<std::optional<std::string>> split{"split", "train",
                                          "Rows to use: train, test, train[:1000], or several joined "
                                          "with +."};
  Field<TokenizerSource> tokenizer{
      "tokenizer",
      {},
      "A folder, a model's name in the Hugging Face cache, or a mapping with the arguments "
      "of from_pretrained; null: the model's."};
  Field<std::optional<int>> num_samples_limit{"num_samples_limit", std::nullopt,
                                              "Use only this many rows of the split, from the first.", at_least<1>};
  Field<std::optional<int>> max_length{
      "max_length", 256, "Rows are cut to this many tokens; null: to the model's max_position_embeddings.",
      at_least<1>};
  Field<bool> trust_remote_code{"trust_remote_code", true, "Run code from the repository.",
                                Ignored{"code from a repository is never run"}};
  Field<int> max_bad_rows{"max_bad_rows", 0, "Maximum number of invalid rows to skip before the run is refused.",
                          at_least<0>};
  Field<bool> cache{"cache", true, "Cache tokens on disk, keyed by the contents of all files."};
  Field<std::optional<std::string>> cache_dir{
      "cache_dir", std::nullopt, "Folder of that cache; null: automodel/tokens in the user's cache folder."};
};

struct ImdbDatasetConfig : ClassSetFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("imdb"),
                                         std::string_view("nemo_automodel.components.datasets.llm.seq_cls.IMDB")};
  static constexpr std::string_view kDoc = "Reviews of films in two classes: rows with text and label.";
  static constexpr bool kHasClasses = true;
  Field<std::string> path_or_dataset{"path_or_dataset", "imdb", "A folder, or a repository in the Hugging Face cache."};
};

struct YelpDatasetConfig : ClassSetFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("yelp_review_full"),
      std::string_view("nemo_automodel.components.datasets.llm.seq_cls.YelpReviewFull")};
  static constexpr std::string_view kDoc = "Reviews in five classes: rows with text and label.";
  static constexpr bool kHasClasses = true;
  Field<std::string> path_or_dataset{"path_or_dataset", "yelp_review_full",
                                     "A folder, or a repository in the Hugging Face cache."};
};

struct MrpcDatasetConfig : ClassSetFields {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("glue_mrpc"),
                                         std::string_view("nemo_automodel.components.datasets.llm.seq_cls.GLUE_MRPC")};
  static constexpr std::string_view kDoc =
      "Pairs of sentences that mean the same or not: rows with sentence1, sentence2 and label.";
  static constexpr bool kHasClasses = true;
  Field<std::string> path_or_dataset{"path_or_dataset", "glue", "A folder, or a repository in the Hugging Face cache."};
  Field<std::optional<std::string>> name{"name", "mrpc", "Configuration of the repository."};
};

struct ColumnMappedDatasetConfig : RowDatasetFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("column_mapped"),
      std::string_view("nemo_automodel.components.datasets.llm.column_mapped_text_instruction_dataset."
                       "ColumnMappedTextInstructionDataset"),
      std::string_view("nemo_automodel.components.datasets.llm.ColumnMappedTextInstructionDataset")};
  static constexpr std::string_view kDoc = "Instructions with columns mapped to context, question and answer.";
  Field<PathList> path_or_dataset_id{
      "path_or_dataset_id", {}, "Files, or a folder or repository in the Hugging Face cache."};
  Field<std::map<std::string, std::string>> column_mapping{
      "column_mapping", {}, "Column names for answer and for context, question or both."};
  Field<std::optional<std::string>> name{"name", std::nullopt, "Configuration of the repository."};
  Field<bool> answer_only_loss_mask{"answer_only_loss_mask", true,
                                    "Compute the loss on the answers only; if false, on every token."};
  Field<std::optional<int>> limit_dataset_samples{"limit_dataset_samples", std::nullopt,
                                                  "Use only this many rows, from the first.", at_least<1>};
  Field<bool> use_hf_chat_template{
      "use_hf_chat_template", false,
      "Render context, question and answer as a conversation if the tokenizer has a chat template."};
};

/// What NeMo AutoModel streams: the same rows, but those without labels are left out, not replaced.
struct StreamedColumnsDatasetConfig : ColumnMappedDatasetConfig {
  static constexpr std::array targets = {
      std::string_view("column_mapped_stream"),
      std::string_view("nemo_automodel.components.datasets.llm.column_mapped_text_instruction_iterable_dataset."
                       "ColumnMappedTextInstructionIterableDataset")};
  static constexpr std::string_view kDoc = "As column_mapped; rows without labels are left out instead of replaced.";
  Field<bool> repeat_on_exhaustion{"repeat_on_exhaustion", true, "Start over after the last row.",
                                   [](const bool& value) -> std::string {
                                     return value ? "" : "must be true: an epoch is all rows, max_steps ends a run";
                                   }};
};

struct ChatDatasetConfig : RowDatasetFields, FeatureFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("chat"), std::string_view("nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset"),
      std::string_view("nemo_automodel.components.datasets.llm.ChatDataset")};
  static constexpr std::string_view kDoc =
      "Conversations in OpenAI's format (messages) or ShareGPT's (conversations), with tools and reasoning.";
  Field<PathList> path_or_dataset_id{
      "path_or_dataset_id",
      {},
      "JSON files, Parquet files or their folder, or a repository in the Hugging Face cache."};
  Field<std::optional<std::string>> name{"name", std::nullopt, "Configuration of the repository."};
  Field<std::optional<std::int64_t>> shuffle_seed{
      "shuffle_seed", std::nullopt,
      "Shuffle the split once with this seed, before it is sliced; does not apply to local JSON."};
  Field<bool> mask_reasoning_content{"mask_reasoning_content", false, "Exclude reasoning from the loss."};
  Field<bool> mask_history{"mask_history", false, "Compute the loss on the last turn only."};
  Field<std::string> answer_prefix{"answer_prefix", "",
                                   "With pictures: text that every answer begins with, behind what "
                                   "the template puts before it; it is learned, too."};
  Field<bool> skip_invalid_samples{"skip_invalid_samples", false, "Skip lines that are not valid JSON."};
  Field<Value> unshifted{"unshifted", false, "Rows without labels.",
                         Unsupported{"rows without labels cannot be trained on"}};
  Field<Value> start_of_turn_token{"start_of_turn_token", nullptr, "Token that begins a turn.",
                                   Ignored{"label tokens are determined from the chat template"}};
};

struct AgentChatDatasetConfig : RowDatasetFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("agent_chat"),
      std::string_view("nemo_automodel.components.datasets.llm.agent_chat.make_agent_chat_dataset")};
  static constexpr std::string_view kDoc = "Conversations with tool calls and their responses, turn by turn.";
  Field<std::optional<std::string>> dataset_name{"dataset_name", std::nullopt,
                                                 "A folder, or a repository in the Hugging Face cache."};
  Field<PathList> paths{"path", {}, "JSON files."};
  Field<std::optional<std::string>> revision{"revision", std::nullopt, "Branch, ref or commit of the repository."};
  Field<std::optional<int>> limit_dataset_samples{
      "limit_dataset_samples", std::nullopt, "Use only this many rows, from the first, unless the split is sliced.",
      at_least<1>};
  Field<bool> filter_no_assistant{"filter_no_assistant", false, "Skip rows without an assistant turn."};
  Field<bool> filter_overlong{"filter_overlong", false, "Skip rows longer than seq_length.",
                              Ignored{"NeMo AutoModel compares lengths after truncation, so it skips no rows either"}};
  Field<bool> trim_incomplete_last_turn{"trim_incomplete_last_turn", false,
                                        "Drop everything after the assistant's last turn."};
  Field<bool> mask_reasoning_content{"mask_reasoning_content", false, "Exclude reasoning from the loss."};
  Field<bool> train_on_last_turn_only{"train_on_last_turn_only", false, "Compute the loss on the last turn only."};
  Field<bool> drop_history_reasoning_content{"drop_history_reasoning_content", false,
                                             "Drop the reasoning of all turns but the last."};
  Field<bool> truncate_history{"truncate_history", false,
                               "Drop the oldest exchanges until the row fits in seq_length."};
  bool uses_length() const { return truncate_history() || RowDatasetFields::uses_length(); }
};

struct XlamDatasetConfig : RowDatasetFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("xlam"), std::string_view("nemo_automodel.components.datasets.llm.xlam.make_xlam_dataset")};
  static constexpr std::string_view kDoc = "Function calls: rows with query, tools and answers, as in xLAM.";
  Field<std::string> dataset_name{"dataset_name", "Salesforce/xlam-function-calling-60k",
                                  "A folder, or a repository in the Hugging Face cache."};
  Field<std::optional<int>> limit_dataset_samples{
      "limit_dataset_samples", std::nullopt, "Use only this many rows, from the first, unless the split is sliced.",
      at_least<1>};
  Field<Value> fp8{"fp8", nullptr, "Older option.", Ignored{"dtypes follow from the model and its mixed precision"}};
};

struct MedPixDatasetConfig : PictureRowFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("medpix"),
      std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_medpix_dataset")};
  static constexpr std::string_view kDoc = "Questions about pictures: rows with image_id, question and answer.";
  Field<std::string> path_or_dataset{"path_or_dataset", "medpix-dataset/medpix-dataset",
                                     "A folder, or a repository in the Hugging Face cache."};
};

struct RdrDatasetConfig : PictureRowFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("rdr"), std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_rdr_dataset")};
  static constexpr std::string_view kDoc = "Descriptions of pictures: rows with image and text.";
  Field<std::string> path_or_dataset{"path_or_dataset", "quintend/rdr-items",
                                     "A folder, or a repository in the Hugging Face cache."};
};

struct CordDatasetConfig : PictureRowFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("cord_v2"),
      std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_cord_v2_dataset")};
  static constexpr std::string_view kDoc =
      "Receipts and what they say: rows with image and ground_truth, JSON whose gt_parse becomes Donut's tags.";
  Field<std::string> path_or_dataset{"path_or_dataset", "naver-clova-ix/cord-v2",
                                     "A folder, or a repository in the Hugging Face cache."};
  Field<std::optional<int>> limit_dataset_samples{
      "limit_dataset_samples", std::nullopt, "Use only this many rows of a split that is not sliced.", at_least<1>};
};

struct CatalogueDatasetConfig : PictureRowFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("product_catalogue"),
      std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_shopify_product_catalogue_dataset")};
  static constexpr std::string_view kDoc =
      "Pictures of products and their categories: rows with product_image and ground_truth_category.";
  Field<std::string> path_or_dataset{"path_or_dataset", "Shopify/product-catalogue",
                                     "A folder, or a repository in the Hugging Face cache."};
  Field<std::optional<int>> limit_dataset_samples{"limit_dataset_samples", std::nullopt,
                                                  "Use only this many rows, from the first of the split or its part.",
                                                  at_least<1>};
};

struct Tulu3DatasetConfig : PictureRowFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("tulu3"),
      std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_tulu3_dataset")};
  static constexpr std::string_view kDoc =
      "Conversations without pictures for models that take them: rows with messages, as in Tulu 3.";
  Field<std::string> path_or_dataset{"path_or_dataset", "allenai/tulu-3-sft-mixture",
                                     "A folder, or a repository in the Hugging Face cache."};
};

struct MockPicturesDatasetConfig : EncodedFields, PictureFields {
  using IsSection = void;
  static constexpr std::array targets = {
      std::string_view("mock_pictures"),
      std::string_view("nemo_automodel.components.datasets.vlm.mock.build_mock_vlm_dataset")};
  static constexpr std::string_view kDoc = "Pictures of random pixels with answers of random words, for measurements.";
  static std::string size(const std::array<int, 2>& value) {
    return value[0] > 0 && value[1] > 0 ? "" : "must be a width and a height of at least 1";
  }
  static std::string some(const std::vector<std::string>& value) {
    return value.empty() ? "must name at least one answer" : "";
  }
  Field<int> num_samples{"num_samples", 10, "Rows.", at_least<1>};
  Field<int> num_images_per_sample{"num_images_per_sample", 1, "Pictures of a row.", at_least<0>};
  Field<std::array<int, 2>> image_size{"image_size", {256, 256}, "Width and height of a picture, in pixels.", size};
  Field<std::string> prompt{"prompt", "Describe this image.", "The question behind the pictures."};
  Field<std::optional<std::vector<std::string>>> responses{
      "responses", std::nullopt, "The answers, one row after another; null: random words.", some};
  Field<std::optional<int>> max_length{"max_length", std::nullopt,
                                       "Random words of an answer, null: 256. Rows are cut to as many tokens, or to "
                                       "packed_sequence.max_length where they are packed.",
                                       at_least<1>};
  Field<bool> pretokenize{"pretokenize", true, "If false, max_length does not cut rows that are not packed."};
  Field<int> seed{"seed", 0, "Seed of the pixels and words.", at_least<0>};
};

/// NeMo AutoModel datasets that are not implemented here: a recipe using one can be planned but not trained.
template <const auto& kTargets>
struct ForeignDatasetConfig {
  using IsSection = void;
  static constexpr auto targets = kTargets;
  static constexpr std::string_view kDoc = "Data sets that can be planned but not trained.";
  static constexpr std::string_view kPlanOnly = "this data set can be planned but not trained";
  Field<std::optional<int>> seq_length{"seq_length|seq_len|sequence_length|max_length", std::nullopt,
                                       "Tokens per sequence, for estimates.", at_least<1>};
  Field<Value> rest{Rest{}, {}, "Everything else."};
};

inline constexpr std::array kOtherData = {
    std::string_view("nemo_automodel.components.datasets.llm.seq2seq.make_seq2seq_dataset"),
    std::string_view("nemo_automodel.components.datasets.llm.mock_prefix_tree.build_mock_rollout_dataset"),
    std::string_view("nemo_automodel.components.datasets.audio.datasets.make_cv17_dataset"),
    std::string_view("nemo_automodel.components.datasets.audio.datasets.make_hf_audio_asr_dataset"),
    std::string_view("nemo_automodel.components.datasets.audio.multi_en.make_multi_en_asr_dataset"),
    std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_llava_onevision_dataset"),
    std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_meta_dataset"),
    std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_tulu3_magicoder_text_mix_dataset"),
    std::string_view("nemo_automodel.components.datasets.vlm.datasets.make_unimm_chat_dataset")};

/// A kind of data that a recipe names, alone or as a part of a mixture.
using DatasetPart =
    std::variant<TextDatasetConfig, JsonlDatasetConfig, TokensDatasetConfig, NanogptDatasetConfig,
                 MegatronDatasetConfig, MockDatasetConfig, SentencesDatasetConfig, SquadDatasetConfig,
                 HellaSwagDatasetConfig, ColumnMappedDatasetConfig, StreamedColumnsDatasetConfig, ChatDatasetConfig,
                 AgentChatDatasetConfig, XlamDatasetConfig, ImdbDatasetConfig, YelpDatasetConfig, MrpcDatasetConfig,
                 MedPixDatasetConfig, RdrDatasetConfig, CordDatasetConfig, CatalogueDatasetConfig, Tulu3DatasetConfig,
                 MockPicturesDatasetConfig, ForeignDatasetConfig<kOtherData>>;

/// A part of a mixture, with its share of the rows: exactly one of `weight` and `epochs`.
struct MixturePart {
  using IsSection = void;
  static std::string share(const double& value) {
    return value > 0 && std::isfinite(value) ? "" : "must be a finite number greater than 0";
  }
  Field<std::optional<double>> weight{
      "weight", std::nullopt, "Share of the mixture's rows, relative to the weights of the other parts.", share};
  Field<std::optional<double>> epochs{
      "epochs", std::nullopt, "Instead of a weight: how often the part is read in an epoch of the mixture.", share};
  Field<std::optional<DatasetPart>> dataset{"dataset", std::nullopt, "The part: any data set but another mixture."};
};

struct MixtureDatasetConfig {
  using IsSection = void;
  static constexpr std::array targets = {std::string_view("mixture")};
  static constexpr std::string_view kDoc = "Rows of several data sets, interleaved by their weights.";
  Field<std::vector<MixturePart>> datasets{"datasets", {}, "The parts: each a dataset with a weight or epochs."};
  Field<std::optional<int>> seed{"seed", std::nullopt, "Seed of the order within the parts; null: the recipe's.",
                                 at_least<0>};
};

/// A variant's alternatives and one more.
template <class Variant, class More>
struct WithMore;
template <class... T, class More>
struct WithMore<std::variant<T...>, More> {
  using Type = std::variant<T..., More>;
};
using DatasetConfig = WithMore<DatasetPart, MixtureDatasetConfig>::Type;

/// Calls `use` with the section, or with the section of every part of a mixture.
template <class Config, class Use>
void each_part(Config& config, const Use& use) {
  std::visit(
      [&](auto& section) {
        if constexpr (requires { section.datasets(); }) {
          for (auto& part : section.datasets())
            if (part.dataset()) std::visit(use, *part.dataset());
        } else {
          use(section);
        }
      },
      config);
}

/// Rules within a data section, with keys relative to it: a mixture has parts, and each has a data set and a share.
Diagnostics check(const DatasetConfig& config);

enum class PackingStrategy { kThd, kNeat };
template <>
struct EnumNames<PackingStrategy> {
  static constexpr std::array names = {EnumName<PackingStrategy>{"thd", PackingStrategy::kThd},
                                       EnumName<PackingStrategy>{"neat", PackingStrategy::kNeat}};
};

struct PackedSequenceConfig {
  using IsSection = void;
  Field<int> packed_sequence_size{"packed_sequence_size|pack_size", 0,
                                  "Tokens per pack of several rows, which do not attend to each other; 0: no packing.",
                                  at_least<0>};
  Field<PackingStrategy> packing_strategy{
      "packing_strategy", PackingStrategy::kThd,
      "thd: rows in their order; neat: the longest row first, each into the emptiest pack."};
  Field<std::optional<int>> max_packs{"max_packs", std::nullopt, "Maximum number of packs.", at_least<1>};
  Field<int> pad_to_multiple_of{"pad_to_multiple_of", 1, "Pad each row of a thd pack to a multiple of this.",
                                at_least<1>};
  Field<bool> drop_long_samples{"drop_long_samples", true, "Skip rows longer than a pack; if false, refuse them."};
  Field<Value> split_across_pack{"split_across_pack", nullptr, "Older option.", Ignored{"a row is always in one pack"}};
  Field<Value> prepacked{"prepacked", nullptr, "Packs made beforehand.",
                         Ignored{"packing is too fast to be worth storing"}};
  Field<int> num_proc{"num_proc", 1, "Processes.", Ignored{"packing is too fast to be worth parallelizing"}};
  Field<bool> pretokenize{
      "pretokenize", false,
      "NeMo AutoModel's switch of packs with pictures: packs are neat, whatever packing_strategy says."};
  static std::string ratio(const double& value) {
    return value > 0 && value <= 1 ? "" : "must be above 0 and at most 1";
  }
  Field<double> packing_ratio{"packing_ratio", 1, "Part of a pack that rows may fill; the rest is padding.", ratio};
  Field<std::optional<int>> max_length{"max_length", std::nullopt,
                                       "Most tokens of a row; longer ones are treated as those longer than a pack.",
                                       at_least<1>};
  Field<Value> balance_media_tokens{"balance_media_tokens", nullptr, "Order packs by their pictures.",
                                    Ignored{"packs are shuffled as rows are"}};
  Field<TokenHook> post_tokenize_hook_fn{"post_tokenize_hook_fn",
                                         {},
                                         "Name of a Python function that changes rows. gemma4_inject_thinking_prefix "
                                         "of NeMo AutoModel is answer_prefix of "
                                         "the data set, for packs; others can be planned but not trained."};
  Field<Value> collate_max_length{"collate_max_length", nullptr, "Tokens that packs are padded to.",
                                  Ignored{"a pack is padded to packed_sequence_size"}};
  Field<Value> packing_format{"packing_format", nullptr, "Form of a pack.",
                              Ignored{"rows of a pack are kept apart in every kernel"}};
  Field<Value> attn_implementation{"attn_implementation", nullptr, "Attention kernel.",
                                   Ignored{"the fastest kernel for the device and mask is chosen"}};

  /// Whether the longest row comes first, into the emptiest pack.
  bool neat() const { return packing_strategy() == PackingStrategy::kNeat || pretokenize(); }
  /// Tokens that the rows of a pack may have.
  std::int64_t capacity() const { return static_cast<std::int64_t>(packed_sequence_size() * packing_ratio()); }
};

struct DataloaderConfig {
  using IsSection = void;
  Field<std::optional<std::string>> target{"_target_", std::nullopt, "Class of the loader.",
                                           Ignored{"there is one loader"}};
  Field<std::optional<bool>> shuffle{"shuffle", std::nullopt,
                                     "Shuffle each epoch; null: yes for training, no for validation."};
  Field<std::optional<int>> batch_size{
      "batch_size", std::nullopt, "Sequences per batch and rank: step_scheduler.local_batch_size, also in validation.",
      at_least<1>};
  Field<int> num_workers{"num_workers", 0, "Loader processes.", Ignored{"one thread prepares the next batch"}};
  Field<bool> pin_memory{"pin_memory", false, "Page-locked batches.",
                         Ignored{"batches are page-locked if the device is CUDA"}};
  Field<bool> persistent_workers{"persistent_workers", false, "Keep loader processes.",
                                 Ignored{"one thread prepares the next batch"}};
  Field<std::optional<int>> prefetch_factor{"prefetch_factor", std::nullopt, "Batches ahead.",
                                            Ignored{"one thread prepares the next batch"}};
  Field<bool> drop_last{"drop_last", false, "Drop the last, smaller batch of an epoch."};
  Field<CollateFunction> collate_fn{
      "collate_fn",
      {},
      "Name of a Python function, or a mapping of _target_ and its arguments. default_collate_fn, qwen2_5_collate_fn "
      "and llava_onevision_collate_fn of NeMo AutoModel, for pictures, make the rows that are made here, and so does "
      "gemma4_prefix_collate_fn with answer_prefix; max_length of the first and the last cuts and pads them. Its other "
      "functions for pictures can be planned but not trained."};
  Field<bool> group_by_length{"group_by_length", false, "Batch rows of similar length."};
  Field<int> shuffle_buffer_size{"shuffle_buffer_size", 10000, "Buffer of a streaming shuffle.",
                                 Ignored{"shuffling is a permutation of the whole epoch; it needs no buffer"}};
  Field<std::optional<std::string>> dataloader_type{"dataloader_type", std::nullopt,
                                                    "Megatron's kind of sampler: single or cyclic.",
                                                    Ignored{"data is read in order, or shuffled if shuffle is set"}};
};

}  // namespace automodel::config
