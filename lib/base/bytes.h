// Human-readable sizes, counts and durations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel {

/// Parses "80 GiB", "80GB", "1.5 TiB" or "512" (bytes). KB, MB, GB and TB are powers of 1000; KiB ... TiB and a lone K,
/// M, G or T are powers of 1024. Empty if the text is not a size or exceeds 4.6e18 (about 2^62).
std::optional<std::int64_t> parse_bytes(std::string_view text);
/// "1.50 GiB", with three significant digits.
std::string format_bytes(double bytes);
/// "405.9 B", "8.03 M", "512": a count with a decimal unit (thousand, million, billion, trillion: K, M, B, T).
std::string format_count(double count);
/// "75.6 TFLOP", with three significant digits.
std::string format_flops(double flops);
/// "1.2 ms", "3.40 s", "2 h 05 min".
std::string format_seconds(double seconds);

}  // namespace automodel
