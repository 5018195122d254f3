#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/version.h"
#include "commands.h"
#include "config/node.h"
#include "config/override.h"
#include "config/reference.h"
#include "estimate/search.h"
#include "plan/catalogue.h"
#include "plan_document.h"
#include "report.h"
#include "report/page.h"
#include "report/run_files.h"
#include "report/run_json.h"
#include "studio/reach.h"
#include "studio/server.h"

namespace automodel::app {
namespace {

namespace fs = std::filesystem;
using studio::Answer;
using studio::Request;

constexpr int kMostFound = 24;  // points of a search

/// Where nothing is named: a recipe to begin with.
constexpr const char* kOwnName = "studio.yaml";
constexpr const char* kOwnRecipe =
    "model:\n  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
    "distributed:\n  strategy: fsdp2\n  tp_size: 2\n  pp_size: 2\n  dp_size: 4\n"
    "  pipeline:\n    pp_schedule: 1F1B\n    pp_microbatch_size: 1\n"
    "step_scheduler:\n  global_batch_size: 64\n  local_batch_size: 8\n"
    "dataset:\n  _target_: mock\n  seq_length: 4096\n"
    "hardware:\n  profile: h100\n";

bool is_recipe(const fs::path& path) {
  return path.extension() == ".yaml" || path.extension() == ".yml";
}

/// What the command line names: recipes, and what lies in its folders.
struct Places {
  std::vector<std::string> recipes = {}, runs = {};
};
constexpr int kMostFolders = 2000;  // looked into
constexpr int kDepth = 4;

Places places_of(const std::vector<std::string>& named) {
  Places out;
  int looked = 0;
  for (const auto& each : named) {
    std::error_code error;
    if (!fs::is_directory(each, error)) {
      out.recipes.push_back(each);
      continue;
    }
    const auto is_run = [&](const fs::path& folder) { return fs::is_regular_file(folder / "training.jsonl", error); };
    if (is_run(each)) {
      out.runs.push_back(each);
      continue;
    }
    constexpr auto kSkip = fs::directory_options::skip_permission_denied;
    for (auto entry = fs::recursive_directory_iterator(each, kSkip, error); entry != fs::end(entry) && !error;
         entry.increment(error)) {
      if (entry->is_directory(error)) {
        const bool run = is_run(entry->path());
        if (run) out.runs.push_back(entry->path());
        if (run || entry.depth() >= kDepth) entry.disable_recursion_pending();
        if (++looked >= kMostFolders) break;
      } else if (is_recipe(entry->path()) && entry->is_regular_file(error)) {
        out.recipes.push_back(entry->path());
      }
    }
  }
  std::ranges::sort(out.runs);
  return out;
}

Answer errors(int status, const Diagnostics& problems) {
  return {.body = refused(problems).text, .status = status};
}

/// The value of a parameter that is a number of ranks.
std::optional<int> ranks_of(const std::string& name, const std::string& text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 1 || out > 1 << 24)
    throw wrong_words(fmt::format("'{}' of {} is not a number of ranks", text, name), "give a whole number from 1");
  return out;
}

Error out_of_reach(const std::string& path) {
  return Error(Diagnostic{"missing-file"}
                   .says("'{}' is not among what the command line names", path)
                   .hint("start 'automodel studio' with it, or with a folder above it")
                   .at({"request", 0, 0}));
}

/// What changes when a run writes, and the seconds since it last did.
std::pair<std::string, double> stamp_of(const fs::path& folder, const report::Takes& takes) {
  std::string stamp;
  auto last = fs::file_time_type::min();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().extension().native().starts_with(".json") || !takes(entry.path())) continue;
    const auto time = entry.last_write_time(error);
    stamp += fmt::format("{}:{}:{};", entry.path().filename().native(), entry.file_size(error),
                         time.time_since_epoch().count());
    last = std::max(last, time);
  }
  const std::chrono::duration<double> age = fs::file_time_type::clock::now() - last;
  return {fmt::format("{:016x}", std::hash<std::string>()(stamp)), age.count()};
}

