// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace automodel::metrics {

std::uint32_t crc32c(std::string_view bytes);
/// As it stands in TFRecord files: rotated and shifted, so that the checksum of data that holds checksums stays good.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace automodel::metrics
