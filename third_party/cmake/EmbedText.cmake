# cmake -DOUT=parts.cpp -DFILES=a.css;b.js -P EmbedText.cmake: a C++ source with the text of each file, found by its name.
set(rows "")
foreach(file IN LISTS FILES)
  file(READ ${file} text)
  get_filename_component(name ${file} NAME)
  string(APPEND rows "{\"${name}\", R\"part(${text})part\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"report/page_parts.h\"\n\nnamespace automodel::report {\nnamespace {\nconstexpr PagePart kParts[] = {\n${rows}};\n}\nstd::span<const PagePart> page_parts() { return kParts; }\n}\n")
