#include "report/page.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/version.h"
#include "report/page_parts.h"
#include "report/run_json.h"

namespace automodel::report {
namespace {

std::string_view part(std::string_view name) {
  const auto parts = page_parts();
  const auto found = std::ranges::find(parts, name, &PagePart::name);
  AUTOMODEL_CHECK(found != parts.end(), "lib/report/CMakeLists.txt lacks a part of a page");
  return found->text;
}

/// JSON within a script: "<" can only be part of a string, where the escape means the same.
std::string in_script(std::string_view json) {
  std::string out;
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

/// `head`: further elements of it. `nonce`: the attribute of the styles, or nothing.
std::string whole(std::string_view title, std::string_view head, std::string_view nonce, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{}<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}</title><style{}>{}</style></head><body>\n"
      "{}</body></html>\n",
      head, escaped(title), nonce, part("style.css"), body);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

std::string to_html(const Page& page) {
  const auto nonce = page.nonce.empty() ? "" : fmt::format(" nonce=\"{}\"", page.nonce);
  std::string script = fmt::format("const boot = {};\n", in_script(page.data));
  for (const auto& name : page.scripts) script += part(name);
  return whole(page.title, "", nonce,
               fmt::format("<noscript>This page is drawn by its script.</noscript>\n<script{}>{}{}();</script>", nonce,
                           script, page.start));
}

std::string still_page(const std::string& title, const std::string& body) {
  return whole(title,
               "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
               "'unsafe-inline'\">",
               "", body);
}

std::string report_page(const std::vector<RunFiles>& runs) {
  std::string names;
  JsonWriter json;
  json.begin_object();
  json.member("version", kVersion);
  json.key("runs");
  json.begin_array();
  for (const auto& run : runs) {
    names += (names.empty() ? "" : ", ") + run.name;
    json.document(to_json(run));
  }
  json.end_array();
  json.end_object();
  return to_html({.title = names, .data = json.take(), .scripts = {"draw.js", "run.js"}, .start = "startReport"});
}

std::string plan_page(const std::string& title, const std::string& plan, const std::string& trace) {
  JsonWriter json;
  json.begin_object();
  json.member("version", kVersion);
  json.member("title", title);
  json.key("plan");
  json.document(plan);
  json.key("trace");
  json.document(trace.empty() ? "null" : trace);
  json.end_object();
  return to_html({.title = title, .data = json.take(), .scripts = {"draw.js", "plan.js"}, .start = "startPlan"});
}

}  // namespace automodel::report
