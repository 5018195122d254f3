#include "data/picture_source.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "base/random.h"
#include "base/utf8.h"
#include "data/content_hash.h"
#include "pictures/decode.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// The number of the binary cell that a cell is, or has as `bytes`; -1 if there is none.
std::int64_t number_of(const ordered_json& cell) {
  const auto bytes = cell.is_object() ? cell.value("bytes", ordered_json()) : ordered_json();
  if (bytes.is_object()) return number_of(bytes);
  return bytes.is_number_integer() ? bytes.get<std::int64_t>() : -1;
}

/// The file that a cell names; empty if it names none.
std::string file_of(const ordered_json& cell) {
  const auto path = cell.is_object() ? cell.value("path", ordered_json()) : cell;
  return path.is_string() ? path.get<std::string>() : std::string();
}

/// Of what a picture is drawn from, which is known without drawing it.
pictures::PictureContent drawn_content(const PictureSource& source) {
  ContentHash hash;
  hash.add(fmt::format("drawn {} {} {} {} x {}", *source.drawn, source.row, source.cell, source.mark.size.width,
                       source.mark.size.height));
  return hash.value();
}

pictures::PicturePtr draw(const PictureSource& source) {
  const RandomStream stream(*source.drawn, fmt::format("picture {} of row {}", source.cell, source.row));
  auto out = std::make_shared<pictures::Picture>();
  out->size = source.mark.size;
  out->content = drawn_content(source);
  out->rgb.resize(std::size_t{3} * static_cast<std::size_t>(out->size.width) *
                  static_cast<std::size_t>(out->size.height));
  constexpr std::size_t kBytes = sizeof(std::uint64_t);
  for (std::size_t at = 0; at < out->rgb.size(); at += kBytes) {
    const auto bits = stream.bits64(at / kBytes);
    for (std::size_t i = 0; i < std::min(kBytes, out->rgb.size() - at); ++i)
      out->rgb[at + i] = static_cast<std::uint8_t>(bits >> (8 * i));
  }
  return out;
}

}  // namespace

std::string stored_bytes(const PictureSource& source, const rows::Rows* table) {
  if (source.drawn) return {};
  return source.file.empty() ? table->bytes(source.row, source.cell) : pictures::picture_file(source.file);
}

pictures::PicturePtr read_picture(const PictureSource& source, const rows::Rows* table) {
  return source.drawn ? draw(source) : pictures::decode(stored_bytes(source, table), source.upright);
}

void mark_picture(PictureSource& source, const rows::Rows* table) {
  if (source.drawn) {
    source.mark.content = drawn_content(source);
    return;
  }
  const auto picture = read_picture(source, table);
  source.mark = {picture->size, content_of(*picture)};
}

pictures::PictureContent content_of(const pictures::Picture& picture) {
  if (picture.content != pictures::PictureContent{}) return picture.content;
  ContentHash hash;
  hash.add(fmt::format("{} x {}", picture.size.width, picture.size.height));
  hash.add(std::string_view(reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size()));
  return hash.value();
}

PictureSource RowPictures::find(const ordered_json& cell) const {
  if (table_ == nullptr) {
    auto out = drawn_;
    out.row = row_;
    out.cell = number_of(cell);
    return out;
  }
  if (const auto number = number_of(cell); number >= 0) return {.row = row_, .cell = number, .upright = upright_};
  const auto file = file_of(cell);
  if (file.empty()) throw pictures::PictureError("there are no bytes, and no file is named");
  if (file.find("://") != std::string::npos) throw pictures::PictureError("nothing is downloaded; name a file");
  return {.file = fs::path(table_->where(row_).file).parent_path() / file};
}

std::string RowPictures::name(const ordered_json& cell) const {
  const auto file = number_of(cell) >= 0 ? std::string() : file_of(cell);
  if (!file.empty()) return fmt::format("'{}'", printable(file, pictures::kMostShown));
  return fmt::format("column '{}'", column_);
}

}  // namespace automodel::data
