// Rows of tokens that were made once: in memory or in a file of the cache, mapped.
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

/// A file holds a header, for each row its ids and then, where the store is labelled, as many labels, all as 32-bit
/// integers, and at the end where each row ends (in tokens, 64 bits each).
class TokenStore {
 public:
  /// Null where there is no such file, or it is not a whole one.
  static std::optional<TokenStore> open(const std::filesystem::path& file);

  std::int64_t rows() const { return static_cast<std::int64_t>(ends_.size()); }
  std::int64_t tokens() const { return ends_.empty() ? 0 : static_cast<std::int64_t>(ends_.back()); }
  std::int64_t length(std::int64_t row) const;
  std::span<const std::int32_t> ids(std::int64_t row) const;
  std::span<const std::int32_t> labels(std::int64_t row) const;  ///< of a labelled store

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
  /// Writes beside `file`, under a name of its own until it is whole. Throws Error where that cannot be.
  TokenStoreWriter(std::filesystem::path file, bool labelled);
  TokenStoreWriter(const TokenStoreWriter&) = delete;
  TokenStoreWriter& operator=(const TokenStoreWriter&) = delete;
  ~TokenStoreWriter();

  /// Ids of the row that is being written; of a store without labels, part by part.
  void add(std::span<const std::int32_t> ids);
  void add(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels);
  void end_row() { ends_.push_back(tokens_); }
  std::int64_t tokens() const { return static_cast<std::int64_t>(tokens_); }

  /// What was written, mapped. `keep`: under its name, for later runs; else the file is gone when the store is.
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

/// Where tokens are kept: `configured`, else automodel/tokens in $XDG_CACHE_HOME or ~/.cache, else in the folder for
/// temporary files.
std::filesystem::path token_cache_folder(const std::optional<std::string>& configured);

/// The store called `name` in `folder`; where there is none, `fill` writes it and says whether it is to be kept. Of
/// several processes on a machine one fills, the others wait for it.
TokenStore cached_tokens(const std::filesystem::path& folder, const std::string& name, bool labelled,
                         const std::function<bool(TokenStoreWriter&)>& fill);

/// The same without a cache: in a file that is gone when the store is.
TokenStore uncached_tokens(bool labelled, const std::function<bool(TokenStoreWriter&)>& fill);

}  // namespace automodel::data
