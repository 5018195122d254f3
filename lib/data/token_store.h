// Rows of tokens, encoded once: in a temporary file or in a file of the cache, mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/mapped_file.h"

namespace automodel::data {

/// File layout: a header; then for each row its ids followed, if the store is labelled, by as many labels, all 32-bit
/// integers, padded to 8 bytes; then the end of each row (in tokens, 64 bits each).
class TokenStore {
 public:
  /// Null if the file does not exist or is incomplete.
  static std::optional<TokenStore> open(const std::filesystem::path& file);

  std::int64_t rows() const { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t tokens() const { return ends_.empty() ? 0 : static_cast<std::int64_t>(ends_.back()); }
  std::int64_t length(std::int64_t row) const;
  std::span<const std::int32_t> ids(std::int64_t row) const;
  std::span<const std::int32_t> labels(std::int64_t row) const;  ///< labelled stores only

 private:
  friend class TokenStoreWriter;
  TokenStore(MappedFile file, std::span<const std::int32_t> data, std::span<const std::uint64_t> ends, bool labelled)
      : file_(std::move(file)), data_(data), ends_(ends), labelled_(labelled) {}
  std::int64_t begin(std::int64_t row) const;

  MappedFile file_;
  std::span<const std::int32_t> data_;
  std::span<const std::uint64_t> ends_;
  bool labelled_;
};

class TokenStoreWriter {
 public:
  /// Writes next to `file`, under a unique name until the file is complete. Throws Error on failure.
  TokenStoreWriter(std::filesystem::path file, bool labelled);
  TokenStoreWriter(const TokenStoreWriter&) = delete;
  TokenStoreWriter& operator=(const TokenStoreWriter&) = delete;
  ~TokenStoreWriter();

  /// Appends ids to the current row; an unlabelled row may be added in parts.
  void add(std::span<const std::int32_t> ids);
  void add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
  void end_row() { ends_.push_back(tokens_); }
  std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_); }

  /// Maps what was written. `keep`: renames it to `file`, for later runs; otherwise the file disappears with the store.
  TokenStore finish(bool keep);

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path file_;
  std::filesystem::path part_;
  std::ofstream stream_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t tokens_ = 0;
  bool labelled_;
};

/// The folder of the token cache: `configured`, else automodel/tokens in $XDG_CACHE_HOME or ~/.cache, else a folder for
/// temporary files.
std::filesystem::path token_cache_folder(const std::optional<std::string>& configured);

/// The store called `name` in `folder`. If there is none, `fill` writes it and returns whether to keep it. When several
/// processes of a machine ask for it, one fills it while the others wait.
TokenStore cached_tokens(const std::filesystem::path& folder, const std::string& name, bool labelled,
                         const std::function<bool(TokenStoreWriter&)>& fill);

/// The same without a cache: in a file that disappears with the store.
TokenStore uncached_tokens(bool labelled, const std::function<bool(TokenStoreWriter&)>& fill);

}  // namespace automodel::data