/// A page that leads to the address. A browser is started with its name: arguments of a program can be read by every
/// user of the machine, a file of ours cannot.
class OpeningPage {
 public:
  /// False if it cannot be written.
  bool write(const std::string& address) {
    const char* folder = std::getenv("XDG_RUNTIME_DIR");
    std::error_code error;
    const bool own = folder != nullptr && *folder != '\0';
    name_ = (own ? fs::path(folder) : fs::temp_directory_path(error)) / "automodel-XXXXXX.html";
    const int file = mkostemps(name_.data(), 5, O_CLOEXEC);  // mode 0600
    if (file < 0) return false;
    there_ = 1;
    const auto text = fmt::format(
        "<!doctype html><title>automodel studio</title><meta http-equiv=\"refresh\" content=\"0; url={}\">\n", address);
    const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (close(file) != 0 || !whole) remove();
    return there_ != 0;
  }
  /// Also from a signal's handler.
  void remove() {
    if (there_ != 0) unlink(name_.c_str());
    there_ = 0;
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_ = {};
  volatile std::sig_atomic_t there_ = 0;
};
OpeningPage opening_page;

class Studio {
 public:
  explicit Studio(const Options& options)
      : named_(options.folders), reach_(named_), nonce_(studio::random_hex(16)), places_(places_of(named_)) {}

  void set_token(std::string token) { token_ = std::move(token); }

  Answer answer(const Request& request) {
    try {
      if (request.post != (request.path == "/api/save"))
        return {.body = request.post ? "only /api/save takes POST\n" : "/api/save takes POST\n",
                .type = "text/plain",
                .status = 405};
      if (request.path == "/") {
        opening_page.remove();
        return page();
      }
      if (request.path == "/api/plan") return plan(request);
      if (request.path == "/api/trace") return trace(request);
      if (request.path == "/api/search") return search(request);
      if (request.path == "/api/places") return places();
      if (request.path == "/api/run") return run(request);
      if (request.path == "/api/recipe") return {.body = recipe_text(request), .type = "text/plain"};
      if (request.path == "/api/save") return save(request);
    } catch (const Error& error) {
      return errors(400, error.problems());
    }
    return {.body = "there is no such page\n", .type = "text/plain", .status = 404};
  }

 private:
  /// The command line that a request stands for.
  Options options_of(const Request& request) const {
    Options out;
    for (const auto& [name, value] : request.query) {
      if (name == "recipe")
        out.recipe = value;
      else if (name == "set")
        out.overrides.push_back(value);
      else if (name.find('.') != std::string::npos)
        out.overrides.push_back(name + "=" + value);
      else if (name == "world_size")
        out.world_size = ranks_of(name, value);
      else if (name == "gpus_per_node")
        out.gpus_per_node = ranks_of(name, value);
      else if (name == "actions" && (value == "compute" || value == "lowered"))
        out.actions = value;
      else if (name == "no_files" && value == "1")
        out.no_files = true;
      else if (name != "name" || !request.post)
        throw wrong_words(fmt::format("there is no parameter '{}={}'", name, value),
                          "recipe, set=KEY=VALUE or a.b.c=VALUE, world_size, gpus_per_node, no_files=1, "
                          "actions=compute or actions=lowered");
    }
    if (out.recipe.empty() && !places_.recipes.empty()) out.recipe = places_.recipes.front();
    return out;
  }

