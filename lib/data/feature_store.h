// Outputs of a vision tower, computed once for each picture: files in the folder of the token cache, mapped.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "data/mapped_file.h"
#include "pictures/picture.h"

namespace automodel::data {

/// The files KEY-*.features of a folder, each written at once: a header; the rows of its pictures, row-major; for each
/// picture its content, place, number of rows and checksum. Several runs and ranks may add files at the same time.
class FeatureStore {
 public:
  /// Opens those that are complete. Others, which a full disk or a copy has cut, are left out and named by damaged();
  /// what they held is computed again.
  FeatureStore(const std::filesystem::path& folder, const std::string& key);

  bool has(const pictures::PictureContent& picture) const { return entries_.contains(picture); }
  /// The rows of a picture that the store has. Their checksum is compared at each call: throws Error
  /// (features-damaged).
  std::string_view read(const pictures::PictureContent& picture) const;
  /// Bytes of the rows of a picture that the store has.
  std::uint64_t bytes(const pictures::PictureContent& picture) const { return entries_.at(picture).bytes; }
  /// Values of a row, if they have so many bytes.
  std::int64_t values(std::size_t size) const { return static_cast<std::int64_t>(row_ / size); }
  /// In all files: those of other runs, too.
  std::size_t pictures() const { return entries_.size(); }
  const std::vector<std::filesystem::path>& damaged() const { return damaged_; }

 private:
  struct Entry {
    std::size_t file = 0;
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t checksum = 0;
  };
  /// False, with the store as it was, if the file is not complete, or what it says of itself cannot be.
  bool add(const std::filesystem::path& path);

  std::vector<std::pair<std::filesystem::path, MappedFile>> files_ = {};
  std::map<pictures::PictureContent, Entry> entries_ = {};
  std::vector<std::filesystem::path> damaged_ = {};
  std::uint64_t row_ = 0;
};

/// Writes a file of a store, under a name of its own until it is complete. Its name then follows from its pictures, so
/// that runs that compute the same ones replace each other's file with the same bytes.
class FeatureWriter {
 public:
  /// Makes the folder, and removes what interrupted runs have left there of this key. Throws Error (cannot-write) on
  /// failure, here and below. `row`: bytes of an output row, the same for all pictures of the key.
  FeatureWriter(std::filesystem::path folder, std::string key, std::uint64_t row);
  FeatureWriter(const FeatureWriter&) = delete;
  FeatureWriter& operator=(const FeatureWriter&) = delete;
  ~FeatureWriter();

  void add(const pictures::PictureContent& picture, std::string_view rows);
  void finish();
  /// Bytes of all rows so far.
  std::uint64_t bytes() const { return written_; }

 private:
  struct Record {
    pictures::PictureContent picture;
    std::uint64_t bytes;
    std::uint64_t checksum;
  };
  friend class FeatureStore;
  void write(std::string_view bytes);
  [[noreturn]] void fail() const;

  std::filesystem::path folder_;
  std::string key_;
  std::filesystem::path part_;
  std::ofstream stream_;
  std::vector<Record> records_ = {};
  std::uint64_t row_, written_ = 0;
};

/// Why nobody can write a store (cannot-write) into a folder, which need not exist; empty if it can be done. Leaves
/// nothing behind.
std::optional<Diagnostic> closed_to_features(const std::filesystem::path& folder);

}  // namespace automodel::data
