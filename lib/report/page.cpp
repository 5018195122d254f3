#include "report/page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/version.h"
#include "report/chart.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace automodel::report {
namespace {

struct Shown {
  const char* key;
  const char* title;
  bool logarithmic;
};
constexpr std::array kCharts = {Shown{"loss", "Loss", false},
                                Shown{"grad_norm", "Gradient norm, before clipping", true},
                                Shown{"lr", "Learning rate", false},
                                Shown{"tps", "Tokens per second, all ranks", false},
                                Shown{"step_time", "Seconds per step", true},
                                Shown{"mem", "Peak memory per rank, GiB", false},
                                Shown{"mfu", "Model FLOPs utilization", false}};
/// Keys that are shown elsewhere, or not at all.
constexpr std::array<std::string_view, 4> kPassedOver = {"epoch", "tps_per_gpu", "num_tokens_per_step",
                                                         "num_label_tokens"};

// Colours are checked for contrast on both backgrounds and for colour-blind readers. Colour never carries identity
// alone: legends name every series.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--surface:#fcfcfb;--ink:#0b0b0b;--soft:#52514e;--grid:#e4e3df;--card:#fff;
--s0:#2a78d6;--s1:#eb6834;--s2:#1baf7a;--s3:#eda100;--s4:#e87ba4;--s5:#008300;--s6:#4a3aa7;--s7:#e34948}
@media (prefers-color-scheme:dark){:root{--surface:#1a1a19;--ink:#fff;--soft:#c3c2b7;--grid:#383835;--card:#222221;
--s0:#3987e5;--s1:#d95926;--s2:#199e70;--s3:#c98500;--s4:#d55181;--s5:#008300;--s6:#9085e9;--s7:#e66767}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1200px;padding:16px;background:var(--surface);color:var(--ink);
font:15px/1.45 system-ui,sans-serif}h1{font-size:1.35rem;margin:.2em 0;overflow-wrap:anywhere}h1.run{margin-top:2em}h2{font-size:1.1rem;margin:1.6em 0 .5em}
h3{font-size:.95rem;margin:1em 0 .3em}p{margin:.3em 0;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));gap:8px}.tile{background:var(--card);
border:1px solid var(--grid);border-radius:8px;padding:8px 12px}.tile b{display:block;font-size:1.3rem}.tile span{color:var(--soft);font-size:.8rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:20px}
figure{margin:0;min-width:0}figure.lanes,.bars{margin-bottom:16px}figcaption{font-weight:600;font-size:.9rem;margin-bottom:4px}
.plot{position:relative;height:220px;margin:6px 10px 26px 58px}.plot svg{width:100%;height:100%;overflow:visible;display:block}
.plot span{position:absolute;font-size:11px;color:var(--soft);font-variant-numeric:tabular-nums;white-space:nowrap}
.y{right:calc(100% + 6px);transform:translateY(-50%)}.x{top:calc(100% + 5px);transform:translateX(-50%)}
.plot output{position:absolute;top:0;display:none;background:var(--card);border:1px solid var(--grid);border-radius:6px;padding:3px 7px;
font-size:12px;pointer-events:none;white-space:pre;z-index:1}
path{fill:none;vector-effect:non-scaling-stroke}.grid{stroke:var(--grid)}.mark{stroke:var(--soft);stroke-dasharray:3 3}
.line{stroke-width:2;stroke-linejoin:round}.dot{stroke-width:8;stroke-linecap:round}.band{opacity:.18}
.s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{stroke:var(--s4)}.s5{stroke:var(--s5)}.s6{stroke:var(--s6)}.s7{stroke:var(--s7)}
.b0{fill:var(--s0)}.b1{fill:var(--s1)}.b2{fill:var(--s2)}.b3{fill:var(--s3)}.b4{fill:var(--s4)}.b5{fill:var(--s5)}.b6{fill:var(--s6)}.b7{fill:var(--s7)}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:12px}.key::before{content:"";display:inline-block;width:14px;height:4px;
border-radius:2px;margin-right:5px;vertical-align:middle;background:var(--c)}.key.round::before{width:8px;height:8px;border-radius:4px}
.c0{--c:var(--s0)}.c1{--c:var(--s1)}.c2{--c:var(--s2)}.c3{--c:var(--s3)}.c4{--c:var(--s4)}.c5{--c:var(--s5)}.c6{--c:var(--s6)}.c7{--c:var(--s7)}
.k-f{--c:var(--s0);fill:var(--s0)}.k-b{--c:var(--s1);fill:var(--s1)}.k-i{--c:var(--s3);fill:var(--s3)}.k-w{--c:var(--s2);fill:var(--s2)}.k-c{--c:var(--soft);fill:var(--soft)}
.lane{display:grid;grid-template-columns:54px 1fr 50px;align-items:center;gap:6px;font-size:12px;color:var(--soft)}
.lane svg{width:100%;height:20px;background:var(--grid);border-radius:3px;margin:1px 0}.lane span:last-child{text-align:right}
.lane.rank{grid-template-columns:70px 1fr 50px}.slow{color:var(--s7)}
.scroll{overflow-x:auto}.events td:nth-child(-n+3){white-space:nowrap}.events td:last-child{overflow-wrap:anywhere}.said{white-space:pre-wrap}table{border-collapse:collapse;font-size:13px;width:100%}th{text-align:left;color:var(--soft);font-weight:600}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--grid);vertical-align:top;overflow-wrap:break-word}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
pre{font-size:12px;overflow-x:auto;background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:8px}summary{cursor:pointer}
@media (max-width:600px){.events th{display:none}.events td{display:inline-block;border:0;padding:4px 10px 0 0}
.events td:last-child{display:block;padding:0 0 4px;border-bottom:1px solid var(--grid);overflow-wrap:break-word}}
footer{margin-top:2em;color:var(--soft);font-size:12px}
)";