  /// The recipe of a request. Throws Error if it or an override names a file out of reach.
  config::LoadedRecipe loaded(const Options& options) const {
    if (!options.recipe.empty() && !reach_.holds(options.recipe)) throw out_of_reach(options.recipe);
    Diagnostics problems;
    const auto overrides = config::parse_overrides(options.overrides, problems);
    for (const auto& each : overrides) {
      config::Node placed{.entries = {}};
      Diagnostics unplaced;  // load() reports them
      config::apply_overrides(placed, {&each, 1}, unplaced);
      if (const auto stray = reach_.stray_text(placed, options.recipe); !stray.empty())
        throw Error(Diagnostic{"bad-override"}
                        .says("'{}' of {} may be a file that the command line does not name", stray, each.key)
                        .hint("the page reads only what 'automodel studio' was started with; write it into the recipe")
                        .at({"request", 0, 0}));
    }
    if (!options.recipe.empty()) return load(options);
    auto out = config::read_recipe(kOwnRecipe, kOwnName, overrides, config::process_environment());
    out.problems.insert(out.problems.begin(), problems.begin(), problems.end());
    return out;
  }

  /// `use` of a recipe that can be read and its options; else its errors.
  template <class Use>
  Answer with_recipe(const Request& request, const Use& use) const {
    const auto options = options_of(request);
    const auto recipe = loaded(options);
    return recipe.problems.empty() ? use(options, recipe) : errors(200, recipe.problems);
  }

  template <class Use>
  Answer with_plan(const Request& request, const Use& use) const {
    return with_recipe(request, [&](const Options& options, const config::LoadedRecipe& recipe) {
      const auto result = plan_of(options, recipe, PlanningMachine(options).request());
      return result.plan ? use(options, recipe, *result.plan) : errors(200, result.problems);
    });
  }

  Answer plan(const Request& request) const {
    return with_plan(request, [](const Options& options, const auto& recipe, const estimate::EstimatedPlan& plan) {
      return Answer{.body = plan_document(options, plan, recipe).text};
    });
  }

  Answer trace(const Request& request) const {
    return with_plan(request, [](const Options&, const auto&, const estimate::EstimatedPlan& plan) {
      const auto text = trace_of(plan);
      return Answer{.body = text.empty() ? "{\"traceEvents\":[]}\n" : text};
    });
  }

  Answer search(const Request& request) const {
    return with_recipe(request, [](const Options& options, const config::LoadedRecipe& recipe) {
      const PlanningMachine machine(options);
      auto wanted = machine.request();
      if (!wanted.world_size) {
        const auto result = estimate::make_plan(recipe, wanted);
        if (!result.plan) return errors(200, result.problems);
        wanted.world_size = result.plan->mesh.world_size();
      }
      const auto found = estimate::search_plans(
          recipe, {.plan = wanted, .world_size = *wanted.world_size, .show = kMostFound, .plans = kMostFound});
      if (!found.problems.empty()) return errors(200, found.problems);
      return Answer{.body = estimate::to_json(found) + "\n"};
    });
  }

  /// The recipe with what was changed in it, comments kept.
  std::string recipe_text(const Request& request) const {
    const auto recipe = loaded(options_of(request));
    if (recipe.text.empty()) throw Error(recipe.problems);  // it cannot be read
    return estimate::apply_candidate(recipe, {});
  }

