// How table rows become rows of tokens: one builder per data format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/data_config.h"
#include "data/chat_format.h"
#include "data/row_format.h"
#include "data/row_tokenizer.h"
#include "rows/load.h"

namespace automodel::data {

/// Builds finished rows by index. Not thread-safe.
class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  virtual ~Builder() = default;

  virtual std::int64_t size() const = 0;
  /// Null for a row that is left out without being a fault. Throws RowRefused and rows::RowError.
  virtual std::optional<BuiltRow> build(std::int64_t index) = 0;
  /// Where row `index` comes from.
  virtual SourceLocation where(std::int64_t index) const = 0;
  /// The id that pads shorter rows of a batch.
  virtual std::int32_t fill() const = 0;
  /// If not 0, all rows are padded to the length of the longest row, rounded up to a multiple of this.
  virtual std::int64_t common_multiple() const { return 0; }
};

/// What a builder is constructed from.
struct BuilderParts {
  const DatasetContext& context;
  std::shared_ptr<const RowTokenizer> tokenizer;
  rows::LoadedRows rows = {};  ///< set by the builder's make function, before anything else depends on it
  std::string extra = {};      ///< additional text that the rows depend on (templates)
};

/// A builder that makes one token row from each table row.
class RowBuilder : public Builder {
 public:
  explicit RowBuilder(const BuilderParts& parts) : tokenizer_(parts.tokenizer), rows_(*parts.rows.rows) {}
  std::int64_t size() const override { return rows_.size(); }
  SourceLocation where(std::int64_t index) const override { return rows_.where(index); }
  std::int32_t fill() const override { return tokenizer_->fill(); }

 protected:
  const RowTokenizer& tokenizer() const { return *tokenizer_; }
  const rows::Rows& table() const { return rows_; }
  /// Throws rows::RowError.
  nlohmann::ordered_json read(std::int64_t index) const;

 private:
  std::shared_ptr<const RowTokenizer> tokenizer_;
  const rows::Rows& rows_;  ///< owned by the dataset that owns the builder
};

/// Null after adding problems. The builder reads the section's split, limits and paths.
std::unique_ptr<Builder> make_squad_builder(const config::SquadDatasetConfig& config, BuilderParts& parts,
                                            Diagnostics& problems);
std::unique_ptr<Builder> make_hellaswag_builder(const config::HellaSwagDatasetConfig& config, BuilderParts& parts,
                                                Diagnostics& problems);
std::unique_ptr<Builder> make_column_mapped_builder(const config::ColumnMappedDatasetConfig& config,
                                                    BuilderParts& parts, Diagnostics& problems);
std::unique_ptr<Builder> make_streamed_columns_builder(const config::StreamedColumnsDatasetConfig& config,
                                                       BuilderParts& parts, Diagnostics& problems);
std::unique_ptr<Builder> make_chat_builder(const config::ChatDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems);
std::unique_ptr<Builder> make_agent_builder(const config::AgentChatDatasetConfig& config, BuilderParts& parts,
                                            Diagnostics& problems);
std::unique_ptr<Builder> make_xlam_builder(const config::XlamDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems);
std::unique_ptr<Builder> make_imdb_builder(const config::ImdbDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems);
std::unique_ptr<Builder> make_yelp_builder(const config::YelpDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems);
std::unique_ptr<Builder> make_mrpc_builder(const config::MrpcDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems);
std::unique_ptr<Builder> make_medpix_builder(const config::MedPixDatasetConfig& config, BuilderParts& parts,
                                             Diagnostics& problems);
std::unique_ptr<Builder> make_rdr_builder(const config::RdrDatasetConfig& config, BuilderParts& parts,
                                          Diagnostics& problems);
std::unique_ptr<Builder> make_cord_builder(const config::CordDatasetConfig& config, BuilderParts& parts,
                                           Diagnostics& problems);
std::unique_ptr<Builder> make_catalogue_builder(const config::CatalogueDatasetConfig& config, BuilderParts& parts,
                                                Diagnostics& problems);
std::unique_ptr<Builder> make_tulu3_builder(const config::Tulu3DatasetConfig& config, BuilderParts& parts,
                                            Diagnostics& problems);
std::unique_ptr<Builder> make_mock_pictures_builder(const config::MockPicturesDatasetConfig& config,
                                                    BuilderParts& parts, Diagnostics& problems);

/// Loads a repository's rows into `parts`; false after adding problems, and if the context wants no rows.
bool load_repository(BuilderParts& parts, const std::string& path, const std::string& path_key,
                     const std::string& split, const std::optional<std::string>& name,
                     const std::optional<std::string>& revision, Diagnostics& problems);

/// Loads the rows of the files that the key names, each looked for next to the recipe, then in the working directory.
/// Together they are one split (rows::load_split_of), of which `split` may take a part; without it all rows. False
/// after adding problems, and if the context wants no rows.
bool load_named_files(BuilderParts& parts, const std::vector<std::string>& paths, const std::string& path_key,
                      const std::optional<std::string>& split, Diagnostics& problems);

/// Keeps only the first `count` rows; there must be at least that many.
void keep_first(BuilderParts& parts, std::int64_t count);

/// The section's chat template, or the tokenizer's. Null after adding a problem: `what` ("conversations") needs one.
std::unique_ptr<const ChatFormat> needed_chat(const BuilderParts& parts, const std::optional<std::string>& source,
                                              const std::string& what, Diagnostics& problems);

/// Applies a limit to `split`: "train" and 10 give "train[:10]"; a split that is already sliced is returned as it is.
std::string limited(const std::string& split, const std::optional<int>& limit);

/// A cell that must contain text. Throws RowRefused.
const std::string& text_cell(const nlohmann::ordered_json& row, const std::string& column);

}  // namespace automodel::data