constexpr const char* kScript = R"(
for(const plot of document.querySelectorAll('.plot')){
 const data=JSON.parse(plot.dataset.points),box=plot.querySelector('output'),svg=plot.querySelector('svg');
 const show=e=>{
  const area=svg.getBoundingClientRect(),share=Math.min(1,Math.max(0,(e.clientX-area.left)/area.width));
  const step=data.low+share*(data.high-data.low),lines=[];
  for(const s of data.series){
   let best=null,apart=Infinity;
   for(const p of s.points){const d=Math.abs((p[0]+p[1])/2-step);if(d<apart){apart=d;best=p}}
   if(best)lines.push((best[0]==best[1]?'step '+best[0]:'steps '+best[0]+' to '+best[1])+': '+best[2]+(data.series.length>1?'  '+s.name:''));
  }
  box.textContent=lines.join('\n');box.style.display='block';
  if(share<.5){box.style.left=100*share+'%';box.style.right='auto'}else{box.style.right=100*(1-share)+'%';box.style.left='auto'}
 };
 plot.addEventListener('pointermove',show);plot.addEventListener('pointerleave',()=>box.style.display='none');
}
)";

double last_finite(const Column& column) {
  for (auto value = column.values.rbegin(); value != column.values.rend(); ++value)
    if (std::isfinite(*value)) return *value;
  return std::nan("");
}

double sum(const Column& column) {
  return std::accumulate(column.values.begin(), column.values.end(), 0.0,
                         [](double total, double value) { return std::isfinite(value) ? total + value : total; });
}

const Column* find(const std::map<std::string, Column>& columns, const std::string& key) {
  const auto found = columns.find(key);
  return found == columns.end() || found->second.steps.empty() ? nullptr : &found->second;
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string tile(const std::string& value, const std::string& name) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escaped(value), escaped(name));
}