  Answer save(const Request& request) const {
    const auto name = request.value("name").value_or("");
    const bool plain = !name.empty() && name[0] != '.' && name.size() < 200 &&
                       std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || strchr("._-", c); });
    if (!plain || !is_recipe(name))
      throw wrong_words(fmt::format("'{}' is not a file's name", name),
                        "letters, digits, '-', '_' and '.', ending in .yaml: it is written to the working directory");
    const auto text = recipe_text(request);
    std::FILE* file = std::fopen(name.c_str(), "wxe");
    if (file == nullptr)
      throw Error(Diagnostic{"cannot-write"}
                      .says("'{}' cannot be written: {}", name, std::strerror(errno))
                      .hint(errno == EEXIST ? "nothing is overwritten: give another name" : "see the working directory")
                      .at({"request", 0, 0}));
    const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !whole) {
      std::remove(name.c_str());
      throw Error(Diagnostic{"cannot-write"}
                      .says("'{}' cannot be written whole", name)
                      .hint("free space on this disk")
                      .at({"request", 0, 0}));
    }
    return {.body = fmt::format("written: {}\n", name), .type = "text/plain"};
  }

  /// What there is by now: a run may have begun.
  Answer places() {
    places_ = places_of(named_);
    JsonWriter json;
    json.begin_object();
    json.member("recipes", places_.recipes);
    json.member("runs", places_.runs);
    json.end_object();
    return {.body = json.take() + "\n"};
  }

  Answer run(const Request& request) const {
    const auto folder = request.value("run").value_or("");
    if (!reach_.holds(folder)) throw out_of_reach(folder);
    // A link in a run's folder may lead out of reach.
    const report::Takes takes = [&](const fs::path& file) {
      std::error_code error;
      return fs::is_regular_file(file, error) && reach_.holds(file);
    };
    const auto [stamp, age] = stamp_of(folder, takes);
    JsonWriter json;
    json.begin_object();
    json.member("stamp", stamp);
    json.member("age", age);
    if (request.value("stamp") == stamp) {
      json.member("unchanged", true);
    } else {
      json.key("run");
      json.document(report::to_json(report::read_run(folder, takes)));
    }
    json.end_object();
    return {.body = json.take() + "\n"};
  }

  Answer page() const {
    JsonWriter json;
    json.begin_object();
    json.member("version", kVersion);
    json.member("token", token_);
    json.member("recipes", places_.recipes);
    json.member("runs", places_.runs);
    json.member("folders", std::ranges::any_of(named_, [](const auto& each) { return fs::is_directory(each); }));
    json.member("models", plan::catalogue_names());
    json.key("devices");
    json.begin_array();
    for (const auto& each : estimate::device_profiles()) json.value(each.name);
    json.end_array();
    json.member("keys", config::recipe_keys());
    json.key("values");
    json.begin_object();
    for (const auto& each : completed_values()) json.member(each.name, each.values);
    json.end_object();
    json.end_object();
    return {.body = report::to_html({.title = "automodel studio",
                                     .data = json.take(),
                                     .scripts = {"draw.js", "plan.js", "run.js", "studio.js"},
                                     .start = "startStudio",
                                     .nonce = nonce_}),
            .type = "text/html",
            .headers = {{"Content-Security-Policy",
                         fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src "
                                     "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                                     nonce_)}}};
  }

  std::vector<std::string> named_;
  studio::Reach reach_;
  std::string token_ = {}, nonce_;
  Places places_;
};

/// Opens the address in the person's browser, if there is a desktop.
void open_browser(const std::string& address) {
  if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return;
  if (!opening_page.write(address)) return err("no browser is opened: there is no place for its page\n");
  if (fork() != 0) return;
  // It outlives us: Ctrl-C is for us alone, and it waits for children of its own.
  setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) std::signal(signal, SIG_DFL);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, each);
  execlp("xdg-open", "xdg-open", opening_page.name().c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

}  // namespace

int run_studio(const Options& options) {
  for (const auto& each : options.folders) {
    std::error_code error;
    if (!fs::exists(each, error))
      throw Error(Diagnostic{"missing-file"}
                      .says("there is no '{}'", each)
                      .hint("name recipes, folders of runs, or folders above them")
                      .at({"command line", 0, 0}));
  }
  Studio studio(options);
  studio::Server server(options.port, [&](const Request& request) { return studio.answer(request); });
  studio.set_token(server.token());
  // At once, whatever is being answered: nothing is left half-written by that.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    std::signal(signal, [](int) {
      opening_page.remove();
      _exit(0);
    });
  std::signal(SIGCHLD, SIG_IGN);
  out(server.address() + "\n");
  std::fflush(stdout);
  err("for this machine only; Ctrl-C ends it\n");
  if (!options.no_open) open_browser(server.address());
  server.serve();
  return code(ExitCode::kOk);
}

}  // namespace automodel::app
