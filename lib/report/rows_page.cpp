#include "report/rows_page.h"

#include <fmt/format.h>

#include "base/base64.h"
#include "base/utf8.h"
#include "report/page.h"

namespace automodel::report {
namespace {

/// Text with its line ends visible, which are tokens too.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : escaped(printable_lines(text))) c == '\n' ? out += "<i>\u21b5</i>\n" : out += c;
  return out;
}

std::string picture_html(const RowPicture& picture) {
  const auto caption = fmt::format("<figcaption>{}</figcaption>", shown(picture.caption));
  if (picture.bytes.empty()) return fmt::format("<figure class=\"gone\">{}</figure>", caption);
  return fmt::format("<figure><img alt=\"\"{} src=\"data:{};base64,{}\">{}</figure>",
                     picture.upright ? "" : " class=\"unturned\"", picture.media, base64(picture.bytes), caption);
}

std::string part_html(const RowPart& part) {
  using enum RowPart::Kind;
  const auto text = shown(part.text);
  switch (part.kind) {
    case kContext: return text;
    case kLabel: return fmt::format("<mark>{}</mark>", text);
    case kPadding: return fmt::format("<span class=\"padding\">{}</span>", text);
    case kPicture: return fmt::format("<span class=\"placeholders\">{}</span>", text);
    case kBorder: return fmt::format("<span class=\"border\">{}</span>", text);
  }
  return {};
}

std::string row_html(const ShownRow& row) {
  auto out = fmt::format("<section><h2>{}</h2><p{}>{}</p>\n", shown(row.title), row.usable ? "" : " class=\"bad\"",
                         shown(row.note));
  if (!row.pictures.empty()) {
    out += "<div class=\"pictures\">";
    for (const auto& each : row.pictures) out += picture_html(each);
    out += "</div>\n";
  }
  if (!row.parts.empty()) {
    out += "<div class=\"tokens\">";
    for (const auto& each : row.parts) out += part_html(each);
    out += "</div>";
  }
  return out + "</section>\n";
}

}  // namespace

std::string rows_page(const std::string& title, const std::string& summary, const std::vector<ShownRow>& rows) {
  std::string body = fmt::format(
      "<h1>{}</h1><p class=\"tokens about\"><mark>counts in the loss</mark> context <span "
      "class=\"padding\">padding</span> "
      "<span class=\"placeholders\">tokens of a picture</span></p>\n",
      shown(title));
  for (const auto& row : rows) body += row_html(row);
  return still_page(title, body + fmt::format("<pre class=\"said\">{}</pre>", escaped(printable_lines(summary))));
}

}  // namespace automodel::report