std::string tiles(const RunFiles& run) {
  std::string out = "<div class=\"tiles\">";
  if (const auto* loss = find(run.metrics, "loss")) {
    out += tile(fmt::format("{}", loss->steps.back()), "last step");
    out += tile(short_number(last_finite(*loss)), "last loss");
  }
  for (const auto& [name, column] : run.validation)
    if (!column.values.empty())
      out +=
          tile(short_number(*std::min_element(column.values.begin(), column.values.end())), "lowest " + name + " loss");
  const auto* tokens = find(run.metrics, "num_tokens_per_step");
  const auto* seconds = find(run.metrics, "step_time");
  if (tokens != nullptr) out += tile(short_number(sum(*tokens)), "tokens");
  if (seconds != nullptr) out += tile(duration(sum(*seconds)), "in steps");
  if (tokens != nullptr && seconds != nullptr && sum(*seconds) > 0)
    out += tile(short_number(sum(*tokens) / sum(*seconds)), "tokens per second");
  const auto count = [&](const char* event) {
    return std::count_if(run.events.begin(), run.events.end(),
                         [&](const RunEvent& each) { return each.event == event; });
  };
  out += tile(std::to_string(count("restart")), "restarts");
  if (const auto bad = count("skip") + count("rollback"); bad > 0) out += tile(std::to_string(bad), "bad steps");
  return out + "</div>\n";
}

std::vector<Mark> marks_of(const std::vector<RunFiles>& runs) {
  std::vector<Mark> out;
  for (const auto& run : runs)
    for (const auto& event : run.events)
      if (event.step >= 0 && (event.event == "restart" || event.event == "skip" || event.event == "rollback"))
        out.push_back({event.step, fmt::format("{} at step {}: {}", event.event, event.step, event.message)});
  return out;
}

std::string charts(const std::vector<RunFiles>& runs) {
  const auto marks = marks_of(runs);
  std::vector<Chart> all;
  for (const auto& shown : kCharts) all.push_back({shown.key, shown.title, shown.logarithmic, {}, marks});
  // Metrics that a newer release records in addition.
  for (const auto& run : runs)
    for (const auto& [key, column] : run.metrics) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const Chart& each) { return each.key == key; });
      if (!known && std::find(kPassedOver.begin(), kPassedOver.end(), key) == kPassedOver.end())
        all.push_back({key, key, false, {}, marks});
    }
  std::string out = "<div class=\"charts\">\n";
  for (auto& chart : all) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto& run = runs[i];
      const auto color = static_cast<int>(i);
      if (const auto* column = find(run.metrics, chart.key)) chart.series.push_back({run.name, color, column});
      if (chart.key != "loss") continue;
      for (const auto& [name, column] : run.validation) {
        // For a single run, validation gets its own colour.
        const auto label = runs.size() == 1 ? name : fmt::format("{}, {}", run.name, name);
        chart.series.push_back(
            {label, runs.size() == 1 ? static_cast<int>(chart.series.size()) : color, &column, true});
      }
    }
    out += to_html(chart);
  }
  return out + "</div>\n";
}

/// "01-31 23:59:58" of an ISO 8601 time; anything else as it is.
std::string short_time(const std::string& iso) {
  const bool usual = iso.size() >= 19 && iso[4] == '-' && iso[10] == 'T' && iso[13] == ':';
  return usual ? iso.substr(5, 5) + " " + iso.substr(11, 8) : iso;
}

/// A field of an event: seconds and bytes with their unit.
std::string field_text(const std::string& name, const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0) return value;
  if (name == "seconds" || name.ends_with("_seconds")) return format_seconds(number);
  return name == "bytes" || name.ends_with("_bytes") ? format_bytes(number) : value;
}

std::string events(const RunFiles& run) {
  if (run.events.empty()) return "";
  std::string rows;
  for (const auto& event : run.events) {
    std::string more;
    for (const auto& [name, value] : event.fields)
      more += fmt::format("{}{}: {}", more.empty() ? "" : "; ", name, field_text(name, value));
    rows += fmt::format(
        "<tr><td title=\"{}\">{}</td><td class=\"n\">{}</td><td>{}</td><td><span "
        "class=\"said\">{}</span>{}{}</td></tr>\n",
        escaped(event.time), escaped(short_time(event.time)), event.step >= 0 ? std::to_string(event.step) : "",
        escaped(event.event), escaped(event.message), more.empty() ? "" : "<br>", escaped(more));
  }
  return "<h2>Events</h2>\n<div class=\"scroll\"><table class=\"events\"><tr><th>time</th><th class=\"n\">step</th>"
         "<th>event</th><th>what</th></tr>\n" +
         rows + "</table></div>\n";
}

