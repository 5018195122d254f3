#include "base/crc32c.h"

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "base/crc32c_register.h"
#include "base/random.h"

namespace automodel {
namespace {

std::string noise(std::size_t size) {
  const RandomStream stream(1, "crc");
  std::string out(size, '\0');
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(stream.bits32(i));
  return out;
}

}  // namespace

TEST_CASE("CRC-32C matches published test vectors", "[base]") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43U);
}

TEST_CASE("table-based and hardware CRC-32C agree at every length, and a checksum can be continued", "[base]") {
  const std::string bytes = noise(200);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    CHECK(detail::crc32c_by_table(~0U, bytes.data(), size) == ~crc32c(bytes.substr(0, size)));
    CHECK(crc32c(bytes.substr(size), crc32c(bytes.substr(0, size))) == crc32c(bytes));
  }
}

TEST_CASE("a file's checksum can be combined from pieces in any order and from several ranks", "[base]") {
  const std::string file = noise(100'003);
  struct Piece {
    std::size_t offset, size;
  };
  std::vector<Piece> pieces;
  const RandomStream stream(2, "pieces");
  for (std::size_t offset = 0, i = 0; offset < file.size(); ++i) {
    const auto size = std::min(file.size() - offset, static_cast<std::size_t>(stream.below(i, 4000)));
    pieces.push_back({offset, size});
    offset += size;
  }
  for (std::size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[stream.below(1000 + i, i)]);
  std::vector<PiecewiseCrc32c> ranks(3, PiecewiseCrc32c(file.size()));
  for (std::size_t i = 0; i < pieces.size(); ++i)
    ranks[i % 3].add(pieces[i].offset, std::string_view(file).substr(pieces[i].offset, pieces[i].size));
  ranks[0].merge(ranks[2].state());
  ranks[0].merge(ranks[1].state());
  CHECK(ranks[0].value() == crc32c(file));
}

TEST_CASE("bytes that no piece covers count as zeros", "[base]") {
  PiecewiseCrc32c crc(1'000'000);
  crc.add(999'990, "abc");
  std::string file(1'000'000, '\0');
  file.replace(999'990, 3, "abc");
  CHECK(crc.value() == crc32c(file));
  CHECK(PiecewiseCrc32c(0).value() == crc32c(""));
}

TEST_CASE("checksums are formatted and parsed, and malformed ones are refused", "[base]") {
  std::uint32_t value = 0;
  CHECK(checksum_text(0xE3069283U) == "0xe3069283");
  CHECK(parse_checksum("0xe3069283", value));
  CHECK(value == 0xE3069283U);
  for (const char* bad : {"", "0x", "e3069283", "0xe306928", "0xe30692833", "0xe306928g", "0x-3069283"})
    CHECK_FALSE(parse_checksum(bad, value));
}

}  // namespace automodel
