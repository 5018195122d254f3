#include "data/megatron_index.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

namespace automodel::data {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
/// Indexed by Megatron's dtype codes 1 ... 8; floating-point data cannot be tokens.
constexpr std::array<std::optional<TokenType>, 9> kTypes = {std::nullopt,      TokenType::kUint8, TokenType::kInt8,
                                                            TokenType::kInt16, TokenType::kInt32, TokenType::kInt64,
                                                            std::nullopt,      std::nullopt,      TokenType::kUint16};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::size_t left() const { return bytes_.size() - at_; }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  void skip(std::size_t count) { at_ += count; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<MegatronIndex> read_megatron_index(std::string_view index, std::uint64_t bin_size, std::string& problem) {
  const auto fail = [&](std::string reason) {
    problem = std::move(reason);
    return std::nullopt;
  };
  Reader reader(index);
  if (!index.starts_with(kMagic)) return fail("it does not begin with MMIDIDX");
  reader.skip(kMagic.size());
  if (reader.left() < 25) return fail("it ends within its header");
  if (const auto version = reader.take<std::uint64_t>(); version != 1)
    return fail(fmt::format("its version is {}; only version 1 is supported", version));
  const auto code = reader.take<std::uint8_t>();
  if (code >= kTypes.size() || !kTypes[code])
    return fail(fmt::format("type {} of its tokens is not an integer type", code));
  const auto count = reader.take<std::uint64_t>(), bounds = reader.take<std::uint64_t>();
  const std::uint64_t room = reader.left();
  if (count > room / 12 || bounds > room / 8 || count * 12 + bounds * 8 > room)
    return fail(
        fmt::format("it names {} sequences and {} document bounds, and has {} bytes", count, bounds, index.size()));
  MegatronIndex out{.type = *kTypes[code]};
  const auto width = static_cast<std::uint64_t>(bytes_of(out.type));
  Reader lengths = reader, places = reader;
  places.skip(count * 4);
  reader.skip(count * 12);
  out.sequences.reserve(count);
  std::vector<std::size_t> kept(1, 0);  // number of non-empty sequences before each
  kept.reserve(count + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto length = lengths.take<std::int32_t>();
    const auto place = places.take<std::int64_t>();
    const std::uint64_t bytes = length < 0 ? 0 : static_cast<std::uint64_t>(length) * width;
    if (length < 0 || place < 0 || static_cast<std::uint64_t>(place) > bin_size ||
        bytes > bin_size - static_cast<std::uint64_t>(place))
      return fail(fmt::format("sequence {} has {} tokens at byte {}, beyond the {} bytes of the .bin file", i, length,
                              place, bin_size));
    if (length > 0) out.sequences.push_back({0, static_cast<std::uint64_t>(place), length, out.type});
    kept.push_back(out.sequences.size());
  }
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < bounds; ++i) {
    const auto bound = reader.take<std::int64_t>();
    if (bound < 0 || static_cast<std::uint64_t>(bound) > count || static_cast<std::uint64_t>(bound) < last)
      return fail(fmt::format("document bound {} is {}; bounds grow from 0 to {}", i, bound, count));
    last = static_cast<std::uint64_t>(bound);
    out.documents.push_back(kept[last]);
  }
  if (bounds > 0 && (out.documents.front() != 0 || last != count))
    return fail("its documents are not all of its sequences");
  if (bounds == 0) out.documents = {0, out.sequences.size()};
  return out;
}

}  // namespace automodel::data
