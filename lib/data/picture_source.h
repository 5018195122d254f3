// Where the pictures of a row are: in files beside it, in cells of its table, or nowhere: drawn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "pictures/picture.h"
#include "rows/rows.h"

namespace automodel::data {

struct PictureSource {
  std::filesystem::path file = {};          ///< empty: the bytes are in the table
  std::int64_t row = 0, cell = 0;           ///< then those of this binary cell of the row
  bool upright = true;                      ///< turned by its Exif tag
  std::optional<std::uint64_t> drawn = {};  ///< neither: pixels are drawn from this seed, the row and the cell
  pictures::PictureMark mark = {};          ///< as it is turned
};

/// The bytes of its file or cell; empty if it is drawn. Throws as read_picture().
std::string stored_bytes(const PictureSource& source, const rows::Rows* table);
/// Decodes it, or draws it; `table` is that of its row, if it is in a cell. Throws pictures::PictureError, and
/// rows::RowError if the table cannot be read.
pictures::PicturePtr read_picture(const PictureSource& source, const rows::Rows* table);
/// Sets the mark of a picture: decodes it, unless it is drawn. Throws as read_picture().
void mark_picture(PictureSource& source, const rows::Rows* table);
/// The content of a picture that was read, as in its mark if it has not changed since.
pictures::PictureContent content_of(const pictures::Picture& picture);

/// The pictures that a row names: of a table, or of random pixels.
class RowPictures {
 public:
  /// `column`: where they are, for messages. `upright`: whether bytes are turned by their Exif tag, which files always
  /// are. The table must outlive this.
  RowPictures(const rows::Rows& table, std::int64_t row, std::string column, bool upright = true)
      : table_(&table), row_(row), column_(std::move(column)), upright_(upright) {}
  /// Pictures of one size with random pixels, the same wherever and whenever they are drawn; cells are {"bytes":
  /// its number within the row}.
  RowPictures(std::uint64_t seed, pictures::Size size, std::int64_t row)
      : row_(row), column_("image"), drawn_{.drawn = seed, .mark = {size}} {}

  /// `cell`: the name of a file in relation to the row's, the bytes themselves, or both as in the feature Image of
  /// Hugging Face's datasets, {"bytes": bytes, "path": name}, where bytes count first. Its size is set only if it is
  /// drawn. Throws PictureError: there is neither, or it would have to be downloaded.
  PictureSource find(const nlohmann::ordered_json& cell) const;
  /// How messages call it.
  std::string name(const nlohmann::ordered_json& cell) const;
  const rows::Rows* table() const { return table_; }  ///< null: they are drawn

 private:
  const rows::Rows* table_ = nullptr;
  std::int64_t row_;
  std::string column_;
  bool upright_ = true;
  PictureSource drawn_ = {};
};

}  // namespace automodel::data
