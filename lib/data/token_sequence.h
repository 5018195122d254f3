// One long sequence of tokens, and its windows as samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/mapped_file.h"

namespace automodel::data {

class TokenSequence {
 public:
  TokenSequence() = default;
  TokenSequence(const TokenSequence&) = delete;
  TokenSequence& operator=(const TokenSequence&) = delete;
  virtual ~TokenSequence() = default;
  virtual std::int64_t size() const = 0;
  /// Copies tokens [first, first + out.size()). Thread-safe.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
};

/// Integer type of the tokens in a file.
enum class TokenType { kUint8, kInt8, kInt16, kUint16, kInt32, kUint32, kInt64 };
int bytes_of(TokenType type);

/// Spans of tokens in mapped files, concatenated.
class MappedSequence final : public TokenSequence {
 public:
  struct Span {
    std::size_t file;      ///< index into the files
    std::uint64_t offset;  ///< in bytes
    std::int64_t tokens;   ///< at least 1
    TokenType type;
  };
  /// Every span must be within its file. If `vocab_size` is known, reading an id beyond it throws an Error that names
  /// the file.
  MappedSequence(std::vector<MappedFile> files, std::vector<std::string> names, std::vector<Span> spans,
                 std::optional<std::int64_t> vocab_size);
  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override;

 private:
  std::vector<MappedFile> files_;
  std::vector<std::string> names_;
  std::vector<Span> spans_;
  std::vector<std::int64_t> ends_;  ///< position just past each span's last token
  std::int64_t vocab_size_;
};

/// Window k covers tokens k * seq_length ... (k + 1) * seq_length: seq_length inputs, with the same tokens shifted by
/// one as labels, so that every token but the first is predicted once per epoch. The last window may be shorter.
/// `sources` describes the data to the user ("text: 3 files, 1.2 MiB"). Null for fewer than two tokens.
std::unique_ptr<Dataset> make_window_dataset(std::unique_ptr<const TokenSequence> tokens, std::int64_t seq_length,
                                             std::int32_t pad, std::string sources);

}  // namespace automodel::data
