#include "data/nanogpt_file.h"

#include <array>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace automodel::data {
namespace {

constexpr std::int32_t kOldMagic = 20240520, kNewMagic = 278895051;
constexpr std::size_t kHeader = 256 * sizeof(std::int32_t);

}  // namespace

std::optional<MappedSequence::Span> read_nanogpt_header(std::string_view file, std::optional<TokenType> headerless,
                                                        std::string& problem) {
  const auto fail = [&](std::string reason) {
    problem = std::move(reason);
    return std::nullopt;
  };
  std::array<std::int32_t, 4> header{};
  if (file.size() >= kHeader) std::memcpy(header.data(), file.data(), sizeof header);
  if (header[0] != kOldMagic && header[0] != kNewMagic) {
    if (!headerless) return fail("it has no header");
    const auto width = static_cast<std::size_t>(bytes_of(*headerless));
    if (file.size() % width != 0) return fail(fmt::format("its size is not a multiple of {} bytes", width));
    return MappedSequence::Span{0, 0, static_cast<std::int64_t>(file.size() / width), *headerless};
  }
  if (header[1] != 1) return fail(fmt::format("its version is {}; only version 1 is supported", header[1]));
  const int width = header[0] == kOldMagic ? 2 : header[3];
  if (width != 2 && width != 4) return fail(fmt::format("its tokens have {} bytes; only 2 and 4 are supported", width));
  if (header[2] < 0 ||
      static_cast<std::uint64_t>(header[2]) * static_cast<std::uint64_t>(width) > file.size() - kHeader)
    return fail(fmt::format("its header promises {} tokens, and it has {} bytes", header[2], file.size()));
  return MappedSequence::Span{0, kHeader, header[2], width == 2 ? TokenType::kUint16 : TokenType::kUint32};
}

}  // namespace automodel::data
