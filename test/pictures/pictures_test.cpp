// Pictures: decoding against Pillow (test/golden/vlm), what is refused, and the settings of processors.
#include <fstream>
#include <iterator>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "golden_folder.h"
#include "pictures/decode.h"
#include "pictures/orientation.h"
#include "pictures/processor.h"
#include "sha256.h"

namespace automodel::pictures {
namespace {

using Json = nlohmann::json;
const std::string kFolder = golden_folder() + "/vlm/";

std::string bytes_of(const std::string& file) {
  std::ifstream in(kFolder + "pictures/" + file, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string hash_of(const Picture& picture) {
  return test::sha256({reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size()});
}

/// Why a picture is refused; "" if it is not.
std::string refusal(const std::string& bytes) {
  try {
    decode(bytes);
  } catch (const PictureError& error) {
    return error.what();
  }
  return "";
}

/// A PNG file's header with another size; its checksum is wrong then.
std::string with_size(std::string png, std::uint32_t width, std::uint32_t height) {
  for (int i = 0; i < 4; ++i) {
    png[static_cast<std::size_t>(16 + i)] = static_cast<char>(width >> (24 - 8 * i));
    png[static_cast<std::size_t>(20 + i)] = static_cast<char>(height >> (24 - 8 * i));
  }
  return png;
}

TEST_CASE("the hash of the tests is SHA-256", "[pictures]") {
  CHECK(test::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(test::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("files are decoded to Pillow's bytes, upright and in RGB, or refused", "[pictures]") {
  std::ifstream in(kFolder + "decoded.jsonl");
  int decoded = 0, refused = 0;
  for (std::string line; std::getline(in, line);) {
    const auto wanted = Json::parse(line);
    const auto name = wanted["file"].get<std::string>();
    INFO(name);
    const auto bytes = bytes_of(name);
    if (wanted.contains("error")) {
      CHECK(!refusal(bytes).empty());
      ++refused;
      continue;
    }
    const auto picture = decode(bytes);
    const Size size{wanted["size"][0].get<int>(), wanted["size"][1].get<int>()};
    CHECK(picture->size == size);
    CHECK(hash_of(*picture) == wanted["sha256"].get<std::string>());
    ++decoded;
  }
  CHECK(decoded == 42);
  CHECK(refused == 6);
}

TEST_CASE("each of Exif's orientations turns a picture upright", "[pictures]") {
  // 3 x 2 pixels, numbered in the order of the file.
  const Picture stored{{3, 2}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6}};
  const std::vector<std::vector<int>> wanted = {{},
                                                {1, 2, 3, 4, 5, 6},
                                                {3, 2, 1, 6, 5, 4},
                                                {6, 5, 4, 3, 2, 1},
                                                {4, 5, 6, 1, 2, 3},
                                                {1, 4, 2, 5, 3, 6},
                                                {4, 1, 5, 2, 6, 3},
                                                {6, 3, 5, 2, 4, 1},
                                                {3, 6, 2, 5, 1, 4}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    INFO(orientation);
    const auto turned = upright(stored, orientation);
    CHECK(turned.size == (orientation >= 5 ? Size{2, 3} : Size{3, 2}));
    std::vector<int> got;
    for (std::size_t i = 0; i < turned.rgb.size(); i += 3) got.push_back(turned.rgb[i]);
    CHECK(got == wanted[static_cast<std::size_t>(orientation)]);
  }
}

TEST_CASE("a picture is refused before it is decoded if it is too large, and if it is cut off anywhere", "[pictures]") {
  const auto jpeg = bytes_of("baseline_420.jpg");
  auto huge = jpeg;  // the frame header's height and width
  const auto frame = huge.find("\xFF\xC0");
  REQUIRE(frame != std::string::npos);
  for (std::size_t i = 5; i < 9; ++i) huge[frame + i] = '\x7F';
  CHECK(refusal(huge) == "it has 32639 x 32639 pixels, more than 89478485");
  CHECK(!refusal(with_size(bytes_of("rgb.png"), 1 << 20, 1 << 20)).empty());
  CHECK(refusal("") == "it is no JPEG, PNG or WebP file");
  CHECK(refusal("GIF89a") == "it is no JPEG, PNG or WebP file");
  for (const char* name : {"baseline_420.jpg", "progressive.jpg", "rgb.png", "interlaced.png", "lossless.webp"}) {
    const auto bytes = bytes_of(name);
    for (std::size_t keep = 0; keep + 40 < bytes.size(); keep += 1 + bytes.size() / 50) {
      INFO(name << " of which " << keep << " bytes are left");
      CHECK(!refusal(bytes.substr(0, keep)).empty());
    }
  }
  CHECK_THROWS_AS(read_picture(kFolder + "pictures"), PictureError);
  CHECK_THROWS_AS(read_picture(kFolder + "pictures/none.png"), PictureError);
}

TEST_CASE("damaged bytes anywhere give a picture or a reason", "[pictures]") {
  for (const char* name : {"baseline_420.jpg", "cmyk.jpg", "progressive.jpg", "exif_6.jpg", "exif_6.png", "palette.png",
                           "interlaced.png", "grey_16bit.png", "lossy_alpha.webp", "lossless.webp"}) {
    const auto bytes = bytes_of(name);
    for (std::size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 200)
      for (const unsigned flip : {0x01U, 0x80U, 0xFFU}) {
        auto damaged = bytes;
        damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ flip);
        try {
          const auto picture = decode(damaged);
          CHECK(picture->rgb.size() == std::size_t{3} * static_cast<std::size_t>(picture->size.width) *
                                           static_cast<std::size_t>(picture->size.height));
        } catch (const PictureError& error) {
          CHECK(!std::string(error.what()).empty());
        }
      }
  }
}

TEST_CASE("settings of processors are read, or refused with the reason", "[pictures]") {
  std::string why;
  const auto read = [&](const std::string& text) {
    why.clear();
    return parse_processor(text, why);
  };
  const auto clip = read(R"({"image_processor_type": "CLIPImageProcessor", "size": 224, "crop_size": 224})");
  REQUIRE(clip);
  CHECK(clip->shortest_edge == 224);
  CHECK(clip->result() == Size{224, 224});
  CHECK(clip->resized({300, 200}) == Size{336, 224});
  CHECK(clip->resized({200, 301}) == Size{224, 337});  // rounded down
  const auto siglip = read(R"({"image_processor": {"image_processor_type": "SiglipImageProcessor", "size": 64}})");
  REQUIRE(siglip);
  CHECK(siglip->resized({200, 20}) == Size{640, 64});
  CHECK(siglip->mean[0] == 0.5);
  // As transformers 5.23: a bare number is both sides for Gemma 3, which also never crops.
  const auto gemma3 = read(R"({"image_processor_type": "Gemma3ImageProcessor", "size": 8, "do_center_crop": true})");
  REQUIRE(gemma3);
  CHECK(gemma3->result() == Size{8, 8});
  const auto made_square =
      read(R"({"image_processor_type": "SiglipImageProcessor", "size": 64, "default_to_square": true})");
  REQUIRE(made_square);
  CHECK(made_square->result() == Size{64, 64});
  CHECK(read(R"({"image_processor_type": "SiglipImageProcessor"})")->result() == Size{224, 224});
  CHECK(!read(R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 9, "longest_edge": 20}})"));
  CHECK(why == "'size' limits the longest_edge");
  CHECK(!read(R"({"image_processor_type": "SiglipImageProcessor", "do_center_crop": true})"));
  CHECK(why == "do_center_crop needs a crop_size");
  CHECK(!read(R"({"image_processor_type": "PixtralImageProcessor", "do_center_crop": true, "crop_size": 28})"));
  // Pixtral's patches and tokens are in the second file, whatever the first says.
  const std::string pixtral = R"({"image_processor_type": "PixtralImageProcessorFast", "patch_size": 28})";
  CHECK(read(pixtral)->patches == PatchSettings{.patch = 28, .merge = 1, .frames = 1, .longest_edge = 1024});
  CHECK(read(pixtral)->row_end.empty());
  const auto both = parse_processor(pixtral, why,
                                    R"({"processor_class": "PixtralProcessor", "patch_size": 14,
                                        "spatial_merge_size": 2, "image_break_token": "|"})");
  REQUIRE(both);
  CHECK(both->patches == PatchSettings{.patch = 14, .merge = 2, .frames = 1, .longest_edge = 1024});
  CHECK(both->row_end == "|");
  CHECK(both->picture_end == "[IMG_END]");
  CHECK(!parse_processor(pixtral, why, "["));
  const auto gemma = read(R"({"image_processor_type": "Gemma4ImageProcessor"})");
  REQUIRE(gemma);
  CHECK(gemma->patches == PatchSettings{.patch = 16, .merge = 3, .frames = 1, .soft_tokens = 280});
  CHECK(gemma->patches->most_tokens() == 280);
  CHECK(!gemma->normalize);
  const auto muse = read(R"({"image_processor_type": "MuseGlimmerImageProcessor"})");
  REQUIRE(muse);
  CHECK(muse->patches->most_tokens() == 4096);
  CHECK(muse->resampling == Resampling::kLanczos);
  CHECK(std::pair(muse->mean, muse->deviation) == std::pair(std::array{0.5, 0.5, 0.5}, std::array{0.5, 0.5, 0.5}));
  CHECK(muse->picture_begin == "<|image_start|>");
  const auto minimax = read(R"({"image_processor_type": "MiniMaxM3VLImageProcessor", "size": [672, 672]})");
  REQUIRE(minimax);
  CHECK(minimax->patches == PatchSettings{.least = 3136, .most = 451584});
  CHECK(minimax->picture_end == "]<]end of image[>[");
  const std::string start = R"({"image_processor_type": "CLIPImageProcessor", )";
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "not a JSON object"},
           {"{", "not a JSON object"},
           {R"({"image_processor_type": "Glm4vImageProcessor"})", "Glm4vImageProcessor"},
           {R"({"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 300})", "max_soft_tokens is 300"},
           {R"({"image_processor_type": "Gemma4ImageProcessor", "do_resize": false})", "do_resize"},
           {R"({"image_processor_type": "Gemma4ImageProcessor", "patch_size": 8000})", "its patches"},
           {R"({"image_processor_type": "MuseGlimmerImageProcessor", "do_resize": false})", "do_resize"},
           {R"({"image_processor_type": "MuseGlimmerImageProcessor", "max_image_tokens": 2000000})", "above 1048576"},
           {R"({"image_processor_type": "PixtralImageProcessor", "size": {"height": 9, "width": 9}})", "longest_edge"},
           {R"({"image_processor_type": "PixtralImageProcessor", "patch_size": {"height": 4, "width": 8}})", "square"},
           {R"({"image_processor_type": "PixtralImageProcessor", "patch_size": 20000})", "'patch_size'"},
           {R"({"processor_class": "PixtralProcessor", "patch_size": 200, "spatial_merge_size": 100,
                "image_processor": {"image_processor_type": "PixtralImageProcessor"}})",
            "its patches have more than"},
           {R"({"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": true})", "do_pan_and_scan"},
           {R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 0})", "'patch_size'"},
           {R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 99999})", "its patches"},
           {R"({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 9, "max_pixels": 8})",
            "above its largest"},
           {R"({"image_processor_type": "MiniMaxM3VLImageProcessor", "size": [336, 336]})", "'size' is a list"},
           {"{}", "does not name"},
           {start + R"("size": {"longest_edge": 3}})", "'size'"},
           {start + R"("size": {"shortest_edge": 0}})", "'size'"},
           {start + R"("resample": 0})", "resample 0"},
           {start + R"("image_mean": [1, 2]})", "'image_mean'"},
           {start + R"("image_std": [1, 0, 1]})", "'image_std'"},
           {start + R"("do_resize": 3})", "'do_resize'"}}) {
    INFO(text);
    CHECK(!read(text));
    CHECK(why.find(reason) != std::string::npos);
  }
  CHECK(!read_processor(kFolder + "pictures", why));
  CHECK(why == "there is no preprocessor_config.json");
}

}  // namespace
}  // namespace automodel::pictures