std::string estimate(const RunFiles& run) {
  std::string rows;
  for (const auto& each : run.estimate) {
    if (!std::isfinite(each.planned) || !std::isfinite(each.measured)) continue;
    const auto text = [&](double value) { return each.bytes ? format_bytes(value) : fmt::format("{:.4g} s", value); };
    rows +=
        fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:+.1f}%</td></tr>\n",
                    escaped(each.what), text(each.planned), text(each.measured),
                    each.measured != 0 ? 100 * (each.planned / each.measured - 1) : 0.0);
  }
  if (rows.empty()) return "";
  return "<h2>Planned and measured</h2>\n<div class=\"scroll\"><table class=\"estimate\"><tr><th></th><th "
         "class=\"n\">planned"
         "</th><th class=\"n\">measured</th><th class=\"n\">difference</th></tr>\n" +
         rows + "</table></div>\n";
}

std::string time_lines(const RunFiles& run) {
  if (run.traces.empty()) return "";
  std::string out =
      "<h2>Timelines</h2>\n<p>An executed action lasts until the next one begins: waiting for a message shows as a "
      "long "
      "message, or as the computation that needs it.</p>\n";
  for (const auto& trace : run.traces) out += time_line_html(trace);
  return out;
}

/// The first recipe, and what changed at each later start.
std::string recipes(const RunFiles& run) {
  if (run.recipes.empty()) return "";
  std::string out = "<h2>Recipe</h2>\n", keys;
  for (const auto& [key, value] : run.recipes.front().second) keys += fmt::format("{}: {}\n", key, value);
  std::string rows;
  for (std::size_t i = 1; i < run.recipes.size(); ++i) {
    auto before = run.recipes[i - 1].second, now = run.recipes[i].second;
    for (const auto& [key, value] : before) now.try_emplace(key, "(none)");
    for (const auto& [key, value] : now) {
      const auto old = before.try_emplace(key, "(none)").first->second;
      if (old != value)
        rows += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", run.recipes[i].first,
                            escaped(key), escaped(old), escaped(value));
    }
  }
  if (run.recipes.size() > 1)
    out += rows.empty()
               ? "<p>The same at every start.</p>\n"
               : "<div class=\"scroll\"><table class=\"changes\"><tr><th class=\"n\">from step</th><th>key</th>"
                 "<th>before</th><th>now</th></tr>\n" +
                     rows + "</table></div>\n";
  return out + "<details><summary>All keys at the first start</summary><pre>" + escaped(keys) + "</pre></details>\n";
}

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

}  // namespace

std::string to_html(const DrawnPage& page) {
  const auto nonce = page.nonce.empty() ? "" : fmt::format(" nonce=\"{}\"", page.nonce);
  std::string script = fmt::format("const boot = {};\n", in_script(page.data));
  for (const auto& name : page.scripts) script += part(name);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}</title><style{}>{}</style></head><body>\n"
      "<noscript>This page is drawn by its script.</noscript>\n<script{}>{}{}();</script></body></html>\n",
      escaped(page.title), nonce, part("style.css"), nonce, script, page.start);
}

std::string to_page(const std::vector<RunFiles>& runs) {
  std::string names;
  for (const auto& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n",
      escaped(names), kStyle, escaped(names));
  for (const auto& run : runs) {
    if (runs.size() > 1) out += fmt::format("<h3>{}</h3>\n", escaped(run.name));
    out += tiles(run);
  }
  out += "<h2>Steps</h2>\n" + charts(runs);
  for (const auto& run : runs) {
    const auto rest = estimate(run) + rank_phases_html(run) + time_lines(run) + events(run) + recipes(run);
    if (runs.size() > 1 && !rest.empty()) out += fmt::format("<h1 class=\"run\">{}</h1>\n", escaped(run.name));
    out += rest;
  }
  return out + fmt::format(
                   "<footer>automodel {} report. Lines are means of neighbouring steps, bands their minimum "
                   "and maximum; dashed lines are events.</footer><script>{}</script></body></html>\n",
                   kVersion, kScript);
}

}  // namespace automodel::report
