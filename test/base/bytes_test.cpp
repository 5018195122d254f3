#include "base/bytes.h"

#include <catch2/catch.hpp>

#include "base/dtype.h"

namespace automodel {

TEST_CASE("byte sizes are parsed with decimal and binary units", "[base]") {
  CHECK(parse_bytes("512") == 512);
  CHECK(parse_bytes("80GiB") == 80LL << 30);
  CHECK(parse_bytes("80 GB") == 80'000'000'000);
  CHECK(parse_bytes("1.5 TiB") == 3LL << 39);
  CHECK(parse_bytes("2G") == 2LL << 30);
  CHECK_FALSE(parse_bytes("GiB"));
  CHECK_FALSE(parse_bytes("80 XB"));
  CHECK_FALSE(parse_bytes("-1"));
  CHECK_FALSE(parse_bytes("99999999999999 TiB"));
}

TEST_CASE("sizes, counts and times are printed with three significant digits", "[base]") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1.5 * (1LL << 30)) == "1.50 GiB");
  CHECK(format_count(8'030'000) == "8.03 M");
  CHECK(format_count(405.85e9) == "406 B");
  CHECK(format_count(42) == "42");
  CHECK(format_flops(7.56e13) == "75.6 TFLOP");
  CHECK(format_flops(9.421e17) == "942 PFLOP");
  CHECK(format_flops(9.421e20) == "942 EFLOP");
  CHECK(format_flops(512) == "512 FLOP");
  CHECK(format_seconds(0) == "0 s");
  CHECK(format_seconds(0.0123) == "12.3 ms");
  CHECK(format_seconds(7500) == "2 h 05 min");
}

TEST_CASE("element types are parsed from PyTorch's names and the usual short names", "[base]") {
  CHECK(parse_dtype("torch.bfloat16") == DType::kBFloat16);
  CHECK(parse_dtype("fp32") == DType::kFloat32);
  CHECK_FALSE(parse_dtype("foo"));
  CHECK(name_of(DType::kBFloat16) == "bfloat16");
  CHECK(size_of(DType::kFloat64) == 8);
}

}  // namespace automodel
