// CRC-32C (Castagnoli): the checksum of TFRecord files and checkpoint manifests. A CRC is linear, so a file's checksum
// can be combined from the checksums of its pieces, whichever ranks computed them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace automodel {

/// The CRC-32C of `bytes`; pass the checksum of the preceding bytes to continue it. About 8 GB/s with the CPU's CRC
/// instruction, 1.5 GB/s without.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t checksum = 0);
/// The masked form that TFRecord files use: rotated and offset, because the CRC of data that embeds its own CRC is a
/// weak check.
std::uint32_t masked_crc32c(std::string_view bytes);

/// The checksum of a file of known size from its pieces. Each piece is added exactly once, in any order and on any
/// rank; the per-rank states are then combined by xor.
class PiecewiseCrc32c {
 public:
  explicit PiecewiseCrc32c(std::uint64_t size) : size_(size) {}
  /// The bytes at [offset, offset + bytes.size()) of the file. Bytes never added count as zeros.
  void add(std::uint64_t offset, std::string_view bytes);
  /// This rank's contribution, to be passed to merge() on another rank.
  std::uint32_t state() const { return state_; }
  void merge(std::uint32_t state) { state_ ^= state; }
  /// crc32c() of the whole file once every piece has been added or merged.
  std::uint32_t value() const;

 private:
  std::uint64_t size_;
  std::uint32_t state_ = 0;
};

/// Formats as "0x1a2b3c4d" and parses it back; parse_checksum() returns false for anything else.
std::string checksum_text(std::uint32_t checksum);
bool parse_checksum(std::string_view text, std::uint32_t& checksum);

}  // namespace automodel
