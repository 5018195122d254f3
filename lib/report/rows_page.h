// Rows of data as they will be trained, as a page: text, which of it counts, pictures.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::report {

/// Bytes of pictures that a page holds, as they are stored. A browser needs a few hundred MB for a page of 64 MiB.
inline constexpr std::size_t kMostPictureBytes = std::size_t{32} << 20;

/// A run of a row's tokens, or what is said between them.
struct RowPart {
  enum class Kind {
    kContext,
    kLabel,    ///< counts in the loss
    kPadding,  ///< of the text, what is said of it
    kPicture,  ///< placeholders, likewise
    kBorder,   ///< between rows of a pack, and where a row was cut
  };
  Kind kind;
  std::string text;
};

struct RowPicture {
  std::string caption = {};
  std::string bytes = {};       ///< of a file; empty: not shown, and the caption says why
  std::string_view media = {};  ///< "image/png"
  bool upright = true;          ///< turned by its Exif tag
};

struct ShownRow {
  std::string title = {};  ///< "row 3"
  std::string note = {};   ///< "120 tokens, 30 label tokens (25.0 %)", or why the row cannot be used
  bool usable = true;
  std::vector<RowPicture> pictures = {};
  std::vector<RowPart> parts = {};
};

/// All texts may be of unknown origin. `summary`: lines below the rows.
std::string rows_page(const std::string& title, const std::string& summary, const std::vector<ShownRow>& rows);

}  // namespace automodel::report
